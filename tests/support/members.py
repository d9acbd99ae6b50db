"""Members in any state for unit tests, driven there by the events of a host.

If a test needs more members, `played_group` provides whole processes beside a model coordinator.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import attrs

from coopgroup.assignors import StickyAssignor
from coopgroup.core.member import (
    ErrorCode,
    KeptIdentity,
    Member,
    MemberConfig,
    MemberState,
    RequestKind,
    new_member,
    step,
)
from coopgroup.core.member.effects import (
    CountPartitions,
    Effect,
    FinishCommit,
    GrantResources,
    LoseResources,
    Report,
    RevokeResources,
    Send,
)
from coopgroup.core.member.events import (
    Answered,
    AssignmentsDecided,
    Event,
    LeaveRequested,
    LossHandled,
    RequestFailed,
    SubscriptionChanged,
    Woken,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    Answer,
    Coordinator,
    FindCoordinatorAnswer,
    HeartbeatAnswer,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupAnswer,
)
from coopgroup.policies import SimplePolicy
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    decode_subscription,
    decode_user_data,
    encode_assignment,
)
from coopgroup.simulator.coordinator import refusal
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.scenario import Cost
from coopgroup.simulator.simulation import Simulation

CONFIG = MemberConfig(
    group_id="g",
    session_timeout_ms=6_000,
    rebalance_timeout_ms=60_000,
    heartbeat_interval_ms=1_000,
    retry_backoff_ms=100,
    retry_backoff_max_ms=1_000,
    request_timeout_ms=3_000,
)
NODE = Coordinator(node_id=1, host="localhost", port=9092)
OTHER_NODE = Coordinator(node_id=2, host="localhost", port=9093)
HELD = ResourceSet({"T": [0, 1]})
KEEPING = attrs.evolve(CONFIG, keeps_identity=True)
KEPT = KeptIdentity(member_id="m", generation=7, topics=("T",))

EffectKind = TypeVar("EffectKind", bound=Effect)
RecordKind = TypeVar("RecordKind")


@attrs.define(kw_only=True)
class DrivenMember:
    """A member, its clock, and the effects of its last step.

    Attributes:
        partition_counts: outcome of its look-ups; None to leave them without an outcome.
    """

    member: Member = attrs.field(factory=lambda: new_member(CONFIG))
    now_ms: int = 10_000
    effects: tuple[Effect, ...] = ()
    partition_counts: Mapping[str, int] | None = attrs.field(factory=dict)

    def _step(self, event: Event) -> None:
        self.member, self.effects = step(self.member, event, now_ms=self.now_ms)

    def give(self, event: Event) -> Self:
        self._step(event)
        asked, counts = self.found(CountPartitions), self.partition_counts
        if asked and counts is not None:
            before = tuple(one for one in self.effects if one is not asked[0])
            self.give(attrs.evolve(asked[0].answered, partition_counts=counts))
            self.effects = (*before, *self.effects)
        return self

    def wait(self, duration_ms: int) -> Self:
        self.now_ms += duration_ms
        return self.give(Woken())

    def answer(self, kind: RequestKind, answer: Answer) -> Self:
        request_id = self.member.outstanding[kind].request_id
        return self.give(Answered(request_id=request_id, answer=answer))

    def refuse(self, kind: RequestKind, code: int) -> Self:
        """Answer with an error; the transport's own codes mean that no answer came."""
        request_id = self.member.outstanding[kind].request_id
        if code < ErrorCode.UNKNOWN_SERVER_ERROR:
            failed = RequestFailed(request_id=request_id, code=code, message="gone")
            return self.give(failed)
        return self.answer(kind, refusal(self.request(kind).request, code))

    def request(self, kind: RequestKind) -> Send:
        """Return the effect of the last step that sent the request of a kind."""
        request_id = self.member.outstanding[kind].request_id
        found = [send for send in self.found(Send) if send.request_id == request_id]
        assert found, f"{kind} was sent in an earlier step: use `answer`"
        return found[0]

    def found(self, kind: type[EffectKind]) -> list[EffectKind]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def reported(self, kind: type[RecordKind]) -> list[RecordKind]:
        """Return the last step's records of a kind."""
        return [one.record for one in self.found(Report) if isinstance(one.record, kind)]

    def granted(self) -> list[ResourceSet]:
        return [effect.resources for effect in self.found(GrantResources)]

    def revoked(self) -> list[ResourceSet]:
        return [effect.resources for effect in self.found(RevokeResources)]

    def lost(self) -> list[ResourceSet]:
        return [effect.resources for effect in self.found(LoseResources)]

    def sent(self) -> list[str]:
        return [type(send.request).__name__ for send in self.found(Send)]

    def sent_join(self) -> JoinGroupRequest:
        """Return the pending join, which the last step sent."""
        request = self.request(RequestKind.JOIN_GROUP).request
        assert isinstance(request, JoinGroupRequest)
        return request

    def claims(self) -> Subscription:
        return decode_subscription(self.sent_join().protocols[0][1])

    def finished(self) -> list[tuple[int, dict[int, int]]]:
        """Return the commits that ended: the id, and the code of each partition of T."""
        return [
            (one.commit_id, {partition: code for _, partition, code in one.codes})
            for one in self.found(FinishCommit)
        ]

    def user_data(self) -> UserData:
        """Return our user data in the join that the last step sent."""
        data = decode_user_data(self.claims().user_data)
        assert data is not None
        return data

    def committed(self) -> dict[int, int]:
        request = self.request(RequestKind.OFFSET_COMMIT).request
        assert isinstance(request, OffsetCommitRequest)
        return {partition: offset for _, partition, offset, *_ in request.offsets}

    # --- the way of a member through a round ---------------------------------------------------

    def subscribe(self, *topics: str) -> Self:
        """Subscribe and find the coordinator: the first join is pending."""
        self.give(SubscriptionChanged(topics=topics or ("T",)))
        return self.find()

    def find(self, coordinator: Coordinator = NODE) -> Self:
        return self.answer(RequestKind.FIND_COORDINATOR, found(coordinator))

    def join(
        self, generation: int = 1, *, leads: bool = False, protocol: str = "coopgroup"
    ) -> Self:
        answer = joined(generation, leads=leads, protocol=protocol)
        return self.answer(RequestKind.JOIN_GROUP, answer)

    def decide(self) -> Self:
        return self.give(self.decided())

    def decided(self) -> AssignmentsDecided:
        """Return a decision of the round that the member leads."""
        number = self.member.round.duty_number
        return AssignmentsDecided(number=number, assignments=(("m", b"assignment"),))

    def sync(
        self,
        assigned: ResourceSet = HELD,
        *,
        follow_up: bool = False,
        rejoin_in_ms: int | None = None,
        loss_ends_in_ms: int | None = None,
        warmups: ResourceSet = EMPTY,
    ) -> Self:
        """Answer the sync; in a follow-up the member learns which resources it must stop."""
        revoked = self.member.owned - assigned if follow_up else None
        answer = synced(
            assigned,
            revoked=revoked,
            rejoin_in_ms=rejoin_in_ms,
            loss_ends_in_ms=loss_ends_in_ms,
            warmups=warmups,
        )
        return self.answer(RequestKind.SYNC_GROUP, answer)

    def sync_again(self, assigned: ResourceSet = HELD) -> Self:
        """Answer the sync of a round without a follow-up that lists the same stops again."""
        revoked = self.member.owned - assigned
        return self.answer(RequestKind.SYNC_GROUP, synced(assigned, revoked=revoked or None))

    def heartbeat(self, code: int = 0) -> Self:
        """Let the next heartbeat be sent, unless it is pending, and answer it."""
        if RequestKind.HEARTBEAT not in self.member.outstanding:
            self.wait(max(0, self.member.heartbeat_at_ms - self.now_ms))
        return self.answer(RequestKind.HEARTBEAT, HeartbeatAnswer(error_code=code))


def found(coordinator: Coordinator) -> FindCoordinatorAnswer:
    return FindCoordinatorAnswer(error_code=0, error_message="", coordinator=coordinator)


def joined(
    generation: int, *, leads: bool = False, skip: bool = False, protocol: str = "coopgroup"
) -> JoinGroupAnswer:
    member = JoinedMember(member_id="m", group_instance_id=None, metadata=b"")
    return JoinGroupAnswer(
        error_code=0,
        generation=generation,
        protocol_name=protocol,
        leader_id="m" if leads else "other",
        member_id="m",
        members=(member,) if leads else (),
        skip_assignment=skip,
    )


def synced(
    assigned: ResourceSet,
    *,
    revoked: ResourceSet | None = None,
    rejoin_in_ms: int | None = None,
    loss_ends_in_ms: int | None = None,
    warmups: ResourceSet = EMPTY,
) -> SyncGroupAnswer:
    assignment = Assignment(
        assigned=assigned,
        revoked=revoked,
        rejoin_in_ms=rejoin_in_ms,
        loss_ends_in_ms=loss_ends_in_ms,
        warmups=warmups,
    )
    return SyncGroupAnswer(error_code=0, assignment=encode_assignment(assignment))


def configured(driven: DrivenMember, **changes: Any) -> DrivenMember:  # noqa: ANN401 - any setting
    """Return the same member with other settings."""
    config = attrs.evolve(driven.member.config, **changes)
    driven.member = attrs.evolve(driven.member, config=config)
    return driven


def static(driven: DrivenMember) -> DrivenMember:
    return configured(driven, instance_id="i-1")


def eager(driven: DrivenMember) -> DrivenMember:
    """Return the same member, which gives up all resources before each join."""
    return configured(driven, eager=True)


def speaking(driven: DrivenMember, *protocols: str) -> DrivenMember:
    """Return the same member with these protocols, most wanted first."""
    return configured(driven, protocols=protocols)


def played_group(*costs: Cost, seed: int = 1) -> Simulation:
    """Return a group in virtual time, without faults, that shares the four partitions of T."""
    config = attrs.evolve(CONFIG, session_timeout_ms=2_000, rebalance_timeout_ms=2_500)
    run_settings = RunSettings(assignor=StickyAssignor(), policy=SimplePolicy())
    played = Simulation.create(config=config, run_settings=run_settings, seed=seed, costs=costs)
    played.set_topic("T", 4)
    return played


# --- members in each state -------------------------------------------------------------------


def unsubscribed() -> DrivenMember:
    """A member outside of the group."""
    return DrivenMember()


def returning() -> DrivenMember:
    """A member with the identity of an earlier life asks whether it is still valid."""
    return DrivenMember(member=new_member(KEEPING, KEPT)).subscribe()


def joining() -> DrivenMember:
    """The first join is pending; no resources are owned."""
    return DrivenMember().subscribe()


def leading() -> DrivenMember:
    """The member leads its first round; no resources are owned."""
    return joining().join(leads=True)


def syncing() -> DrivenMember:
    """The member waits for its first assignment."""
    return joining().join()


def stable(held: ResourceSet = HELD) -> DrivenMember:
    """The member owns its assignment."""
    return syncing().sync(held)


def rejoining() -> DrivenMember:
    """The member owns resources, and its join for generation 2 is pending."""
    return stable().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)


def leading_again() -> DrivenMember:
    return rejoining().join(2, leads=True)


def joined_again() -> DrivenMember:
    """Return a member that lost its lease, and whose next join was answered without a round."""
    driven = stable().wait(1_000)
    driven.wait(driven.member.lease.until_ms - driven.now_ms)
    return driven.give(LossHandled()).join(driven.member.lease.generation)


def syncing_again() -> DrivenMember:
    """The member owns resources, and waits for the assignment of generation 2."""
    return rejoining().join(2)


def revoking() -> DrivenMember:
    """The member must stop T-1 and keep T-0."""
    return syncing_again().sync(ResourceSet({"T": [0]}), follow_up=True)


def rejoining_while_it_stops() -> DrivenMember:
    """The member still stops T-1, and its join for generation 3 is pending."""
    driven = revoking().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    return driven.wait(CONFIG.revocation_grace_ms)


def losing() -> DrivenMember:
    """The member lost all owned resources."""
    return stable().heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)


def leaving() -> DrivenMember:
    return stable().give(LeaveRequested(reason="closed"))


def failed() -> DrivenMember:
    return stable().heartbeat(ErrorCode.FENCED_INSTANCE_ID)


WITH_NOTHING: Mapping[MemberState, Callable[[], DrivenMember]] = {
    MemberState.UNSUBSCRIBED: unsubscribed,
    MemberState.RETURNING: returning,
    MemberState.JOINING: joining,
    MemberState.LEADING: leading,
    MemberState.SYNCING: syncing,
    MemberState.STABLE: lambda: stable(EMPTY),
}
WITH_RESOURCES: Mapping[MemberState, Callable[[], DrivenMember]] = {
    MemberState.JOINING: rejoining,
    MemberState.LEADING: leading_again,
    MemberState.SYNCING: syncing_again,
    MemberState.STABLE: stable,
    MemberState.REVOKING: revoking,
}
OUT_OF_WORK: Mapping[MemberState, Callable[[], DrivenMember]] = {
    MemberState.LOSING: losing,
    MemberState.LEAVING: leaving,
    MemberState.FAILED: failed,
}
EVERY_STATE = {**WITH_NOTHING, **WITH_RESOURCES, **OUT_OF_WORK}
