"""A session that unit tests drive like a member; its member leads a group of its own."""

from typing import Any, Self, TypeVar, cast

import attrs

from coopgroup.assignors import StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import TopicMetadata, read_members
from coopgroup.core.leader.rounds import lead_round
from coopgroup.core.member import RequestKind
from coopgroup.core.member.effects import Effect
from coopgroup.core.member.events import Event
from coopgroup.core.member.protocols import offered_subscriptions
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.session import (
    DecideRound,
    DecisionMade,
    LeaderContext,
    Session,
    SessionEvent,
    step,
)
from coopgroup.policies import Policy, SimplePolicy
from tests.support.members import DrivenMember, joined

THREE = ResourceSet({"T": range(3)})
TOPICS = TopicMetadata(resources=THREE)

Asked = TypeVar("Asked")


@attrs.define(kw_only=True)
class DrivenSession(DrivenMember):
    """A member with its duties as a leader."""

    session: Session
    policy: Policy = attrs.field(factory=SimplePolicy)
    assignor: Assignor = attrs.field(factory=StickyAssignor)

    @classmethod
    def of(cls, driven: DrivenMember) -> Self:
        session = Session(member=driven.member)
        return cls(session=session, member=driven.member, now_ms=driven.now_ms)

    def give(self, event: SessionEvent) -> Self:
        return super().give(cast("Event", event))

    def _step(self, event: SessionEvent) -> None:
        self.session, effects = step(self.session, event, now_ms=self.now_ms)
        self.member, self.effects = self.session.member, cast("tuple[Effect, ...]", effects)

    def duties(self, kind: type[Asked]) -> list[Asked]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def change(self, **changes: Any) -> Self:  # noqa: ANN401 - any field
        """Replace fields of the session."""
        self.session = attrs.evolve(self.session, **changes)
        self.member = self.session.member
        return self

    def lead(self, generation: int = 1, *, skip: bool = False) -> Self:
        """Answer the join: the member leads a group of its own."""
        offered = dict(offered_subscriptions(self.member, self.now_ms))
        me = JoinedMember(member_id="m", group_instance_id=None, metadata=offered["coopgroup"])
        answer = attrs.evolve(joined(generation, leads=True, skip=skip), members=(me,))
        return self.answer(RequestKind.JOIN_GROUP, answer)

    def duty(self) -> DecideRound:
        """Return the round that the last step asked to decide."""
        (duty,) = self.duties(DecideRound)
        return duty

    def led(self, metadata: TopicMetadata | None = TOPICS) -> DecisionMade:
        """Return the decision of that round."""
        duty = self.duty()
        return lead_round(
            duty,
            read_members(duty.members),
            metadata,
            None,
            assignor=self.assignor,
            policy=self.policy,
        )

    def complete(self, generation: int = 1) -> LeaderContext:
        """Lead the round of the pending join, and let it be completed."""
        context = self.lead(generation).duty().context
        self.give(self.led()).sync(THREE)
        return context
