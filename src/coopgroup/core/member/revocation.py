"""Giving up the resources that the application has stopped.

Two rules of this file:

- The join that gives a resource up waits until its commits have ended. That round may assign the
  resource to another member, which then reads the committed offset. A later commit would mean that
  records are processed twice. Only commits that were requested before the application reported are
  awaited, so the application cannot keep the resource by requesting more.
- Each resource counts alone. A resource that is slow to stop, or whose commit is slow, delays no
  other resource. The member joins a little after some have stopped, or when a round is wanted, and
  still claims the rest (`Turn.rejoin_soon`). That join may claim resources that are given up while
  it is under way, so one more round must follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from coopgroup.core.member.commits import await_commits, awaited_of
from coopgroup.core.member.effects import RevokeResources
from coopgroup.core.member.protocols import in_the_way, offers_more, spoken
from coopgroup.core.member.transitions import MemberState, Trigger
from coopgroup.core.member.warming import keep_warm
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.replacing import replaced
from coopgroup.core.telemetry.causes import Cause

if TYPE_CHECKING:
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn


def take_stopped(turn: Turn, resources: ResourceSet) -> None:
    """Accept the application's report that it has stopped resources."""
    stopped = note_stopped(turn, resources)
    if stopped and turn.member.revocation.pending and turn.member.state is MemberState.REVOKING:
        turn.rejoin_soon(more_stopped=True)


def note_stopped(turn: Turn, resources: ResourceSet) -> ResourceSet:
    """Note the resources that the application has stopped, and return those that it had to stop.

    Stopped resources stay in `owned` and `stopped`, so that their commits may be tried again. Other
    resources in the report are ignored: they were lost or given up before the report arrived. So a
    report may come in any state, also while the member leaves.
    """
    member = turn.member
    before = member.revocation
    stopped = resources & before.pending
    if stopped:
        revocation = attrs.evolve(
            before, pending=before.pending - stopped, stopped=before.stopped | stopped
        )
        turn.set(revocation=revocation, commits=await_commits(member.commits, stopped))
    return stopped


def make_way(turn: Turn, code: int, cause: str) -> None:
    """Stop the resources that prevent the member from offering more protocols, and join with them.

    The other members speak a protocol whose leaders may give these resources away. The application
    may have stopped them while the refused join was under way. The member then joins again, because
    failing would end a membership that the group accepts.

    Commits no longer wait for the sync of a round, because a refused join begins none. The
    application may wait for such a commit before it stops, and the join waits for both.
    """
    if offers_more(turn.member):
        turn.rejoin(cause)
        return
    member = turn.member
    resources = in_the_way(member)
    if not resources:
        known = ", ".join(spoken(member.config))
        turn.fail(code, f"{cause}: the group has members that know none of {known}")
        return
    before = member.revocation
    stopping = resources - before.pending - before.stopped
    turn.set(
        commits=replaced(member.commits, await_sync=False),
        revocation=before.with_more(stopping, yields=True),
    )
    turn.move(Trigger.GIVE_UP_ALL, cause)
    if stopping:
        turn.emit(RevokeResources(resources=stopping))


def give_up_stopped(turn: Turn, before: Member) -> None:
    """Give up stopped resources when their commits have ended; join when none is left to stop.

    Args:
        turn: the step.
        before: the member before the step.
    """
    given_up = give_up_committed(turn, before)
    if not given_up:
        return
    turn.set(rejoin_reason=turn.member.rejoin_reason or Cause.REVOKED)
    keep_warm(turn, given_up)
    if turn.member.state is not MemberState.REVOKING:
        return
    if turn.member.revocation.is_under_way:
        turn.rejoin_soon()
    else:
        turn.wait_for_revocations()
        turn.move(Trigger.REVOKED, Cause.REVOKED)


def give_up_committed(turn: Turn, before: Member) -> ResourceSet:
    """Give up stopped resources whose commits have ended, and return them.

    Args:
        turn: the step.
        before: the member before the step. The queue may be long, so the awaited commits are
            checked only if they may have changed.
    """
    member = turn.member
    stopped = member.revocation.stopped
    if not stopped or (
        stopped is before.revocation.stopped and member.commits.awaited is before.commits.awaited
    ):
        return EMPTY
    given_up = stopped - ResourceSet.from_pairs(awaited_of(member.commits))
    if given_up:
        revocation = attrs.evolve(member.revocation, stopped=stopped - given_up)
        turn.set(owned=member.owned - given_up, revocation=revocation)
    return given_up
