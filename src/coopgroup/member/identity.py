"""Coming back as the same member: what is kept beyond the end of a process, and what it is worth.

The rule of this file: an identity is kept only of a round that was completed, with the topics of
that round. So the group either still stands where it was kept, and then stores the assignment of
the member, or it says that it does not: the identity can be too old, never too new.

A member that comes back asks first whether the group still stands there, with a heartbeat. Its
answer also begins the session anew, which a sync in a settled generation does not. Then it takes
the stored assignment without a round, as a static member does (KIP-345), leader or not.

A static member comes back by its static id. It must not be fenced by its own earlier life, which
happens if the coordinator is lost before the new member id is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.member.effects import KeepIdentity
from coopgroup.member.error_actions import Action, RequestKind
from coopgroup.member.kept_identity import KeptIdentity
from coopgroup.member.member import IdStanding
from coopgroup.member.protocols import spoken
from coopgroup.member.transitions import Trigger

if TYPE_CHECKING:
    from coopgroup.member.turn import Turn

__all__ = ["come_back", "doubt_id", "keep_identity", "unless_forgotten"]


def keep_identity(turn: Turn) -> None:
    """Keep who the member is after a round that it completed, where that is wanted."""
    member = turn.member
    if not member.config.keeps_identity or member.config.instance_id is not None:
        return
    own = member.config.protocol_name
    identity = KeptIdentity(
        member_id=member.member_id,
        generation=member.generation,
        topics=member.joined_topics,
        protocol="" if member.protocol_chosen == own else member.protocol_chosen,
    )
    turn.set(identity=identity)
    turn.emit(KeepIdentity(identity=identity))


def come_back(turn: Turn, kept: KeptIdentity) -> None:
    """Subscribe as the member that it was.

    With other topics the stored assignment is worth nothing: the member joins, under its id. So it
    does when it is not to speak the group's protocol any more.
    """
    turn.set(member_id=kept.member_id)
    protocol = kept.protocol or turn.member.config.protocol_name
    if kept.topics != turn.member.topics or protocol not in spoken(turn.member.config):
        turn.move(Trigger.SUBSCRIBED, "subscription changed")
        return
    turn.set(
        generation=kept.generation,
        joined_topics=kept.topics,
        protocol_chosen=protocol,
        heartbeat_at_ms=turn.now_ms,
    )
    turn.move(Trigger.RETURN, "identity kept")


def unless_forgotten(turn: Turn, action: Action) -> Action:
    """Return the action, or a new join if a fenced member's id was perhaps never stored.

    Such a member holds nothing, as the round in which it got the id never ended for it.
    """
    if action is Action.FENCED and turn.member.id_standing is IdStanding.DOUBTFUL:
        return Action.LOSE_ID
    return action


def doubt_id(turn: Turn, lost: RequestKind) -> None:
    """Note that the coordinator may forget the id of a static member, or give it another one."""
    member = turn.member
    is_given = member.id_standing is IdStanding.GIVEN
    joined_without = lost is RequestKind.JOIN_GROUP and not member.member_id
    if member.config.instance_id is not None and (is_given or joined_without):
        turn.set(id_standing=IdStanding.DOUBTFUL)
