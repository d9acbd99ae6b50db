"""Callbacks of the configuration: what they raise, and how long they live.

A consumer that its application drops leaves the group when Python collects it (`dropping`). A
callback is often a method of the object that owns the consumer. The threads of the group have
callbacks, too: with a strong reference to such a method, they would keep its object, the consumer
and its partitions for ever. So the consumer alone keeps its callbacks (`keep_callbacks`), and
everything else gets stand-ins that refer to them weakly.

confluent_kafka 2.16 keeps what a callback raised until its call is over, but on Python 3.11 it can
do so only with exceptions that are objects already. One that C code raised (`int("x")`), or
Ctrl-C, is not yet, and comes out as a SystemError that says nothing of it. Passing through an
`except` makes it an object.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KeptCallback", "keep_callbacks", "with_plain_errors"]

_CALLED_FROM_POLL: Final = ("error_cb", "stats_cb", "throttle_cb")
_CALLBACKS: Final = (*_CALLED_FROM_POLL, "oauth_cb", "on_commit", "coopgroup.telemetry.listener")
_LOGGER: Final = "logger"


@define(eq=False)
class KeptCallback:
    """A callback or a logger of an application; whoever has this keeps it alive."""

    kept: Any = field(repr=False)


@define(eq=False)
class _StandIn:
    """Calls a callback for as long as its consumer lives.

    Attributes:
        key: of the configuration.
        refers_to: the callback, weakly.
    """

    key: str
    refers_to: weakref.ref[KeptCallback] = field(repr=False)

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401  (those of the callback)
        """Make the call.

        Raises:
            RuntimeError: the consumer was collected.
        """
        return self._callback()(*arguments)

    def log(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401  (those of a logger)
        """Log a line of librdkafka; confluent_kafka asks a logger for nothing else."""
        self._callback().log(*arguments, **more)

    def _callback(self) -> Any:  # noqa: ANN401  (of the application)
        kept = self.refers_to()
        if kept is None:
            raise RuntimeError(f"{self.key}: its consumer was dropped")
        return kept.kept


def keep_callbacks(
    configuration: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[KeptCallback, ...]]:
    """Put stand-ins in the place of callbacks.

    Args:
        configuration: the user's; what cannot be called stays as it is, to be refused.

    Returns:
        The configuration with stand-ins, and the callbacks, for the consumer to keep.
    """
    kept = {
        key: KeptCallback(value)
        for key, value in configuration.items()
        if (key in _CALLBACKS and callable(value)) or (key == _LOGGER and hasattr(value, "log"))
    }
    stand_ins = {key: _StandIn(key, weakref.ref(one)) for key, one in kept.items()}
    return {**configuration, **stand_ins}, tuple(kept.values())


def with_plain_errors(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a client, its callbacks wrapped; what cannot be called stays as it is.

    Args:
        configuration: keys of confluent_kafka.
    """
    return {
        key: _raising(value) if key in _CALLED_FROM_POLL and callable(value) else value
        for key, value in configuration.items()
    }


def _raising(callback: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: Any) -> object:  # noqa: ANN401  (those of librdkafka)
        try:
            return callback(*arguments)
        except BaseException:  # noqa: TRY203 -- makes it an object, see the top of this file
            raise

    return call
