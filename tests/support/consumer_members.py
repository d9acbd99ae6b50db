"""Members of KIP-848 in any state for unit tests, driven there by the events of a host."""

from collections.abc import Callable, Mapping
from typing import Self

import attrs

from coopgroup.core.member import (
    ErrorCode,
    GroupProtocol,
    KeptIdentity,
    Member,
    MemberConfig,
    MemberState,
    RequestKind,
    new_member,
)
from coopgroup.core.member.effects import KeepIdentity, NameTopics, RingBell, Send
from coopgroup.core.member.events import (
    Event,
    LeaveRequested,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import ConsumerBeatAnswer, ConsumerBeatRequest, TopicPartitions
from tests.support.members import CONFIG as CLASSIC
from tests.support.members import HELD, DrivenMember

CONFIG = attrs.evolve(CLASSIC, protocol=GroupProtocol.CONSUMER, own_id="p")
WITH_BELL = attrs.evolve(CONFIG, has_bell=True)
STATIC = attrs.evolve(CONFIG, instance_id="i")
KEEPING = attrs.evolve(CONFIG, keeps_identity=True)
INTERVAL_MS = 2_000
T0, T1 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
NAMES = {"id-T": "T", "id-U": "U"}
BEAT, LEAVE = RequestKind.CONSUMER_BEAT, RequestKind.LEAVE_GROUP
SUBSCRIBED = SubscriptionChanged(topics=("T",))
CLOSED = LeaveRequested(reason="closed")


@attrs.define(kw_only=True)
class DrivenConsumer(DrivenMember):
    """A member of KIP-848; the id of topic T is id-T.

    Attributes:
        names: outcome of its look-ups of topic ids; None to leave them without an outcome.
    """

    names: Mapping[str, str] | None = attrs.field(factory=lambda: NAMES)
    member: Member = attrs.field(factory=lambda: new_member(CONFIG))

    def give(self, event: Event) -> Self:
        self._step(event)
        asked = self.found(NameTopics)
        if asked and self.names is not None:
            before = tuple(one for one in self.effects if one is not asked[0])
            self.give(attrs.evolve(asked[0].answered, topic_names=self.names))
            self.effects = (*before, *self.effects)
        return self

    def due(self) -> Self:
        """Let the next heartbeat be sent, unless it is pending."""
        if BEAT not in self.member.outstanding:
            self.wait(max(0, self.member.heartbeat_at_ms - self.now_ms))
        return self

    def beat(self, assigned: ResourceSet | None = None, epoch: int | None = None) -> Self:
        """Send the next heartbeat, unless it is pending, and answer it."""
        epoch = max(self.member.generation, 1) if epoch is None else epoch
        given = None if assigned is None else by_id(assigned)
        return self.due().answer(BEAT, beaten(epoch, given))

    def fail_beat(self, code: int) -> Self:
        """Send the next heartbeat, unless it is pending, and refuse it, or leave it unanswered."""
        return self.due().refuse(BEAT, code)

    def stop(self, resources: ResourceSet) -> Self:
        return self.give(RevocationCompleted(resources=resources))

    def beats(self) -> list[ConsumerBeatRequest]:
        """Return the heartbeats and leaves that the last step sent."""
        sent = [one.request for one in self.found(Send)]
        return [one for one in sent if isinstance(one, ConsumerBeatRequest)]

    def the_beat(self) -> ConsumerBeatRequest:
        (beat,) = self.beats()
        return beat

    def rings(self) -> bool:
        return bool(self.found(RingBell))

    def kept(self) -> list[KeptIdentity | None]:
        return [one.identity for one in self.found(KeepIdentity)]


def by_id(resources: ResourceSet, suffix: str = "") -> TopicPartitions:
    return tuple((f"id-{name}{suffix}", tuple(on.tolist())) for name, on in resources.items())


def beaten(epoch: int, assigned: TopicPartitions | None = None) -> ConsumerBeatAnswer:
    return ConsumerBeatAnswer(error_code=0, epoch=epoch, interval_ms=INTERVAL_MS, assigned=assigned)


def new(config: MemberConfig = CONFIG, kept: KeptIdentity | None = None) -> DrivenConsumer:
    return DrivenConsumer(member=new_member(config, kept))


# --- members in each state ---------------------------------------------------------------------


def joining(config: MemberConfig = CONFIG) -> DrivenConsumer:
    """Its first heartbeat is pending."""
    return new(config).subscribe()


def stable(config: MemberConfig = CONFIG, held: ResourceSet = HELD) -> DrivenConsumer:
    """It owns its assignment, and the coordinator knows it."""
    return joining(config).beat(held).beat(held)


def revoking(config: MemberConfig = CONFIG) -> DrivenConsumer:
    """It must stop T-1 and keeps T-0."""
    return stable(config).beat(T0)


def losing() -> DrivenConsumer:
    return stable().fail_beat(ErrorCode.UNKNOWN_MEMBER_ID)


def leaving(config: MemberConfig = CONFIG) -> DrivenConsumer:
    return stable(config).give(CLOSED)


def failed() -> DrivenConsumer:
    return stable().fail_beat(ErrorCode.FENCED_INSTANCE_ID)


EVERY_STATE: Mapping[MemberState, Callable[[], DrivenConsumer]] = {
    MemberState.UNSUBSCRIBED: new,
    MemberState.JOINING: joining,
    MemberState.STABLE: stable,
    MemberState.REVOKING: revoking,
    MemberState.LOSING: losing,
    MemberState.LEAVING: leaving,
    MemberState.FAILED: failed,
}
