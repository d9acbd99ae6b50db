"""Claims that members do not give up in time.

A leader told a member to stop resources, and the member still claims them after the leader's
`max.poll.interval.ms`. The leader reports it once. A member that owned the resources may still be
working, so the group waits for it: a second owner would do more harm than the wait. If the member
was never known to own them, the claim lapses later. Then the leader starts a round, in which the
claim does not count (`coopgroup.core.leader.belief`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.core.member.effects import Report
from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.member.transitions import SETTLED
from coopgroup.core.model.replacing import replaced
from coopgroup.core.session.own_rounds import own_round_stands
from coopgroup.core.telemetry.causes import Cause
from coopgroup.core.telemetry.records import ClaimRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.core.policies.memory import Given, Revoked
    from coopgroup.core.session.state import Session

__all__ = ["claims_deadline_ms", "due_claims", "overdue_claims"]


def overdue_claims(session: Session, now_ms: int) -> tuple[ClaimRefused, ...]:
    """Return the claims that are overdue now, if this member leads."""
    timeout_ms, revoked = session.member.config.rebalance_timeout_ms, _revoked(session)
    return tuple(
        _told(given, one, now_ms) for given, one in revoked if one.since_ms + timeout_ms <= now_ms
    )


def claims_deadline_ms(session: Session) -> int | None:
    """Return when claims that were not reported become overdue, or lapse, in ms; None for never."""
    return min((due_ms for due_ms, _ in _due(session)), default=None)


def due_claims(
    session: Session, now_ms: int
) -> tuple[Session, tuple[Report, ...], RejoinRequested | None]:
    """Return the reports of overdue claims, and the request for a round if a claim lapses."""
    late = [claim for due_ms, claim in _due(session) if due_ms <= now_ms]
    if not late:
        return session, (), None
    reports = tuple(Report(record=_told(given, one, now_ms)) for given, one in filter(None, late))
    asks = RejoinRequested(reason=Cause.CLAIM_NOT_GIVEN_UP) if None in late else None
    return replaced(session, overdue_told_ms=now_ms), reports, asks


def _due(session: Session) -> Iterator[tuple[int, tuple[Given, Revoked] | None]]:
    """Yield when each claim is to be reported, and when it lapses (None), if neither was done."""
    told_ms, timeout_ms = session.overdue_told_ms, session.member.config.rebalance_timeout_ms
    if session.member.state not in SETTLED:
        return
    for given, one in _revoked(session):
        lapses_ms = one.lapses_at_ms(timeout_ms)
        for due_ms, claim in ((one.since_ms + timeout_ms, (given, one)), (lapses_ms, None)):
            if due_ms is not None and (told_ms is None or due_ms > told_ms):
                yield due_ms, claim


def _told(given: Given, revoked: Revoked, now_ms: int) -> ClaimRefused:
    return ClaimRefused(
        member_id=given.member_id,
        count=len(revoked.resources),
        reason="not given up",
        waited_ms=now_ms - revoked.since_ms,
    )


def _revoked(session: Session) -> Sequence[tuple[Given, Revoked]]:
    """Return what members had to stop in the last round."""
    state = session.policy_state
    return () if state is None or not own_round_stands(session) else state.told_to_stop
