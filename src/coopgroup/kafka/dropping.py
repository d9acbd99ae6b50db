"""Consumers that the application drops instead of closing them.

Their heartbeats would keep partitions that nobody works on until `max.poll.interval.ms` is over,
and their threads and their place in the state directory for as long as the process lives. So the
group is left as soon as the consumer is collected, and everything that was opened is closed.
Nobody is called back then and nothing is committed, for there is nobody left to do it.

At the end of the interpreter this does not run: threads are stopped anyway (`driver`), and
partitions come free as after a crash.
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
    """Have the parts of a consumer end when it is collected.

    Args:
        consumer: whose end it is; none of the other arguments may keep it alive.
        driver: of its group.
        watcher: of its topics; the last that its thread does is to close the others.
        sink: of its telemetry.
        slot: where it is kept beyond its process; None for nowhere.
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
        # Garbage is collected on any thread, in the middle of anything: nothing here waits, starts
        # a thread or takes a lock that this thread may hold already (the driver's and the
        # watcher's are reentrant). A forked child has no thread of the group, but maybe a lock
        # that was taken when it was forked.
        if os.getpid() == home_pid:
            driver.leave("consumer dropped", for_good=True)
            watcher.finish(close)

    finalizer: WhenDropped = weakref.finalize(consumer, end)
    finalizer.atexit = False
    return finalizer
