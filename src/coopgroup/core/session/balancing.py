"""A leader's lag checks between rounds, and the round that it starts if lags stay uneven.

Theory of operation. A round with a `BalanceRule` in its policy and an assignor that reads lags
leaves a `LagWatch` in the session. When a check is due, and the member leads a settled group, the
session asks its host for it (`CheckLags`). The host looks up the lags and passes them to
`check_lags` of `coopgroup.core.leader`, where that delays nothing else. The result (`LagsChecked`)
is an event.

If lags were uneven for a long time, the check decides the round that would start now. It uses the
function of a real round, and throws the plan away. A round starts only if this plan has moves.

A failed or slow check counts for nothing. A result is void after another round, or after the member
has stopped leading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from coopgroup.core.member import MemberState
from coopgroup.core.member.effects import Report
from coopgroup.core.member.events import RejoinRequested, Woken
from coopgroup.core.model.replacing import replaced
from coopgroup.core.session.deciding import LeaderContext
from coopgroup.core.session.own_rounds import own_round_stands
from coopgroup.core.telemetry.causes import Cause

if TYPE_CHECKING:
    from coopgroup.core.model import ResourceSet
    from coopgroup.core.model.resource_set import Int64Array
    from coopgroup.core.session.state import LagWatch, Session
    from coopgroup.core.telemetry.records import BalanceRequested


@frozen(kw_only=True, eq=False)
class CheckLags:
    """Effect: look up the lags and pass them to `check_lags`, off the loop.

    Attributes:
        number: distinct number, returned by `check_lags`.
        watch: the leader's memory of checks.
        context: circumstances of a round that would start now because of lags.
    """

    number: int
    watch: LagWatch
    context: LeaderContext

    @property
    def resources(self) -> ResourceSet:
        """The resources whose lags are needed."""
        group = self.watch.group
        return group.resources.take(group.assignable)


@frozen(kw_only=True, eq=False)
class LagsChecked:
    """Event: the lags were checked.

    Attributes:
        number: number of the `CheckLags`.
        looks: see `LagWatch`.
        lags: see `LagWatch`.
        request: why a round should start; None for no round.
    """

    number: int
    looks: tuple[tuple[str, int], ...]
    lags: Int64Array | None = None
    request: BalanceRequested | None = None


def next_watch(before: LagWatch | None, after: LagWatch | None, now_ms: int) -> LagWatch | None:
    """Return the memory after another round.

    If a resource moved, or if the round was started for balance, counting restarts: earlier checks
    say nothing about the present. After a balancing round, wait one cool-down, so that its effect
    shows in the lags.

    Args:
        before: memory so far, or None.
        after: memory from the round, or None.
        now_ms: the host's monotonic clock.
    """
    if after is None:
        return None
    due_ms = now_ms + (after.rule.cooldown_ms if after.asked else after.rule.interval_ms)
    if before is None:
        return attrs.evolve(after, due_ms=due_ms)
    number = before.number + 1  # voids an answer that is still to come
    if after.moved or after.asked:
        return attrs.evolve(after, due_ms=max(due_ms, before.due_ms), number=number)
    after = attrs.evolve(after, due_ms=before.due_ms, number=number)
    if after.group.resources == before.group.resources:
        after = attrs.evolve(after, looks=before.looks, lags=before.lags)
    return after


def look_deadline_ms(session: Session) -> int | None:
    """Return when the next lag check is due, in ms; None while this member does not check.

    Only the leader checks, while its own round stands and no round is under way.
    """
    watch, member = session.watch, session.member
    if watch is None or session.asks_balance or member.state is not MemberState.STABLE:
        return None
    return watch.due_ms if own_round_stands(session) else None


def due_check(session: Session, now_ms: int) -> tuple[Session, tuple[CheckLags, ...]]:
    """Request a due check; while a resource waits or moves, postpone it and restart counting."""
    due_ms = look_deadline_ms(session)
    watch, state = session.watch, session.policy_state
    if watch is None or state is None or due_ms is None or now_ms < due_ms:
        return session, ()
    at_rest, member = state.is_at_rest(now_ms), session.member
    watch = attrs.evolve(
        watch,
        due_ms=now_ms + watch.rule.interval_ms,
        number=watch.number + 1,
        looks=watch.looks if at_rest else (),
    )
    session = replaced(session, watch=watch)
    context = LeaderContext(
        leader_id=member.member_id,
        generation=member.generation,
        now_ms=now_ms,
        state=state,
        balance=True,
    )
    duty = CheckLags(number=watch.number, watch=watch, context=context)
    return session, (duty,) if at_rest else ()


def with_result(
    session: Session, event: LagsChecked
) -> tuple[Session, RejoinRequested | Woken, tuple[Report, ...]]:
    """Process the result of a check, unless it is void; return the resulting event."""
    watch = session.watch
    if watch is None or event.number != watch.number or look_deadline_ms(session) is None:
        return session, Woken(), ()
    session = replaced(session, watch=attrs.evolve(watch, looks=event.looks, lags=event.lags))
    if event.request is None:
        return session, Woken(), ()
    session = replaced(session, asks_balance=True)
    return session, RejoinRequested(reason=Cause.LAGS_UNEVEN), (Report(record=event.request),)
