"""Claims that members do not give up in time.

A leader told a member to stop resources, and the member still claims them after the leader's
`max.poll.interval.ms`. The leader reports it once. A member that owned the resources may still be
working, so the group waits for it: a second owner would do more harm than the wait. If the member
was never known to own them, the leader starts a round, in which the claim does not count
(`coopgroup.core.leader.belief`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.core.member.effects import Report
from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.member.transitions import SETTLED
from coopgroup.core.model.replacing import replaced
from coopgroup.core.session.own_rounds import own_round_stands
from coopgroup.core.telemetry.records import ClaimRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.core.policies.memory import Given, Revoked
    from coopgroup.core.session.state import Session

__all__ = ["claims_deadline_ms", "due_claims", "overdue_claims"]


def overdue_claims(session: Session, now_ms: int) -> tuple[ClaimRefused, ...]:
    """Return the claims that are overdue now, if this member leads."""
    revoked = _revoked(session)
    return tuple(_told(given, one, now_ms) for given, one, due_ms in revoked if due_ms <= now_ms)


def claims_deadline_ms(session: Session) -> int | None:
    """Return when claims become overdue that were not reported yet, in ms; None for never."""
    return min((due_ms for _, _, due_ms in _unreported(session)), default=None)


def due_claims(
    session: Session, now_ms: int
) -> tuple[Session, tuple[Report, ...], RejoinRequested | None]:
    """Return the reports of claims that are overdue now, and the request for a round if needed."""
    late = [(given, one) for given, one, due_ms in _unreported(session) if due_ms <= now_ms]
    if not late:
        return session, (), None
    reports = tuple(Report(record=_told(given, one, now_ms)) for given, one in late)
    asks = RejoinRequested(reason="a claim was not given up")
    is_false = not all(one.is_owner for _, one in late)
    return replaced(session, overdue_told_ms=now_ms), reports, asks if is_false else None


def _unreported(session: Session) -> list[tuple[Given, Revoked, int]]:
    told_ms = session.overdue_told_ms
    if session.member.state not in SETTLED:
        return []
    return [one for one in _revoked(session) if told_ms is None or one[-1] > told_ms]


def _told(given: Given, revoked: Revoked, now_ms: int) -> ClaimRefused:
    return ClaimRefused(
        member_id=given.member_id,
        count=len(revoked.resources),
        reason="not given up",
        waited_ms=now_ms - revoked.since_ms,
    )


def _revoked(session: Session) -> Iterator[tuple[Given, Revoked, int]]:
    """Yield what members had to stop in the last round, and when it is overdue."""
    state = session.policy_state
    if state is not None and own_round_stands(session):
        timeout_ms = session.member.config.rebalance_timeout_ms
        for given, one in state.told_to_stop:
            yield given, one, one.since_ms + timeout_ms
