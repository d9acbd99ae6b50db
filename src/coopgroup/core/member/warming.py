"""The member's side of warm-ups (KIP-441): its warm set, and the warm-ups that its leader assigns.

Rules of this file:

- The leader's assignment names all warm-ups of the member. So the member compares that set with
  what its application was told, as with `assigned`. A round that a member missed leaves nothing
  behind.
- The warm set has three sources: finished warm-ups, state that the application found before it
  subscribed, and revoked resources whose state the member keeps.
- The leader learns from the next join that a member became warm, or that its application refused
  a warm-up. The member rejoins for this, but never earlier than one heartbeat interval after its
  last join. Every round tells what all members
  are warm for, so the whole group has at most one such round in an interval.

A member whose application takes no part has no `Warmups`. All functions here then do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from coopgroup.core.member.effects import BeginWarmups, CancelWarmups, Report
from coopgroup.core.member.events import WarmedUp, WarmSetDeclared, WarmupFailed
from coopgroup.core.member.parts import Warmups
from coopgroup.core.member.transitions import AT_WORK
from coopgroup.core.model import EMPTY
from coopgroup.core.telemetry.causes import Cause
from coopgroup.core.telemetry.records import WarmupsChanged

if TYPE_CHECKING:
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn
    from coopgroup.core.model import ResourceSet
    from coopgroup.core.protocol.values import Assignment


def take_report(turn: Turn, event: WarmSetDeclared | WarmedUp | WarmupFailed) -> None:
    """Accept a report of the application about its state."""
    match event:
        case WarmSetDeclared():
            _declare(turn, event.warm)
        case WarmedUp():
            _take_warm(turn, event.resources)
        case WarmupFailed():
            _take_failed(turn, event.resources, event.error)


def _declare(turn: Turn, warm: ResourceSet | None) -> None:
    """Accept the resources whose state the application found; None if it takes no part."""
    member = turn.member
    before = member.next_join.warmups
    if warm is None:
        if before is None:
            return
        _end(turn, before.begun | before.warm, tells=True)
    else:
        known = Warmups() if before is None else before
        found = warm - member.owned - known.warm
        if before is not None and not found:
            return
        _replace(turn, known, warm=known.warm | found)
        if found:
            turn.emit(Report(record=WarmupsChanged(warm=found)))
    if member.state in AT_WORK:
        turn.set(rejoin_reason=Cause.WARM_DECLARED)


def forget_warmups(turn: Turn) -> None:
    """End all warm-ups, because the member leaves; its state may stay on disk."""
    warmups = turn.member.next_join.warmups
    if warmups is not None:
        _end(turn, warmups.begun | warmups.warm, tells=False)


def take_warmups(turn: Turn, assignment: Assignment, gained: ResourceSet) -> None:
    """Begin and cancel warm-ups as an assignment says.

    Args:
        turn: the step, after the member took the assigned resources.
        assignment: names all warm-ups.
        gained: resources that the member did not own before.
    """
    member = turn.member
    before = member.next_join.warmups
    if before is None:
        return
    wanted = assignment.warmups - assignment.assigned
    known = before.begun | before.warm
    moved = known & gained
    cancelled = known - wanted - gained
    failed = before.failed & wanted
    # Resources that must stop first begin when they have stopped. If the member has lost such a
    # resource, its leader does not know yet that the state is cold: the next round decides anew.
    stops = assignment.revoked or EMPTY
    begin = wanted - before.begun - member.owned - stops - failed
    _replace(
        turn,
        before,
        wanted=wanted,
        begun=(before.begun & wanted) | begin,
        warm=before.warm & wanted,
        failed=failed,
        is_new=False,
    )
    if moved or cancelled or begin:
        record = WarmupsChanged(begun=begin, moved=moved, cancelled=cancelled)
        turn.emit(Report(record=record))
    if cancelled:
        turn.emit(CancelWarmups(resources=cancelled))
    if begin:
        turn.emit(BeginWarmups(resources=begin))
    if before.is_new and wanted and _may_return(member):
        _rejoin_later(turn, Cause.BECAME_WARM)


def keep_warm(turn: Turn, given_up: ResourceSet) -> None:
    """Stay warm for resources that the member gave up and is to keep warm.

    The join that gives them up tells it, so that the leader need not count them as cold.
    """
    before = turn.member.next_join.warmups
    if before is None:
        return
    kept = (given_up & before.wanted) - before.failed
    if not kept:
        return
    _replace(turn, before, begun=before.begun | kept, warm=before.warm | kept)
    turn.emit(Report(record=WarmupsChanged(begun=kept, warm=kept)))
    turn.emit(BeginWarmups(resources=kept))


def _take_warm(turn: Turn, resources: ResourceSet) -> None:
    """Accept the application's word that it is warm; the next round tells the leader."""
    before = turn.member.next_join.warmups
    if before is None:
        return
    fresh = (resources & before.begun) - before.warm
    if not fresh:
        return
    _replace(turn, before, warm=before.warm | fresh)
    turn.emit(Report(record=WarmupsChanged(warm=fresh)))
    _rejoin_later(turn, Cause.BECAME_WARM)


def _take_failed(turn: Turn, resources: ResourceSet, error: str) -> None:
    """Accept that the application cannot warm up resources: the member is cold for them.

    The next join tells it, so that the leader chooses another resource or member at once.
    """
    before = turn.member.next_join.warmups
    if before is None:
        return
    failed = (resources & before.wanted) - before.failed
    if not failed:
        return
    _replace(
        turn,
        before,
        begun=before.begun - failed,
        warm=before.warm - failed,
        failed=before.failed | failed,
    )
    turn.emit(Report(record=WarmupsChanged(failed=failed, error=error)))
    _rejoin_later(turn, Cause.DECLINED_WARMUP)


def told_warm(turn: Turn) -> None:
    """Cancel the rejoin for warm-ups, because a join tells them now."""
    warmups = turn.member.next_join.warmups
    if warmups is not None and warmups.rejoin_at_ms is not None:
        _replace(turn, warmups, rejoin_at_ms=None, rejoin_reason="")


def warm_reason(turn: Turn) -> str:
    """Return why a round is due for warm-ups; "" if none is."""
    warmups = turn.member.next_join.warmups
    if warmups is None or warmups.rejoin_at_ms is None or turn.now_ms < warmups.rejoin_at_ms:
        return ""
    return warmups.rejoin_reason


def _rejoin_later(turn: Turn, reason: str) -> None:
    """Schedule a rejoin. More resources may become warm until then, and the pace is limited."""
    member = turn.member
    warmups = member.next_join.warmups
    if warmups is None or warmups.rejoin_at_ms is not None:
        return
    config = member.config
    soon_ms = turn.now_ms + config.revocation_grace_ms
    paced_ms = member.last_join.sent_at_ms + config.heartbeat_interval_ms
    due_ms = max(soon_ms, paced_ms)
    _replace(turn, warmups, rejoin_at_ms=due_ms, rejoin_reason=reason)


def _may_return(member: Member) -> bool:
    """Return whether the coordinator may give the member a stored assignment, without a round.

    The leader then knows only what the member's earlier process was warm for.
    """
    return member.config.instance_id is not None or member.config.keeps_identity


def _end(turn: Turn, resources: ResourceSet, *, tells: bool) -> None:
    turn.set(next_join=attrs.evolve(turn.member.next_join, warmups=None))
    if resources:
        turn.emit(Report(record=WarmupsChanged(cancelled=resources)))
        if tells:
            turn.emit(CancelWarmups(resources=resources))


def _replace(turn: Turn, before: Warmups, **changes: Any) -> None:  # noqa: ANN401 - attrs checks
    after = attrs.evolve(before, **changes)
    turn.set(next_join=attrs.evolve(turn.member.next_join, warmups=after))
