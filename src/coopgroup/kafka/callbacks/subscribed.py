"""What an application passes to `subscribe`: its callbacks, and the state that it has already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
from attrs import frozen
from confluent_kafka import TopicPartition

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.records.partitions import to_resources

__all__ = ["Callback", "Callbacks", "as_resources"]

Callback: TypeAlias = "Callable[[Any, list[TopicPartition]], object]"


@frozen
class Callbacks:
    """The callbacks passed to `subscribe`.

    Raises:
        TypeError: a callback cannot be called, or the one of warm-ups is missing.
    """

    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None
    on_warmup: Callback | None = None
    on_warmup_cancelled: Callback | None = None

    def __attrs_post_init__(self) -> None:
        for one in attrs.fields(type(self)):
            callback = getattr(self, one.name)
            if callback is not None and not callable(callback):
                raise TypeError(f"{one.name} expects a callable")
        if self.on_warmup is None and self.on_warmup_cancelled is not None:
            raise TypeError("on_warmup_cancelled expects on_warmup beside it")

    def warm_set(self, warm: list[TopicPartition] | None) -> ResourceSet | None:
        """Return the warm set to declare; None if the application takes no part in warm-ups.

        Raises:
            TypeError: not a list of partitions, or `on_warmup` is missing.
        """
        if self.on_warmup is not None:
            return EMPTY if warm is None else as_resources(warm)
        if warm is not None:
            raise TypeError("warm expects on_warmup beside it")
        return None


def as_resources(partitions: list[TopicPartition]) -> ResourceSet:
    """Return the partitions of an application as a set.

    Raises:
        TypeError: the argument is not a list of partitions.
    """
    try:
        return to_resources(partitions)
    except (AttributeError, TypeError):
        raise TypeError("requires list of TopicPartition") from None
