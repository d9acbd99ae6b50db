"""Giving up what the application has stopped.

Two rules of this file:

- The join that gives something up is sent when the commits of it have ended. Another member may
  be given it in that very round and reads its committed offset then; what would be committed later
  is work done twice. Only commits that were asked for before the application reported are waited
  for, so it cannot keep the resource by asking for more.
- Each resource counts alone. One that is slow to stop, or whose commit is slow, holds back no
  other: the member joins a little after some have stopped, or when a round is wanted, and still
  claims the rest (`Turn.rejoin_soon`). What is given up while such a join is under way was claimed
  by it, so one more round must follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.member.commits import await_commits, awaited_of
from coopgroup.member.effects import RevokeResources
from coopgroup.member.transitions import MemberState, Trigger
from coopgroup.model import ResourceSet

if TYPE_CHECKING:
    from coopgroup.member.member import Member
    from coopgroup.member.turn import Turn

__all__ = ["give_up_stopped", "take_stopped", "yield_to_others"]

_CAUSE = "revocation completed"


def take_stopped(turn: Turn, resources: ResourceSet) -> None:
    """Take the word of the application that it has stopped resources.

    What stopped stays in `owned` and `stopped`, so that a commit of it may be tried again. What
    was not to be stopped is passed over: it was lost or given up before the word came.

    Raises:
        LocalProtocolError: the member is in no group in which it could hold something.
    """
    turn.move(Trigger.STOPPED, _CAUSE)
    member = turn.member
    stopped = resources & member.revoking
    if not stopped:
        return
    turn.set(
        revoking=member.revoking - stopped,
        stopped=member.stopped | stopped,
        commits=await_commits(member.commits, stopped),
    )
    if turn.member.revoking and member.state is MemberState.REVOKING:
        turn.rejoin_soon(more_stopped=True)


def yield_to_others(turn: Turn, resources: ResourceSet, cause: str) -> None:
    """Stop resources and join only then: others speak a protocol that may give them away.

    What is being stopped already goes on being stopped; the application is told of the rest.
    """
    member = turn.member
    stopping = resources - member.revoking - member.stopped
    turn.set(revoking=member.revoking | stopping, rejoin_at_ms=None, yields=True)
    turn.move(Trigger.GIVE_UP_ALL, cause)
    if stopping:
        turn.emit(RevokeResources(resources=stopping))


def give_up_stopped(turn: Turn, before: Member) -> None:
    """Give up what is stopped once its commits have ended; join when nothing is left to stop.

    Args:
        turn: the step.
        before: the member before the step. Which commits are waited for is looked at only where
            that may have changed: the queue may be long.
    """
    member = turn.member
    if not member.stopped or (
        member.stopped is before.stopped and member.commits.awaited is before.commits.awaited
    ):
        return
    given_up = member.stopped - ResourceSet.from_pairs(awaited_of(member.commits))
    if not given_up:
        return
    turn.set(
        owned=member.owned - given_up,
        stopped=member.stopped - given_up,
        rejoin_reason=member.rejoin_reason or _CAUSE,
    )
    if member.state is not MemberState.REVOKING:
        return
    if turn.member.revoking or turn.member.stopped:
        turn.rejoin_soon()
    else:
        turn.set(rejoin_at_ms=None)
        turn.move(Trigger.REVOKED, _CAUSE)
