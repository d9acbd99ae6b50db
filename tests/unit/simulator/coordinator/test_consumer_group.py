"""The consumer group of the model: classic members beside members of KIP-848."""

from __future__ import annotations

from typing import NamedTuple

import attrs

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    OffsetCommitAnswer,
    SyncGroupAnswer,
)
from coopgroup.protocol import (
    Assignment,
    Subscription,
    decode_kafka_assignment,
    encode_assignment,
    encode_subscription,
)
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupState
from coopgroup.simulator.coordinator.consumer_group import ConsumerGroup
from coopgroup.simulator.coordinator.state import ClassicGroup
from tests.support.group_requests import (
    REBALANCE_MS,
    SESSION_MS,
    commit,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.support.simulated import DrivenCoordinator

ALL = ResourceSet({"T": range(4)})
SETTINGS = CoordinatorSettings(consumer_session_timeout_ms=SESSION_MS)
BEGUN = ErrorCode.REBALANCE_IN_PROGRESS


class Group(DrivenCoordinator):
    """A group of classic members beside members of KIP-848, with one topic."""

    def __init__(self, settings: CoordinatorSettings = SETTINGS) -> None:
        super().__init__(settings)
        self.existing = ALL
        self.names: dict[str, str] = {}
        self.coordinator.existing = lambda: self.existing
        self.coordinator.names = lambda: self.names

    # --- classic members --------------------------------------------------------------------------

    def join_of(
        self,
        member_id: str,
        owned: ResourceSet = EMPTY,
        *,
        instance_id: str | None = None,
        protocol: str = "coopgroup",
    ) -> JoinGroupRequest:
        said = encode_subscription(Subscription(topics=("T",), owned=owned))
        return join(member_id, instance_id=instance_id, protocols=((protocol, said),))

    def join(
        self, member_id: str, owned: ResourceSet = EMPTY, *, instance_id: str | None = None
    ) -> JoinGroupAnswer:
        return self.joined(self.send(self.join_of(member_id, owned, instance_id=instance_id)))

    def new_member(self) -> str:
        return self.join("").member_id

    def sync(
        self, member_id: str, generation: int, *given: tuple[str, bytes]
    ) -> tuple[int, ResourceSet]:
        answer = self.ask(sync(member_id, generation, given), SyncGroupAnswer)
        if answer.error_code:
            return answer.error_code, EMPTY
        return 0, decode_kafka_assignment(answer.assignment).assigned

    def beat(self, member_id: str, generation: int) -> int:
        return self.code(heartbeat(member_id, generation))

    def classic_member(
        self, assignment: Assignment | None = None, *, instance_id: str | None = None
    ) -> str:
        """Return the only member of a classic group that owns all partitions."""
        joined = self.join(
            self.new_member() if instance_id is None else "", instance_id=instance_id
        )
        given = encode_assignment(assignment or Assignment(assigned=ALL))
        gift = ((joined.member_id, given),)
        request = sync(joined.member_id, joined.generation, gift, instance_id=instance_id)
        assert self.code(request) == 0
        return joined.member_id

    # --- members of KIP-848 -----------------------------------------------------------------------

    def new(self, name: str, epoch: int = JOINS, owned: ResourceSet = EMPTY) -> Beaten:
        """Send a full heartbeat."""
        partitions = tuple((topic, tuple(on.tolist())) for topic, on in owned.items())
        return self.beaten(
            ConsumerBeatRequest(
                group_id="g",
                member_id=name,
                epoch=epoch,
                topics=("T",),
                owned=partitions,
                rebalance_timeout_ms=REBALANCE_MS,
            )
        )

    def static(self, name: str, epoch: int = JOINS) -> Beaten:
        """Send a full heartbeat of a static member without partitions."""
        return self.beaten(
            ConsumerBeatRequest(
                group_id="g",
                member_id=name,
                epoch=epoch,
                group_instance_id="i",
                topics=("T",),
                owned=(),
                rebalance_timeout_ms=REBALANCE_MS,
            )
        )

    def short(self, name: str, epoch: int) -> Beaten:
        """Send a heartbeat that tells no change."""
        return self.beaten(ConsumerBeatRequest(group_id="g", member_id=name, epoch=epoch))

    def beaten(self, request: ConsumerBeatRequest) -> Beaten:
        answer = self.ask(request, ConsumerBeatAnswer)
        assigned = None if answer.assigned is None else ResourceSet(dict(answer.assigned))
        return Beaten(answer.error_code, answer.epoch, assigned)


class Beaten(NamedTuple):
    """The answer to a heartbeat; no assignment if it has not changed."""

    error_code: int
    epoch: int
    given: ResourceSet | None

    @property
    def assigned(self) -> ResourceSet:
        return EMPTY if self.given is None else self.given


def shared() -> tuple[Group, str, ResourceSet]:
    """Return a group of a classic member and one of KIP-848 with half of the partitions each."""
    group = Group()
    a = group.classic_member()
    group.new("k")
    group.join(a, ALL)
    _, half = group.sync(a, 1)
    group.join(a, half)
    assert group.sync(a, 2) == (0, half)
    assert group.new("k", 2).assigned == ALL - half
    assert len(half) == 2
    return group, a, half


def test_group_is_converted_and_each_member_gets_its_half() -> None:
    group = Group()
    a = group.classic_member()
    assert group.new("k") == (0, 2, EMPTY)
    assert group.beat(a, 1) == BEGUN
    answer = group.join(a, ALL)
    assert (answer.leader_id, answer.members, answer.generation) == ("", (), 1)
    code, half = group.sync(a, 1)
    assert (code, len(half)) == (0, 2)
    assert group.beat(a, 1) == BEGUN
    assert group.new("k", 2).assigned == EMPTY
    assert group.join(a, half).generation == 2
    assert (group.sync(a, 2), group.beat(a, 2)) == ((0, half), 0)
    assert group.new("k", 2).assigned == ALL - half
    assert group.coordinator.group.state is GroupState.STABLE


def test_member_that_waits_for_others_is_told_when_they_have_stopped() -> None:
    group, _, half = shared()
    b = group.new_member()
    generation = group.join(b).generation
    assert group.sync(b, generation) == (0, EMPTY)
    assert group.beat(b, generation) == 0
    k = group.new("k", 2, ALL - half)
    assert (group.beat(b, generation), len(k.assigned)) == (0, 1)
    group.new("k", 2, k.assigned)
    assert group.beat(b, generation) == BEGUN
    assert group.join(b).generation == generation
    assert group.sync(b, generation) == (0, ALL - half - k.assigned)


def test_group_is_classic_again_when_the_last_member_of_kip_848_leaves() -> None:
    group, a, half = shared()
    assert group.new("k", LEAVES).error_code == 0
    classic = group.coordinator.group
    assert isinstance(classic, ClassicGroup)
    assert (classic.state, classic.generation) == (GroupState.PREPARING, 2)
    assert group.beat(a, 2) == BEGUN
    answer = group.join(a, half)
    assert (answer.leader_id, answer.generation) == (a, 3)


def test_member_whose_epoch_is_older_is_refused_after_the_conversion() -> None:
    group, a, half = shared()
    group.new("l")
    group.new("k", LEAVES)
    group.new("l", LEAVES)
    assert group.beat(a, 2) == ErrorCode.ILLEGAL_GENERATION
    assert group.join(a, half).error_code == 0


def test_member_of_kip_848_that_dies_is_removed_by_its_session() -> None:
    group, a, half = shared()
    group.wait(SESSION_MS - 1)
    group.beat(a, 2)
    group.wait(1)
    assert isinstance(group.coordinator.group, ClassicGroup)
    assert group.join(a, half).leader_id == a


def test_classic_member_that_does_not_join_is_removed() -> None:
    group, a, _ = shared()
    group.new("l")
    assert group.beat(a, 2) == BEGUN
    codes = []
    for _ in range(6):
        group.wait(REBALANCE_MS // 6)
        codes.append(group.beat(a, 2))
        group.new("k", 2)
        group.new("l")
    assert codes == [*[BEGUN] * 5, ErrorCode.UNKNOWN_MEMBER_ID]


def test_join_under_a_dropped_id_is_accepted_as_that_of_a_new_member() -> None:
    group, a, half = shared()
    assert group.code(leave(a)) == 0
    assert group.code(leave(a)) == ErrorCode.UNKNOWN_MEMBER_ID
    answer = group.join(a, half)
    assert (answer.error_code, answer.member_id) == (0, a)
    assert group.new("k", 2, ALL - half).error_code == 0


def test_static_member_that_returns_keeps_its_partitions() -> None:
    group = Group()
    first = group.classic_member(instance_id="one")
    group.new("k")
    second = group.join("", instance_id="one")
    assert second.member_id != first
    old = group.join(first, instance_id="one")
    assert old.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert list(group.coordinator.group.seats) == ["k", second.member_id]


def test_requests_with_wrong_ids_epochs_and_protocols_are_refused() -> None:
    group, a, _ = shared()
    assert group.beat(a, 1) == ErrorCode.ILLEGAL_GENERATION
    assert group.beat("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync(a, 1)[0] == ErrorCode.ILLEGAL_GENERATION
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.code(sync(a, 2, protocol_name="range")) == inconsistent
    assert group.code(group.join_of("b", protocol="roundrobin")) == inconsistent
    assert group.new("k", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.new("x", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_carry_the_newest_epoch() -> None:
    group, a, half = shared()
    stale = {a: ErrorCode.ILLEGAL_GENERATION, "k": ErrorCode.STALE_MEMBER_EPOCH}
    for member, share in ((a, half), ("k", ALL - half)):
        partition = next(iter(share)).index
        codes = [group.code(commit(member, epoch, partition=partition)) for epoch in (2, 1)]
        assert codes == [0, stale[member]]


def test_next_target_waits_for_the_interval_and_for_a_request_that_makes_it() -> None:
    """As in Kafka 4.3 (KIP-1263): a Heartbeat makes no target, and tells only of one."""
    group = Group()
    settings = group.coordinator.group.settings
    group.coordinator.group.settings = attrs.evolve(settings, assignment_interval_ms=500)
    a = group.classic_member()
    group.new("k")
    b = group.new_member()
    assert group.join(b).generation == 2
    group.wait(500)
    assert group.beat(b, 2) == 0
    assert group.join(b).generation == 3
    assert group.beat(a, 1) == BEGUN


def test_conversion_is_refused_while_a_list_of_revocations_is_stored() -> None:
    """It stands where Kafka has user data, which the conversion would lose."""
    group = Group()
    part = ResourceSet({"T": [3]})
    a = group.classic_member(Assignment(assigned=ALL - part, revoked=part))
    assert group.new("k").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.beat(a, 1) == 0


def test_conversion_after_a_failed_round_does_not_know_what_a_member_owns() -> None:
    """So it gives that away at once. The member learns it from its next assignment."""
    group = Group()
    a = group.classic_member()
    group.join(a, ALL)  # it leads, and its sync is lost
    group.send(group.join_of(group.new_member()))
    assert group.new("k").assigned
    assert group.coordinator.forgotten == ALL
    generation = group.join(a, ALL).generation
    assert len(group.sync(a, generation)[1]) < len(ALL)


def test_brokers_may_forbid_both_conversions() -> None:
    group = Group()
    a = group.classic_member()
    group.coordinator.may_convert = (False, False)
    assert group.new("k").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    group.coordinator.may_convert = (True, False)
    assert group.new("k").error_code == 0
    group.new("k", LEAVES)
    assert isinstance(group.coordinator.group, ConsumerGroup)
    assert group.join(a, ALL).leader_id == ""


def test_empty_group_is_of_the_protocol_of_its_next_member() -> None:
    group = Group()
    group.new("k")
    group.new("k", LEAVES)
    group.classic_member()
    assert isinstance(group.coordinator.group, ClassicGroup)


def test_waiting_join_is_refused_by_the_conversion() -> None:
    group = Group()
    a = group.classic_member()
    b = group.new_member()
    token = group.send(group.join_of(b))
    assert token not in group.answers
    group.new("k")
    assert group.joined(token).error_code == BEGUN
    assert set(group.coordinator.group.seats) == {a, b, "k"}


def test_group_survives_its_broker() -> None:
    group, a, half = shared()
    assert group.coordinator.fail_over(2, group.now_ms) == ()
    assert group.beat(a, 2) == 0
    assert group.new("k", 2, ALL - half).assigned == ALL - half


def test_new_partitions_are_assigned_with_a_new_epoch() -> None:
    group, a, half = shared()
    more = ResourceSet({"T": range(6)})
    group.existing = more
    answer = group.new("k", 2, ALL - half)
    assert (answer.epoch, len(answer.assigned)) == (3, 3)
    assert group.beat(a, 2) == BEGUN


# --- only members of KIP-848 ----------------------------------------------------------------------


def alone() -> tuple[Group, int]:
    """Return a group of one member with all partitions, and its epoch."""
    group = Group()
    epoch = group.new("k").epoch
    assert group.new("k", epoch, ALL).assigned == ALL
    return group, epoch


def test_short_heartbeat_is_answered_without_an_assignment_unless_it_has_changed() -> None:
    group, epoch = alone()
    assert group.short("k", epoch) == (0, epoch, None)
    group.new("l")
    answer = group.short("k", epoch)
    assert (answer.epoch, len(answer.assigned)) == (epoch, 2)
    assert group.short("k", epoch).given is None


def test_short_heartbeat_acknowledges_nothing_and_part_of_a_revocation_neither() -> None:
    """The coordinator releases the revoked partitions as a whole."""
    group, epoch = alone()
    joined = group.new("l").epoch
    half = group.short("k", epoch).assigned
    one = ResourceSet.from_pairs([next(iter(ALL - half))])
    assert group.short("k", epoch).epoch == epoch
    assert group.new("k", epoch, half | one).epoch == epoch
    assert group.new("l", joined).assigned == EMPTY
    assert group.new("k", epoch, half).epoch == joined
    assert group.new("l", joined).assigned == ALL - half


def test_join_of_a_known_member_gets_the_same_assignment_at_the_same_epoch() -> None:
    group, epoch = alone()
    assert group.new("k") == (0, epoch, ALL)
    assert group.generation == epoch


def test_join_of_a_known_member_acknowledges_its_revocation() -> None:
    group, epoch = alone()
    joined = group.new("l").epoch
    group.short("k", epoch)
    assert group.new("k").epoch == joined
    assert len(group.new("l", joined).assigned) == 2


def test_epoch_before_the_last_one_counts_after_a_lost_answer() -> None:
    """Only with claims: a member that tells nothing may have missed a revocation."""
    group, epoch = alone()
    group.existing = ResourceSet({"T": range(6)})
    newer = group.new("k", epoch, ALL).epoch
    assert group.new("k", epoch, ALL) == (0, newer, group.existing)
    assert group.short("k", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    more = group.existing | ResourceSet({"T": [9]})
    assert group.new("k", epoch, more).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.new("k", newer + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_leave_of_an_unknown_member_is_refused() -> None:
    group, _ = alone()
    assert group.new("x", LEAVES).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_revocation_that_is_not_acknowledged_removes_the_member() -> None:
    group, epoch = alone()
    joined = group.new("l").epoch
    for _ in range(6):
        assert group.new("k", epoch, ALL).error_code == 0
        group.new("l", joined)
        group.wait(REBALANCE_MS // 6)
    assert group.new("k", epoch, ALL).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.new("l", joined).assigned == ALL


def test_static_member_that_leaves_for_now_gets_the_same_partitions_under_a_new_id() -> None:
    group = Group()
    epoch = group.static("a").epoch
    assert group.static("a", LEAVES_FOR_NOW).error_code == 0
    assert group.coordinator.group.state is GroupState.PREPARING
    assert group.static("a", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.static("b") == (0, epoch, ALL)
    assert group.static("a", epoch).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert group.code(commit("a", epoch)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(group.coordinator.group.seats) == ["b"]


def test_static_member_that_returns_with_other_topics_gets_a_new_target() -> None:
    group = Group()
    group.existing = ResourceSet({"T": range(2), "U": range(2)})
    epoch = group.static("a").epoch
    group.static("a", LEAVES_FOR_NOW)
    request = ConsumerBeatRequest(
        group_id="g",
        member_id="b",
        epoch=JOINS,
        group_instance_id="i",
        topics=("U",),
        owned=(),
        rebalance_timeout_ms=REBALANCE_MS,
    )
    assert group.beaten(request) == (0, epoch + 1, ResourceSet({"U": range(2)}))


def test_static_classic_member_that_returns_with_kip_848_need_not_sync() -> None:
    """The time to sync of its earlier process ends with that process."""
    group = Group()
    group.classic_member(instance_id="i")
    group.new("k")
    group.join("", instance_id="i")  # never syncs
    epoch = group.static("a").epoch
    for _ in range(6):
        group.wait(REBALANCE_MS // 6)
        group.short("k", 2)
        beat = ConsumerBeatRequest(group_id="g", member_id="a", epoch=epoch, group_instance_id="i")
        epoch = group.beaten(beat).epoch
        assert epoch > 0


def test_static_id_is_refused_until_its_holder_leaves_or_its_session_ends() -> None:
    """Under the same member id too."""
    group = Group()
    group.static("a")
    assert group.static("a").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.static("b").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    group.wait(SESSION_MS)
    assert group.static("b").assigned == ALL


def test_static_member_that_does_not_return_is_removed_by_its_session() -> None:
    group = Group()
    group.static("a")
    group.static("a", LEAVES_FOR_NOW)
    group.wait(SESSION_MS)
    assert group.new("k").assigned == ALL


def test_commit_with_an_older_epoch_counts_for_partitions_of_that_time() -> None:
    """One partition that was assigned later refuses the whole request (KIP-1251)."""
    group, epoch = alone()
    group.existing = ResourceSet({"T": range(6)})
    newer = group.new("k", epoch, ALL).epoch
    assert group.code(commit("k", epoch, partition=0)) == 0
    assert group.code(commit("k", epoch, partition=5)) == ErrorCode.STALE_MEMBER_EPOCH
    both = attrs.evolve(commit("k", epoch), offsets=(("T", 0, 1, -1, ""), ("T", 5, 1, -1, "")))
    answer = group.ask(both, OffsetCommitAnswer)
    assert {code for *_, code in answer.codes} == {ErrorCode.STALE_MEMBER_EPOCH}
    assert group.code(commit("k", newer, partition=5)) == 0
    assert group.code(commit("k", newer + 1)) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.code(commit("x", newer)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_a_revoked_partition_counts_until_the_acknowledgement() -> None:
    group, epoch = alone()
    newer = group.new("l").epoch
    half = group.short("k", epoch).assigned
    gone = next(iter(ALL - half)).index
    assert group.code(commit("k", epoch, partition=gone)) == 0
    group.new("k", epoch, half)
    assert group.code(commit("k", epoch, partition=gone)) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.code(commit("k", newer, partition=gone)) == 0  # nothing checks the owner


def test_brokers_before_4_3_refuse_each_other_epoch() -> None:
    group = Group(attrs.evolve(SETTINGS, takes_older_epochs=False))
    epoch = group.new("k").epoch
    group.existing = ResourceSet({"T": range(6)})
    group.new("k", epoch, ALL)
    assert group.code(commit("k", epoch, partition=0)) == ErrorCode.STALE_MEMBER_EPOCH


def test_topic_that_is_made_again_has_another_id() -> None:
    """The partitions of the old id are revoked, though the new ones have the same names."""
    group, epoch = alone()
    remade = ResourceSet({"T/2": range(4)})
    group.existing = remade
    group.names = {"T/2": "T"}
    assert group.new("k", epoch, ALL).assigned == EMPTY
    assert group.new("k", epoch).assigned == remade
