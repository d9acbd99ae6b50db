"""`MemberReports`: a member tells its topic of telemetry from time to time how it is.

Records of telemetry tell what changed. A lease and the time since the last poll change all the
time, and only the member knows them. `coopgroup watch` shows them.

Rule of this file: everything runs on the transport's thread and reads published values. So a report
costs neither `poll` nor the group's thread anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from attrs import define

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.ports import Application, Transport
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.member import Member
from coopgroup.member.transitions import AT_WORK, MemberState
from coopgroup.model import EMPTY
from coopgroup.telemetry import MemberReported

__all__ = ["MemberReports", "Reporter", "report_of"]


class Reporter(Protocol):
    """The part of `GroupDriver` that a report reads."""

    @property
    def member(self) -> Member:
        """Return the member after its last step."""
        ...

    @property
    def application(self) -> Application | None:
        """Return the application of a group of named resources, which does not poll; else None."""
        ...

    @property
    def meter(self) -> WorkMeter:
        """Return the meter of the application's work."""
        ...

    @property
    def lease_until_s(self) -> float:
        """Return until when the member may work; infinite without owned resources."""
        ...

    @property
    def polled_at_s(self) -> float:
        """Return when the application last left `poll`; infinite while it is in `poll`."""
        ...


@define(eq=False, kw_only=True)
class MemberReports:
    """The reports of one member.

    Attributes:
        put: takes a report; it neither waits nor raises.
    """

    transport: Transport
    reporter: Reporter
    put: Callable[[MemberReported], None]
    interval_ms: int

    def start(self) -> None:
        """Report after each interval, until the transport is closed."""
        with suppress(RuntimeError):  # the transport is closed
            self.transport.later(self.interval_ms / 1000, self._report)

    def _report(self) -> None:
        if self.reporter.member.state in AT_WORK | {MemberState.LOSING}:
            self.put(report_of(self.reporter, now_s(), self.interval_ms))
        self.start()


def report_of(reporter: Reporter, now: float, interval_ms: int) -> MemberReported:
    """Return the report of this moment.

    Args:
        reporter: the member.
        now: a reading of the monotonic clock, in seconds.
        interval_ms: time to the next report, in ms.
    """
    member, rate_per_s = reporter.member, reporter.meter.rate_per_s
    lease_s, warmups = reporter.lease_until_s - now, member.next_join.warmups
    since_poll_ms = -1
    if reporter.application is None:
        since_poll_ms = round(1000 * max(0.0, now - reporter.polled_at_s))
    return MemberReported(
        state=member.state.value,
        interval_ms=interval_ms,
        since_poll_ms=since_poll_ms,
        lease_ms=-1 if math.isinf(lease_s) else round(1000 * max(0.0, lease_s)),
        rate_per_s=-1.0 if rate_per_s is None else round(rate_per_s, 3),
        revoking=member.revocation.pending,
        warming=EMPTY if warmups is None else warmups.begun - warmups.warm,
        warm=EMPTY if warmups is None else warmups.warm & warmups.wanted,
    )
