"""The classic group of the model: settings, ids and fail-overs, which no program on a broker plays.

`tests/broker/test_model_conformance.py` compares all other answers with those of Kafka.
"""

from uuid import UUID

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import JoinGroupAnswer, SyncGroupAnswer
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupState
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


def test_ids_begin_with_the_client_id_or_the_static_id() -> None:
    coordinator = DrivenCoordinator().coordinator
    for number, request in enumerate((join(), join(), join(instance_id="static"))):
        coordinator.receive(number, request, 1_000, client_id="billing-1")
    answers = [answer for _, answer in coordinator.take_answers()]
    names = [one.member_id for one in answers if isinstance(one, JoinGroupAnswer)]
    assert [one[:-36] for one in names] == ["billing-1-", "billing-1-", "static-"]
    assert len(set(names)) == 3
    assert all(str(UUID(one[-36:])) == one[-36:] for one in names)


def test_join_when_session_time_out_is_out_of_bounds_is_refused() -> None:
    group = DrivenCoordinator(CoordinatorSettings(session_timeout_min_ms=6_000))
    assert group.code(join()) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_first_round_when_delayed_waits_for_more_members() -> None:
    """`group.initial.rebalance.delay.ms`, extended by each newcomer."""
    group = DrivenCoordinator(CoordinatorSettings(initial_rebalance_delay_ms=300))
    first = group.send(join(group.new_member()))
    group.wait(200)
    second = group.send(join(group.new_member()))
    group.wait(100)
    assert first not in group.answers
    group.wait(300)
    assert {len(group.joined(first).members), len(group.joined(second).members)} == {2, 0}


# --- fail-overs -----------------------------------------------------------------------------------


def test_fail_over_brings_the_generation_back_that_was_synced_last() -> None:
    """State outside the log is lost, such as a round that was being prepared."""
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    generation = group.generation
    waiting = group.send(join(leader))
    assert group.coordinator.fail_over(2, group.now_ms) == (waiting,)
    assert group.coordinator.group.state is GroupState.STABLE
    assert group.code(heartbeat(other, generation)) == 0
    answer = group.ask(sync(leader, generation), SyncGroupAnswer)
    assert answer.assignment == leader.encode()


def test_fail_over_begins_every_session_anew() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    generation = group.generation
    group.coordinator.fail_over(2, group.now_ms + 5_000)
    group.wait(5_000 + SESSION_MS - 1)
    assert group.code(heartbeat(leader, generation)) == 0


def test_fail_over_of_a_group_that_was_never_synced_forgets_it() -> None:
    group = DrivenCoordinator()
    member_id = group.new_member()
    group.coordinator.fail_over(2, group.now_ms)
    assert group.code(join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.new_member() != member_id


def test_fail_over_knows_the_new_id_of_a_static_member() -> None:
    group = DrivenCoordinator()
    group.stable_group("a")
    generation = group.generation
    member_id = group.ask(join(instance_id="a"), JoinGroupAnswer).member_id
    group.coordinator.fail_over(2, group.now_ms)
    assert group.code(heartbeat(member_id, generation, instance_id="a")) == 0


def test_newcomer_when_all_have_left_in_a_round_is_taken() -> None:
    """A round that waits for an unused id accepts any member of the protocol type."""
    group = DrivenCoordinator()
    members = group.stable_group(None, None)
    group.new_member()
    for member_id in members:
        group.send(leave(member_id))
    assert group.coordinator.group.state is GroupState.PREPARING
    assert group.code(join()) == ErrorCode.MEMBER_ID_REQUIRED


# --- one answer of each request that depends on the state -----------------------------------------


def test_leave_by_instance_id_alone_removes_a_static_member() -> None:
    """As an administrator does it (KIP-345)."""
    group = DrivenCoordinator()
    group.stable_group("a")
    codes = [group.code(leave("", instance_id="a")) for _ in range(2)]
    assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_leave_with_an_unused_id_gives_it_back() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    pending = group.new_member()
    waiting = group.send(join(leader))
    assert waiting not in group.answers
    assert group.code(leave(pending)) == 0
    assert group.joined(waiting).generation == 2


def test_sync_when_leader_is_silent_drops_it() -> None:
    """The time to sync is the rebalance timeout. Heartbeats do not extend it."""
    group = DrivenCoordinator()
    leader, follower = group.stable_group(None, None)
    group.send(join(leader))
    group.send(join(follower))
    waiting, generation = group.send(sync(follower, group.generation)), group.generation
    codes = []
    for _ in range(6):
        codes.append(group.code(heartbeat(leader, generation)))
        group.wait(REBALANCE_MS // 5)
    assert codes == [*[0] * 5, ErrorCode.UNKNOWN_MEMBER_ID]
    refused = SyncGroupAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    assert group.answers[waiting] == refused


def test_sync_of_another_protocol_is_refused() -> None:
    group = DrivenCoordinator()
    leader, _ = group.stable_group(None, None)
    request = sync(leader, group.generation, protocol_name="range")
    assert group.code(request) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_commit_without_a_member_is_taken_while_the_group_is_empty() -> None:
    """For example from a consumer that assigns its own partitions."""
    group = DrivenCoordinator()
    assert group.code(commit("", -1)) == 0
    group.stable_group(None)
    assert group.code(commit("", -1)) == ErrorCode.UNKNOWN_MEMBER_ID
