"""The callbacks of an application that shares named resources, and their failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
from attrs import frozen

from coopgroup.core.model import Resource

ResourceCallback: TypeAlias = "Callable[[Resource], object]"


@frozen(kw_only=True)
class WorkFailure:
    """A failure, for the application's `on_error`.

    Attributes:
        resource: the resource; None if the membership itself has ended.
        action: the callback that raised: "start", "stop", "lost", "warm" or "cool"; "membership".
        attempts: number of consecutive failures; the callback is tried again after each, except
            "warm" and "cool".
    """

    resource: Resource | None
    action: str
    error: BaseException
    attempts: int


@frozen(kw_only=True)
class Callbacks:
    """The application's callbacks; `lost` is `stop` if the application gave none."""

    start: ResourceCallback
    stop: ResourceCallback
    lost: ResourceCallback
    on_error: Callable[[WorkFailure], object] | None
    warm: ResourceCallback | None = None
    cool: ResourceCallback | None = None

    def check(self) -> None:
        """Refuse what cannot be called.

        Raises:
            TypeError: the message names the callback.
        """
        for one in attrs.fields(type(self)):
            callback = getattr(self, one.name)
            is_optional = one.name not in {"start", "stop"}
            if not callable(callback) and not (callback is None and is_optional):
                raise TypeError(f"{one.name} expects a callable")
