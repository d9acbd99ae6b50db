"""LeaveGroup: a member leaves before the end of its session."""

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import JoinGroupAnswer, LeaveGroupAnswer
from coopgroup.simulator.coordinator import GroupState
from tests.support.simulated import DrivenCoordinator, join, leave


def test_leave_begins_a_round() -> None:
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    assert group.ask(leave(leader), LeaveGroupAnswer).error_code == 0
    assert group.coordinator.group.state is GroupState.PREPARING
    assert group.ask(join(other), JoinGroupAnswer).leader_id == other


def test_leave_with_an_unused_id_gives_it_back() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    pending = group.new_member()
    waiting = group.send(join(leader))
    assert waiting not in group.answers
    assert group.ask(leave(pending), LeaveGroupAnswer).error_code == 0
    assert group.joined(waiting).generation == 2


def test_leave_by_instance_id_alone_removes_a_static_member() -> None:
    """As an administrator does it (KIP-345)."""
    group = DrivenCoordinator()
    group.stable_group("a")
    assert group.ask(leave("", instance_id="a"), LeaveGroupAnswer).error_code == 0
    answer = group.ask(leave("", instance_id="a"), LeaveGroupAnswer)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
