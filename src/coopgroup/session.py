"""`Session`: one member and its duty as a leader, still without clock, thread or socket.

The Kafka driver hosts sessions, a simulator can; no host knows more of the group protocol
than this module says. The host's duties, in this order:

1. Give every event to `step` with the monotonic time, and carry out the effects in order.
2. Wake the session (`Woken`) at `next_deadline_ms`; while `backing_off`, a little later by chance,
   so that a group does not come back in lockstep.
3. Answer every `Send` with exactly one `Answered` or `RequestFailed`.
4. For `LeadRound`, where it delays nobody and with a time limit: `read_members`, look up metadata
   and lags, `lead_round`, and give `RoundLed`; when the limit is over, `lead_round` without
   metadata. After a round that was refused (`RoundLed.led.refused`) give `RejoinRequested` a while
   later: what it could not place has no owner until then.
5. Run `GrantResources`, `RevokeResources` and `LoseResources` on the application's thread in the
   order given. A revocation is complete when the callback has returned and the offsets are
   committed; only then give `RevocationCompleted`, for the join that follows no longer claims the
   resources, and another member may have them at once.
6. Hand nothing out once `member.hold_until_ms` has passed, whatever the session has been told
   so far: after a pause of the process the clock knows it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs
from attrs import frozen

from coopgroup.leader import (
    NO_LAGS,
    Lags,
    LedRound,
    RoundRequest,
    TopicMetadata,
    fallback_round,
    lead,
)
from coopgroup.member import Member, MemberState, next_deadline_ms
from coopgroup.member import step as step_member
from coopgroup.member.effects import (
    CancelJoin,
    DecideRound,
    FailMember,
    FinishCommit,
    GrantResources,
    LoseResources,
    Report,
    RevokeResources,
    Send,
)
from coopgroup.member.events import Event as MemberEvent
from coopgroup.member.events import RoundDecided
from coopgroup.policies.base import RoundContext

if TYPE_CHECKING:
    from coopgroup.assignors.base import Assignor
    from coopgroup.model.group_api import JoinedMember
    from coopgroup.policies.base import Policy
    from coopgroup.policies.state import PolicyState

__all__ = [
    "LeadRound",
    "RoundLed",
    "Session",
    "SessionEffect",
    "SessionEvent",
    "backing_off",
    "lead_round",
    "session_deadline_ms",
    "step",
]


@frozen(kw_only=True)
class LeadRound:
    """Effect: decide a round, off the loop.

    Attributes:
        generation: of the round.
        members: all members, subscriptions still encoded; `read_members` decodes them and says
            which topics to look up.
        context: circumstances of the round.
    """

    generation: int
    members: tuple[JoinedMember, ...]
    context: RoundContext


@frozen(kw_only=True)
class RoundLed:
    """Event: a round that this member leads is decided.

    Attributes:
        generation: of the round.
        led: the decision.
    """

    generation: int
    led: LedRound


SessionEvent: TypeAlias = MemberEvent | RoundLed
SessionEffect: TypeAlias = (
    Send
    | CancelJoin
    | LeadRound
    | GrantResources
    | RevokeResources
    | LoseResources
    | FinishCommit
    | FailMember
    | Report
)


@frozen(kw_only=True)
class Session:
    """A member and what it remembers as a leader.

    Attributes:
        member: the member.
        policy_state: what the policy returned in the last round, None when this member did not
            lead it.
        led_generation: generation of the round in which `policy_state` was made, None for none.
    """

    member: Member
    policy_state: PolicyState | None = None
    led_generation: int | None = None


def step(
    session: Session, event: SessionEvent, *, now_ms: int
) -> tuple[Session, tuple[SessionEffect, ...]]:
    """Take one event; see `coopgroup.member.step`.

    Raises:
        LocalProtocolError: the event is not legal now; nothing has changed.
    """
    before: tuple[SessionEffect, ...] = ()
    if isinstance(event, RoundLed):
        led, generation = event.led, event.generation
        event = RoundDecided(generation=generation, assignments=led.assignments)
        if _leads(session.member, generation):  # else the round was over before it was decided
            before = tuple(Report(record=record) for record in led.records)
            session = attrs.evolve(session, policy_state=led.state, led_generation=generation)
    member, effects = step_member(session.member, event, now_ms=now_ms)
    session = _remember(attrs.evolve(session, member=member))
    return session, (*before, *(_translated(session, effect, now_ms) for effect in effects))


def session_deadline_ms(session: Session) -> int | None:
    """When the host must give `Woken` at the latest, in ms; None for never."""
    return next_deadline_ms(session.member)


def backing_off(session: Session) -> bool:
    """Whether the next deadline is that of another try, which the host spreads by chance."""
    return session.member.attempts > 0


def lead_round(
    duty: LeadRound,
    request: RoundRequest,
    metadata: TopicMetadata | None,
    lags: Lags | None,
    *,
    assignor: Assignor,
    policy: Policy,
    failure: str = "the metadata could not be looked up",
) -> RoundLed:
    """Decide a round. Pure, and as slow as the assignor is.

    Args:
        duty: the effect.
        request: its members, decoded by `read_members`.
        metadata: what exists of the subscribed names; None when that is not known, and the round
            then moves nothing.
        lags: figures for assignors that need them, None for none.
        assignor: says where.
        policy: says when.
        failure: why there is no metadata, for the record.
    """
    if metadata is None:
        led = fallback_round(
            request,
            None,
            assignor=assignor,
            policy=policy,
            context=duty.context,
            reason=failure,
        )
    else:
        led = lead(
            request,
            metadata,
            NO_LAGS if lags is None else lags,
            assignor=assignor,
            policy=policy,
            context=duty.context,
        )
    return RoundLed(generation=duty.generation, led=led)


def _leads(member: Member, generation: int) -> bool:
    return member.state is MemberState.LEADING and member.generation == generation


def _remember(session: Session) -> Session:
    """Forget what was remembered as a leader once another member has led a round."""
    member = session.member
    led = session.led_generation
    if led is not None and member.claim_generation > led:
        return attrs.evolve(session, policy_state=None, led_generation=None)
    return session


def _translated(
    session: Session,
    effect: Send
    | CancelJoin
    | DecideRound
    | GrantResources
    | RevokeResources
    | LoseResources
    | FinishCommit
    | FailMember
    | Report,
    now_ms: int,
) -> SessionEffect:
    if not isinstance(effect, DecideRound):
        return effect
    return LeadRound(
        generation=effect.generation,
        members=effect.members,
        context=RoundContext(
            leader_id=effect.member_id,
            generation=effect.completed_generation,
            now_ms=now_ms,
            state=session.policy_state,
        ),
    )
