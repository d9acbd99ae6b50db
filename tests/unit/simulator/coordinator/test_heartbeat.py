"""Heartbeat: it keeps the session alive, and reports rounds."""

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import HeartbeatAnswer
from tests.support.simulated import SESSION_MS, DrivenCoordinator, heartbeat, join


def test_heartbeat_keeps_the_session_alive() -> None:
    group = DrivenCoordinator()
    leader, silent = group.stable_group(None, None)
    generation = group.coordinator.group.generation
    for _ in range(2):
        group.wait(SESSION_MS // 3)
        assert group.ask(heartbeat(leader, generation), HeartbeatAnswer).error_code == 0
    group.wait(SESSION_MS // 3)
    answer = group.ask(heartbeat(leader, generation), HeartbeatAnswer)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    gone = group.ask(heartbeat(silent, generation), HeartbeatAnswer)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_a_fenced_static_member_says_so() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group("a")
    generation = group.coordinator.group.generation
    group.send(join(instance_id="a"))
    answer = group.ask(heartbeat(leader, generation, instance_id="a"), HeartbeatAnswer)
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
