"""Warns when the group's thread ran too late to send its heartbeats in time.

Python runs one thread at a time. A C call that keeps the global interpreter lock (GIL) stops the
group's thread. A stopped process or an overloaded machine has the same effect. librdkafka sends its
heartbeats from threads that need no GIL; this package does not. If the delay exceeds
`session.timeout.ms`, the coordinator drops the member. The lease still holds: the member hands out
no record of a partition that another member may own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import define, field

from coopgroup.kafka.clock import now_s

__all__ = ["LateThread"]

_SHARE_OF_SESSION: Final = 0.25
_LATE_S_MIN: Final = 0.5
_QUIET_S: Final = 60.0
_CAUSE: Final = "a C call held the GIL, the process was stopped, or the machine is overloaded"
_LATE: Final = f"heartbeats were late, for {_CAUSE}"
_TOO_LATE: Final = f"the coordinator may have dropped the member, for {_CAUSE}"


@define(eq=False)
class LateThread:
    """Measures the delays of one thread, and warns at most once a minute for each kind of delay.

    Attributes:
        looked_at_s: when the thread ran last.
    """

    session_timeout_ms: int
    warn: Callable[..., None]
    looked_at_s: float = field(default=0.0, init=False)
    # Keyed by whether the session may have ended: end of the quiet time, and warnings left out in
    # it.
    _quiet_until_s: dict[bool, float] = field(factory=dict, init=False)
    _left_out: dict[bool, int] = field(factory=dict, init=False)

    def look(self, due_s: float) -> None:
        """Warn if the thread runs now and was due much earlier."""
        at_s = self.looked_at_s = now_s()
        late_s = at_s - due_s
        session_s = self.session_timeout_ms / 1000
        if late_s < max(_LATE_S_MIN, session_s * _SHARE_OF_SESSION):
            return
        may_have_ended = late_s >= session_s
        if at_s < self._quiet_until_s.get(may_have_ended, at_s):
            self._left_out[may_have_ended] = self._left_out.get(may_have_ended, 0) + 1
            return
        self._quiet_until_s[may_have_ended] = at_s + _QUIET_S
        late_ms, session_ms = round(late_s * 1000), self.session_timeout_ms
        why = _TOO_LATE if may_have_ended else _LATE
        more = self._left_out.pop(may_have_ended, 0)
        self.warn(
            "group_thread_late", late_ms=late_ms, session_ms=session_ms, why=why, left_out=more
        )
