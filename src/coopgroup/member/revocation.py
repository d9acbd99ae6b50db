"""Giving up what the application has stopped.

The rule of this file: the join that gives something up is sent when the commits of it have ended.
Another member may be given it in that very round and reads its committed offset then; what would
be committed later is work done twice. Only commits that were asked for before the application
reported are waited for, so it cannot keep the group waiting by asking for more, and the rebalance
time-out bounds the wait as it bounds the callback before it (`Member.hold_until_ms`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.member.commits import await_commits
from coopgroup.member.transitions import MemberState, Trigger
from coopgroup.model import EMPTY

if TYPE_CHECKING:
    from coopgroup.member.turn import Turn
    from coopgroup.model import ResourceSet

__all__ = ["give_up_stopped", "take_stopped"]

_CAUSE = "revocation completed"


def take_stopped(turn: Turn, resources: ResourceSet) -> None:
    """Take the word of the application that it has stopped resources.

    It stays in `owned` and `stopped`, so that a commit of it may be tried again.

    Raises:
        LocalProtocolError: nothing was to be stopped.
    """
    turn.move(Trigger.STOPPED, _CAUSE)
    member = turn.member
    stopped = resources & member.revoking
    turn.set(
        revoking=member.revoking - stopped,
        stopped=member.stopped | stopped,
        commits=await_commits(member.commits, stopped),
    )


def give_up_stopped(turn: Turn) -> None:
    """Give up what is stopped once its commits have ended; join when nothing is left to stop."""
    member = turn.member
    if not member.stopped or member.commits.awaited:
        return
    turn.set(owned=member.owned - member.stopped, stopped=EMPTY)
    if member.state is MemberState.REVOKING and not member.revoking:
        turn.set(rejoin_reason=member.rejoin_reason or _CAUSE)
        turn.move(Trigger.REVOKED, _CAUSE)
