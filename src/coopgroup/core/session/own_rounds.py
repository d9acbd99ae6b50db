"""Rounds that only the leader knows of, and what a leader whose process restarted must do.

A leader starts a round by itself when its policy's deadline has come, and some time after a round
that moved nothing. No other member would start them.

The coordinator keeps the round of a static member, or of a member with a kept identity, that
returns in time (KIP-814). The new process then leads a round that it did not decide. It must look
at the topics, which may have changed meanwhile, and start the round that the earlier process owed.
It also starts one if warm-ups may run, because only the earlier process knew of their time-outs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from coopgroup.core.member.events import Answered, RejoinRequested
from coopgroup.core.member.transitions import SETTLED
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JoinGroupAnswer
from coopgroup.core.model.replacing import replaced
from coopgroup.core.telemetry.causes import Cause

if TYPE_CHECKING:
    from coopgroup.core.member import Member
    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.core.session.state import OwedRound, Session

# Delay after a round that moved nothing: long enough not to spin, short enough not to be an outage.
# The delay doubles with each failure, because each try is a rebalance of the whole group.
_RETRY_AFTER_MS: Final = 1_000
_RETRY_AFTER_MS_MAX: Final = 30_000


@frozen(kw_only=True)
class SeenTopics:
    """Topics and partitions that a leader saw; one value, because both are of one look-up.

    Attributes:
        topics: names that the group subscribed to, ascending.
        partitions: the existing partitions of these topics.
    """

    topics: tuple[str, ...] = ()
    partitions: ResourceSet = EMPTY


@frozen(kw_only=True)
class LookOver:
    """Effect: look up the topics of a group that this member leads without having decided a round.

    `needs_round` of `coopgroup.core.leader` says whether the leader must start one.

    Attributes:
        members: members with encoded subscriptions; `read_members` returns their topics.
        shared_digest: `resources_digest` of the resources in the group's last round; None if
            unknown.
        has_digests: whether leaders of the group's protocol write that digest. Other protocols do
            not, and a round in them may stop all members.
    """

    members: tuple[JoinedMember, ...]
    shared_digest: int | None
    has_digests: bool


def join_answer_of(event: object) -> JoinGroupAnswer | None:
    """Return the answer to a join if the event is one."""
    if isinstance(event, Answered) and isinstance(event.answer, JoinGroupAnswer):
        return event.answer
    return None


def retry_at_ms(refusals: int, now_ms: int) -> int | None:
    """Return when to try again after refused rounds in a row, in ms; None after none."""
    if not refusals:
        return None
    return now_ms + min(_RETRY_AFTER_MS << min(refusals - 1, 10), _RETRY_AFTER_MS_MAX)


def policy_deadline_ms(session: Session) -> int | None:
    """Return when the policy wants the next round even if nothing happens, in ms; None for never.

    Valid only while this member's own round stands; another leader has its own deadline. The round
    is started once; the policy can ask again in that round.
    """
    state, member, owed = session.policy_state, session.member, session.owed
    if member.state not in SETTLED:
        return None
    due_ms = None
    if state is not None and own_round_stands(session):
        due_ms = state.next_round_ms
    elif owed is not None and _stands_there(member, owed):
        due_ms = owed.at_ms
    return None if due_ms == session.asked_for_ms else due_ms


def retry_deadline_ms(session: Session) -> int | None:
    """Return when a refused round is tried again, in ms; None for never.

    Until then resources that the round could not place have no owner.
    """
    if session.member.state not in SETTLED:
        return None
    return session.retry_at_ms if own_round_stands(session) else None


def due_round(session: Session, now_ms: int) -> tuple[Session, RejoinRequested | None]:
    """Return the request for a round that only this leader knows of, if it is due."""
    due_ms = policy_deadline_ms(session)
    if due_ms is not None and now_ms >= due_ms:
        asks = RejoinRequested(reason=Cause.POLICY_DEADLINE)
        return replaced(session, asked_for_ms=due_ms, retry_at_ms=None), asks
    due_ms = retry_deadline_ms(session)
    if due_ms is not None and now_ms >= due_ms:
        asks = RejoinRequested(reason=Cause.NOTHING_MOVED)
        return replaced(session, retry_at_ms=None), asks
    return session, None


def own_round_stands(session: Session) -> bool:
    """Return whether the last round of the group is one that this member decided."""
    member = session.member
    return member.round.leads and session.led_generation == member.claim_generation


def _stands_there(member: Member, owed: OwedRound) -> bool:
    return (member.member_id, member.claim_generation) == (owed.member_id, owed.generation)


def leads_undecided(answer: JoinGroupAnswer) -> bool:
    """Return whether a join made the member leader of a round that needs no decision."""
    return answer.skip_assignment and answer.leader_id == answer.member_id


def with_answer(session: Session, answer: JoinGroupAnswer) -> Session:
    """Remember a round that this member leads but did not decide (KIP-814)."""
    if not leads_undecided(answer):
        return replaced(session, returned=None)
    return replaced(session, leads_as=(answer.member_id, answer.generation), returned=answer)


def look_over(session: Session) -> tuple[Session, tuple[LookOver, ...]]:
    """Request the look at the topics when the assignment, which has a digest, is there."""
    answer, member = session.returned, session.member
    if answer is None or member.state not in SETTLED:
        return session, ()
    effect = LookOver(
        members=answer.members,
        shared_digest=member.last_assignment.shared_digest,
        has_digests=member.round.protocol == member.config.protocol_name,
    )
    return replaced(session, returned=None), (effect,)
