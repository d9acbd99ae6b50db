"""SyncGroup: followers wait for the leader, and members that fail to sync."""

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import HeartbeatAnswer, SyncGroupAnswer
from coopgroup.simulator.coordinator import GroupState
from tests.support.simulated import REBALANCE_MS, DrivenCoordinator, heartbeat, join, sync


def joined_pair() -> tuple[DrivenCoordinator, str, str]:
    """Two members have joined and not synced: leader, follower."""
    group = DrivenCoordinator()
    leader, follower = group.stable_group(None, None)
    group.send(join(leader))
    group.send(join(follower))
    return group, leader, follower


def test_sync_of_follower_waits_for_the_leader() -> None:
    group, leader, follower = joined_pair()
    generation = group.coordinator.group.generation
    waiting = group.send(sync(follower, generation))
    assert waiting not in group.answers
    given = ((leader, b"mine"),)
    own = group.ask(sync(leader, generation, given), SyncGroupAnswer)
    assert own.assignment == b"mine"
    assert group.answers[waiting] == SyncGroupAnswer(error_code=0, assignment=b"")
    assert group.coordinator.group.state is GroupState.STABLE


def test_sync_when_a_round_begins_is_refused() -> None:
    group, leader, follower = joined_pair()
    generation = group.coordinator.group.generation
    waiting = group.send(sync(follower, generation))
    group.send(join(leader, protocols=(("coopgroup", b"changed"),)))
    refused = SyncGroupAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    assert group.answers[waiting] == refused
    assert group.ask(sync(follower, generation), SyncGroupAnswer) == refused


def test_sync_when_leader_is_silent_drops_it() -> None:
    """The time to sync is the rebalance timeout. Heartbeats do not extend it."""
    group, leader, follower = joined_pair()
    generation = group.coordinator.group.generation
    waiting = group.send(sync(follower, generation))
    for _ in range(5):
        alive = group.ask(heartbeat(leader, generation), HeartbeatAnswer)
        assert alive.error_code == 0
        group.wait(REBALANCE_MS // 5)
    alive = group.ask(heartbeat(leader, generation), HeartbeatAnswer)
    assert alive.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = group.answers[waiting]
    assert isinstance(answer, SyncGroupAnswer)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.coordinator.group.leader_id == follower


def test_sync_of_another_generation_or_protocol_is_refused() -> None:
    group = DrivenCoordinator()
    leader, _ = group.stable_group(None, None)
    generation = group.coordinator.group.generation
    old = group.ask(sync(leader, generation - 1), SyncGroupAnswer)
    assert old.error_code == ErrorCode.ILLEGAL_GENERATION
    other = group.ask(sync(leader, generation, protocol_name="range"), SyncGroupAnswer)
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = group.ask(sync("member-999", generation), SyncGroupAnswer)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
