"""Read the arguments of `subscribe`: topics or a pattern, callbacks or aiokafka's listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from attrs import evolve
from confluent_kafka import TopicPartition

from coopgroup.aio.callbacks import AsyncCallback
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.subscribed import Callbacks
from coopgroup.kafka.membership.subscription import read_topics

__all__ = ["RebalanceListener", "read_subscription"]

_METHODS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


class RebalanceListener(Protocol):
    """aiokafka's `ConsumerRebalanceListener`; its methods may be coroutines."""

    def on_partitions_assigned(self, assigned: Any, /) -> Any:  # noqa: ANN401  (or a coroutine)
        """Hear of newly assigned partitions."""
        ...

    def on_partitions_revoked(self, revoked: Any, /) -> Any:  # noqa: ANN401  (or a coroutine)
        """Hear of partitions to give up."""
        ...


def read_subscription(
    topics: Iterable[str],
    pattern: str | None,
    listener: RebalanceListener | None,
    callbacks: Callbacks,
) -> tuple[tuple[str, ...], Callbacks]:
    """Return the topics and the callbacks.

    Raises:
        ConfigurationError: a topic or the pattern is not valid; or none or both were given; or both
            a listener and callbacks.
        TypeError: the topics are not strings.
    """
    if isinstance(topics, str):
        raise TypeError(f"topics is {topics!r}: it must be a list of names, such as [{topics!r}]")
    wanted = list(topics)
    if not all(isinstance(one, str) for one in wanted):
        raise TypeError("topics must be a list of strings")
    if pattern is not None:
        if wanted:
            raise ConfigurationError("pattern", pattern, "without topics")
        wanted = [pattern if pattern.startswith("^") else f"^{pattern}"]
    if not wanted:
        raise ConfigurationError("topics", wanted, "at least one name or pattern")
    read_topics(wanted)
    return tuple(wanted), _callbacks(listener, callbacks)


def _callbacks(listener: RebalanceListener | None, callbacks: Callbacks) -> Callbacks:
    if listener is None:
        return callbacks
    if callbacks.on_assign or callbacks.on_revoke or callbacks.on_lost:
        raise ConfigurationError("listener", listener, "without on_assign, on_revoke and on_lost")
    assign, revoke, lose = (getattr(listener, method, None) for method in _METHODS)
    return evolve(
        callbacks,
        on_assign=_of_method(assign),
        on_revoke=_of_method(revoke),
        on_lost=_of_method(lose),
    )


def _of_method(method: Callable[[set[TopicPartition]], Any] | None) -> AsyncCallback | None:
    if method is None:
        return None
    return lambda _, partitions: method(set(partitions))
