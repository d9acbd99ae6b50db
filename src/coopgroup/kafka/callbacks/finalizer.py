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
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.leaving import wait_left
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.membership.watching import TopicWatcher

if TYPE_CHECKING:
    from coopgroup.kafka.membership.identity import IdentitySlot

__all__ = ["Finalizer", "finalize_when_dropped"]

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
        wait_left(driver)
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

    finalizer: Finalizer = weakref.finalize(consumer, end)
    finalizer.atexit = False
    return finalizer
