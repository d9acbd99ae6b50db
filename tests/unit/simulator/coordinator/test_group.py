"""The coordinator as a whole: time, and a broker that takes over."""

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import HeartbeatAnswer, JoinGroupAnswer, SyncGroupAnswer
from coopgroup.simulator.coordinator import GroupState
from tests.support.simulated import SESSION_MS, DrivenCoordinator, heartbeat, join, leave, sync


def test_fail_over_brings_the_generation_back_that_was_synced_last() -> None:
    """State outside the log is lost, such as a round that was being prepared."""
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    generation = group.coordinator.group.generation
    waiting = group.send(join(leader))
    assert group.coordinator.fail_over(2, group.now_ms) == (waiting,)
    assert group.coordinator.group.state is GroupState.STABLE
    assert group.ask(heartbeat(other, generation), HeartbeatAnswer).error_code == 0
    answer = group.ask(sync(leader, generation), SyncGroupAnswer)
    assert answer.assignment == leader.encode()


def test_fail_over_begins_every_session_anew() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    generation = group.coordinator.group.generation
    group.coordinator.fail_over(2, group.now_ms + 5_000)
    group.wait(5_000 + SESSION_MS - 1)
    assert group.ask(heartbeat(leader, generation), HeartbeatAnswer).error_code == 0


def test_fail_over_of_a_group_that_was_never_synced_forgets_it() -> None:
    group = DrivenCoordinator()
    member_id = group.new_member()
    group.coordinator.fail_over(2, group.now_ms)
    answer = group.ask(join(member_id), JoinGroupAnswer)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.new_member() != member_id


def test_fail_over_knows_the_new_id_of_a_static_member() -> None:
    group = DrivenCoordinator()
    group.stable_group("a")
    generation = group.coordinator.group.generation
    member_id = group.ask(join(instance_id="a"), JoinGroupAnswer).member_id
    group.coordinator.fail_over(2, group.now_ms)
    answer = group.ask(heartbeat(member_id, generation, instance_id="a"), HeartbeatAnswer)
    assert answer.error_code == 0


def test_newcomer_when_all_have_left_in_a_round_is_taken() -> None:
    """A round that waits for an unused id accepts any member of the protocol type."""
    group = DrivenCoordinator()
    members = group.stable_group(None, None)
    group.new_member()
    for member_id in members:
        group.send(leave(member_id))
    assert group.coordinator.group.state is GroupState.PREPARING
    answer = group.ask(join(), JoinGroupAnswer)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
