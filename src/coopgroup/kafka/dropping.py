"""Clean up consumers that the application drops without closing them.

The heartbeats of a dropped consumer would keep its idle partitions until `max.poll.interval.ms` is
over. Its threads and its place in the state directory would stay until the process ends. So the
consumer leaves the group when it is garbage-collected, and everything that it opened is closed. No
callback runs and no offset is committed, because the application no longer uses the consumer.

At the end of the interpreter this does not run. `driver` stops the threads anyway, and partitions
become free as after a crash.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import has_left

if TYPE_CHECKING:
    from coopgroup.kafka.driver import GroupDriver
    from coopgroup.kafka.identity import IdentitySlot
    from coopgroup.kafka.telemetry_sink import TelemetrySink
    from coopgroup.kafka.watching import TopicWatcher

__all__ = ["WhenDropped", "end_when_dropped"]

_LEAVE_TIMEOUT_S: Final = 5.0
_STEP_S: Final = 0.01

WhenDropped: TypeAlias = "weakref.finalize[..., Any]"
"""What runs when a consumer is dropped; `detach` where it is closed."""


def end_when_dropped(
    consumer: object,
    driver: GroupDriver,
    watcher: TopicWatcher,
    sink: TelemetrySink,
    slot: IdentitySlot | None,
) -> WhenDropped:
    """End the parts of a consumer when it is collected.

    Args:
        consumer: the consumer; the other arguments must not keep it alive.
        driver: driver of its group.
        watcher: watcher of its topics; its thread closes the other parts before it ends.
        sink: its telemetry.
        slot: storage of its identity beyond the process, or None.
    """

    def close() -> None:
        deadline = now_s() + _LEAVE_TIMEOUT_S
        while not has_left(driver.member) and now_s() < deadline:
            time.sleep(_STEP_S)
        driver.stop()
        if slot is not None:
            slot.release()
        sink.close()

    home_pid = os.getpid()

    def end() -> None:
        # Garbage is collected on any thread, at any moment. So this function does not wait, start a
        # thread or take a lock that this thread may hold already. (The locks of the driver and the
        # watcher are reentrant.) A forked child has no thread of the group, but may have a lock
        # that was held during the fork.
        if os.getpid() == home_pid:
            driver.leave("consumer dropped", for_good=True)
            watcher.finish(close)

    finalizer: WhenDropped = weakref.finalize(consumer, end)
    finalizer.atexit = False
    return finalizer
