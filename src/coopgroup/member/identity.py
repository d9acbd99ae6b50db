"""Coming back as the same member: what is kept beyond the end of a process, and what it is worth.

The rule of this file: an identity is kept only of a round that was completed, with the topics of
that round. So the group either still stands where it was kept, and then stores the assignment of
the member, or it says that it does not: the identity can be too old, never too new.

A member that comes back asks first whether the group still stands there, with a heartbeat. Its
answer also begins the session anew, which a sync in a settled generation does not. Then it takes
the stored assignment without a round, as a static member does (KIP-345), leader or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.member.effects import KeepIdentity
from coopgroup.member.kept_identity import KeptIdentity
from coopgroup.member.protocols import spoken
from coopgroup.member.transitions import Trigger

if TYPE_CHECKING:
    from coopgroup.member.turn import Turn

__all__ = ["come_back", "keep_identity"]


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
