"""Clean up consumers that the application drops without closing them.

The heartbeats of a dropped consumer would keep its idle partitions until `max.poll.interval.ms` is
over. Its threads and its place in the state directory would stay until the process ends. So the
consumer leaves the group when it is garbage-collected, and everything that it opened is closed. No
callback runs and no offset is committed, because the application no longer uses the consumer.

At the end of the interpreter this does not run. `driver` stops the threads anyway, and partitions
become free as after a crash.

The callbacks of a configuration must not keep a dropped consumer alive (`keep_callbacks`). A
callback is often a method of the object that owns the consumer. The group's threads have callbacks,
too. With a strong reference to such a method, they would keep its object, the consumer and its
partitions for ever. So only the consumer keeps its callbacks, and all other
parts get stand-ins that refer to them weakly.

confluent_kafka 2.16 keeps an exception of a callback until its own call is over. On Python 3.11
this works only with exceptions that exist as objects. An exception raised by C code (`int("x")`) or
by Ctrl-C does not yet exist as an object, and becomes a SystemError without details. An `except`
makes it an object.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, field

from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.membership.watching import TopicWatcher

if TYPE_CHECKING:
    from coopgroup.kafka.membership.identity import IdentitySlot


Finalizer: TypeAlias = "weakref.finalize[..., Any]"
"""Runs when a consumer is garbage-collected; a consumer that is closed calls `detach`."""


def finalize_when_dropped(
    consumer: object,
    driver: GroupDriver,
    watcher: TopicWatcher,
    sink: TelemetrySink,
    slot: IdentitySlot | None,
) -> Finalizer:
    """End the parts of a consumer when it is collected; none of them may keep it alive."""

    def close() -> None:
        driver.wait_left()
        driver.stop()
        if slot is not None:
            slot.release()
        sink.close()

    home_pid = os.getpid()

    def end() -> None:
        # Garbage is collected on any thread, at any moment. So this function does not wait, start a
        # thread or take a lock that this thread may hold already. (The locks of the driver and its
        # transport are reentrant.) A forked child has no thread of the group, but may have a lock
        # that was held during the fork.
        if os.getpid() == home_pid:
            driver.leave("consumer dropped", for_good=True)
            watcher.finish(close)

    finalizer: Finalizer = weakref.finalize(consumer, end)
    finalizer.atexit = False
    return finalizer


_CALLED_FROM_POLL: Final = ("error_cb", "stats_cb", "throttle_cb")
_CALLBACKS: Final = (
    *_CALLED_FROM_POLL,
    "oauth_cb",
    "on_commit",
    "key.deserializer",
    "value.deserializer",
    "coopgroup.telemetry.listener",
)
_LOGGER: Final = "logger"


@define(eq=False)
class KeptCallback:
    """A callback or a logger of an application; a reference to this keeps it alive."""

    kept: Any = field(repr=False)


@define(eq=False)
class _StandIn:
    """Calls a callback while its consumer lives."""

    key: str
    refers_to: weakref.ref[KeptCallback] = field(repr=False)

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401  (those of the callback)
        """Call the callback.

        Raises:
            RuntimeError: the consumer was collected.
        """
        return self._callback()(*arguments)

    def log(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401  (those of a logger)
        """Log a line of librdkafka; confluent_kafka calls no other method of a logger."""
        self._callback().log(*arguments, **more)

    def watch_member(self, probe: object) -> Any:  # noqa: ANN401  (a listener of telemetry)
        """Return the telemetry listener of a member, see `TelemetrySink.watch`."""
        watch = getattr(self._callback(), "watch_member", None)
        return watch(probe) if callable(watch) else self

    def _callback(self) -> Any:  # noqa: ANN401  (of the application)
        kept = self.refers_to()
        if kept is None:
            raise RuntimeError(f"{self.key}: its consumer was dropped")
        return kept.kept


def keep_callbacks(
    configuration: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[KeptCallback, ...]]:
    """Replace callbacks by stand-ins; return the callbacks for the consumer to keep."""
    kept = {
        key: KeptCallback(value)
        for key, value in configuration.items()
        if (key in _CALLBACKS and callable(value)) or (key == _LOGGER and hasattr(value, "log"))
    }
    stand_ins = {key: _StandIn(key, weakref.ref(one)) for key, one in kept.items()}
    return {**configuration, **stand_ins}, tuple(kept.values())


def with_plain_errors(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with wrapped callbacks; values not callable stay unchanged."""
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
