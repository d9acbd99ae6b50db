"""Return as the same member: the identity that outlives a process, and its validity.

An identity is stored only after a completed round, with the topics of that round. Later, either the
group is still in that generation and stores the member's assignment, or it says that it is not. The
identity can be too old, never too new.

A returning member first sends a heartbeat, to ask whether its generation still exists. The answer
also restarts the session, which a sync in a settled generation does not. Then the member takes the
stored assignment without a round, as a static member does (KIP-345), leader or not.

A static member returns with its static id. Its own earlier process must not fence it. That happens
if the coordinator is lost before the new member id is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from coopgroup.core.member.effects import KeepIdentity, KeptIdentity, SelfReport
from coopgroup.core.member.error_actions import Action, RequestKind
from coopgroup.core.member.parts import IdStanding, LastJoin, Round
from coopgroup.core.member.protocols import spoken
from coopgroup.core.member.transitions import Trigger
from coopgroup.core.telemetry.causes import Cause

if TYPE_CHECKING:
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn


def keep_identity(turn: Turn) -> None:
    """Store the member's identity after a completed round, if the settings ask for it."""
    member = turn.member
    if not member.config.keeps_identity or member.config.instance_id is not None:
        return
    own = member.config.protocol_name
    identity = KeptIdentity(
        member_id=member.member_id,
        generation=member.generation,
        topics=member.last_join.topics,
        protocol="" if member.round.protocol == own else member.round.protocol,
        report=member.last_join.report,
    )
    turn.set(identity=attrs.evolve(member.identity, kept=identity))
    turn.emit(KeepIdentity(identity=identity))


def come_back(turn: Turn, kept: KeptIdentity) -> None:
    """Subscribe as the earlier member.

    With other topics the stored assignment is useless, so the member joins with its id. It also
    joins if it may no longer speak the group's protocol.

    The leader assigns by the last join of the earlier process. A round follows the stored
    assignment if that join told another rack or other traits, or if either process declines
    resources. Leaders of Kafka's protocols read only the rack.
    """
    lease = attrs.evolve(turn.member.lease, generation=kept.generation)
    turn.set(member_id=kept.member_id, lease=lease)
    protocol = kept.protocol or turn.member.config.protocol_name
    if kept.topics != turn.member.next_join.topics or protocol not in spoken(turn.member.config):
        turn.move(Trigger.SUBSCRIBED, Cause.SUBSCRIPTION_CHANGED)
        return
    turn.set(
        generation=kept.generation,
        last_join=LastJoin(topics=kept.topics, report=kept.report),
        round=Round(protocol=protocol),
        heartbeat_at_ms=turn.now_ms,
    )
    told, now = kept.report, report_of(turn.member)
    if told.rack != now.rack or (not kept.protocol and (told.declines or told != now)):
        turn.set(rejoin_reason=Cause.RETURNED_CHANGED)
    turn.move(Trigger.RETURN, Cause.IDENTITY_KEPT)


def report_of(member: Member) -> SelfReport:
    """Return what a join would tell of the process now."""
    config, declined = member.config, member.next_join.declined
    return SelfReport(rack=config.rack, traits=config.traits, declines=bool(declined))


def unless_forgotten(turn: Turn, action: Action) -> Action:
    """Return the action, or a new join if a fenced member's id was perhaps never stored.

    Such a member holds no resources, because the round in which it got the id never ended for it.
    """
    if action is Action.FENCED and turn.member.identity.standing is IdStanding.DOUBTFUL:
        return Action.LOSE_ID
    return action


def doubt_id(turn: Turn, lost: RequestKind) -> None:
    """Note that the coordinator may forget a static member's id, or give the member another id."""
    member = turn.member
    is_given = member.identity.standing is IdStanding.GIVEN
    joined_without = lost is RequestKind.JOIN_GROUP and not member.member_id
    if member.config.instance_id is not None and (is_given or joined_without):
        turn.note_id(IdStanding.DOUBTFUL)
