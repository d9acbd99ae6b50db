"""The classic group of the model: JoinGroup, SyncGroup, heartbeats, leaves, commits, fail-overs."""

from uuid import UUID

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import (
    JoinGroupAnswer,
    SyncGroupAnswer,
)
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupState
from tests.support.simulated import (
    REBALANCE_MS,
    SESSION_MS,
    DrivenCoordinator,
    commit,
    heartbeat,
    join,
    leave,
    sync,
)

# --- joins ----------------------------------------------------------------------------------------


def test_join_when_new_gets_an_id_first() -> None:
    """KIP-394: an unknown member must join again with the id that it was given."""
    group = DrivenCoordinator()
    answer = group.ask(join(), JoinGroupAnswer)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    again = group.ask(join(answer.member_id), JoinGroupAnswer)
    assert (again.error_code, again.generation, again.leader_id) == (0, 1, answer.member_id)
    assert [one.member_id for one in again.members] == [answer.member_id]


def test_ids_begin_with_the_client_id_or_the_static_id() -> None:
    coordinator = DrivenCoordinator().coordinator
    for number, request in enumerate((join(), join(), join(instance_id="static"))):
        coordinator.receive(number, request, 1_000, client_id="billing-1")
    answers = [answer for _, answer in coordinator.take_answers()]
    names = [one.member_id for one in answers if isinstance(one, JoinGroupAnswer)]
    assert [one[:-36] for one in names] == ["billing-1-", "billing-1-", "static-"]
    assert len(set(names)) == 3
    assert all(str(UUID(one[-36:])) == one[-36:] for one in names)


def test_join_when_id_is_not_used_in_time_is_unknown() -> None:
    group = DrivenCoordinator()
    group.stable_group(None)
    member_id = group.new_member()
    group.wait(SESSION_MS)
    assert group.code(join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_when_session_time_out_is_out_of_bounds_is_refused() -> None:
    group = DrivenCoordinator(CoordinatorSettings(session_timeout_min_ms=6_000))
    assert group.code(join()) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_join_of_newcomer_waits_for_the_others() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    newcomer = group.send(join(group.new_member()))
    assert newcomer not in group.answers
    again = group.joined(group.send(join(leader)))
    assert (again.generation, len(again.members)) == (2, 2)
    assert group.joined(newcomer).generation == again.generation
    assert group.joined(newcomer).members == ()


def test_join_when_a_member_does_not_rejoin_goes_on_without_it() -> None:
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    number = group.send(join(other, protocols=(("coopgroup", b"changed"),)))
    group.wait(SESSION_MS - 1)
    group.wait(REBALANCE_MS)
    answer = group.joined(number)
    assert (answer.leader_id, [one.member_id for one in answer.members]) == (other, [other])
    assert group.code(join(leader)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_of_follower_with_the_same_subscription_begins_no_round() -> None:
    """The first answer may have been lost, so the generation is sent again."""
    group = DrivenCoordinator()
    _, follower = group.stable_group(None, None)
    generation = group.generation
    answer = group.ask(join(follower), JoinGroupAnswer)
    assert (answer.generation, answer.members) == (generation, ())
    assert group.coordinator.group.state is GroupState.STABLE


def test_join_of_leader_begins_a_round() -> None:
    """A leader can thus ask for a round because of new partitions."""
    group = DrivenCoordinator()
    leader, _ = group.stable_group(None, None)
    assert group.send(join(leader)) not in group.answers
    assert group.coordinator.group.state is GroupState.PREPARING


def test_join_of_static_member_that_comes_back_begins_no_round() -> None:
    """KIP-345: a new id in the old place. KIP-814: a leader must not assign again."""
    group = DrivenCoordinator()
    leader, follower = group.stable_group("a", "b")
    generation = group.generation
    answer = group.ask(join(instance_id="a"), JoinGroupAnswer)
    assert (answer.generation, answer.skip_assignment) == (generation, True)
    assert answer.leader_id == answer.member_id != leader
    assert [one.group_instance_id for one in answer.members] == ["b", "a"]
    other = group.ask(join(instance_id="b"), JoinGroupAnswer)
    assert (other.skip_assignment, other.members) == (False, ())
    assert group.code(join(follower, instance_id="b")) == ErrorCode.FENCED_INSTANCE_ID


def test_join_of_static_member_fences_the_join_that_waits() -> None:
    group = DrivenCoordinator()
    group.stable_group("a", None)
    group.send(join(group.new_member()))  # a round begins
    first = group.coordinator.group.static_ids["a"]
    waiting = group.send(join(first, instance_id="a"))
    later = group.send(join(instance_id="a"))
    assert group.joined(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert later not in group.answers


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


# --- syncs ----------------------------------------------------------------------------------------


def joined_pair() -> tuple[DrivenCoordinator, str, str]:
    """Two members have joined and not synced: leader, follower."""
    group = DrivenCoordinator()
    leader, follower = group.stable_group(None, None)
    group.send(join(leader))
    group.send(join(follower))
    return group, leader, follower


def test_sync_of_follower_waits_for_the_leader() -> None:
    group, leader, follower = joined_pair()
    generation = group.generation
    waiting = group.send(sync(follower, generation))
    assert waiting not in group.answers
    given = ((leader, b"mine"),)
    own = group.ask(sync(leader, generation, given), SyncGroupAnswer)
    assert own.assignment == b"mine"
    assert group.answers[waiting] == SyncGroupAnswer(error_code=0, assignment=b"")
    assert group.coordinator.group.state is GroupState.STABLE


def test_sync_when_a_round_begins_is_refused() -> None:
    group, leader, follower = joined_pair()
    generation = group.generation
    waiting = group.send(sync(follower, generation))
    group.send(join(leader, protocols=(("coopgroup", b"changed"),)))
    refused = SyncGroupAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    assert group.answers[waiting] == refused
    assert group.ask(sync(follower, generation), SyncGroupAnswer) == refused


def test_sync_when_leader_is_silent_drops_it() -> None:
    """The time to sync is the rebalance timeout. Heartbeats do not extend it."""
    group, leader, follower = joined_pair()
    generation = group.generation
    waiting = group.send(sync(follower, generation))
    for _ in range(5):
        assert group.code(heartbeat(leader, generation)) == 0
        group.wait(REBALANCE_MS // 5)
    assert group.code(heartbeat(leader, generation)) == ErrorCode.UNKNOWN_MEMBER_ID
    answer = group.answers[waiting]
    assert isinstance(answer, SyncGroupAnswer)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.coordinator.group.leader_id == follower


def test_sync_of_another_generation_or_protocol_is_refused() -> None:
    group = DrivenCoordinator()
    leader, _ = group.stable_group(None, None)
    generation = group.generation
    assert group.code(sync(leader, generation - 1)) == ErrorCode.ILLEGAL_GENERATION
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.code(sync(leader, generation, protocol_name="range")) == inconsistent
    assert group.code(sync("member-999", generation)) == ErrorCode.UNKNOWN_MEMBER_ID


# --- heartbeats -----------------------------------------------------------------------------------


def test_heartbeat_keeps_the_session_alive() -> None:
    group = DrivenCoordinator()
    leader, silent = group.stable_group(None, None)
    generation = group.generation
    for _ in range(2):
        group.wait(SESSION_MS // 3)
        assert group.code(heartbeat(leader, generation)) == 0
    group.wait(SESSION_MS // 3)
    assert group.code(heartbeat(leader, generation)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.code(heartbeat(silent, generation)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_a_fenced_static_member_says_so() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group("a")
    generation = group.generation
    group.send(join(instance_id="a"))
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert group.code(heartbeat(leader, generation, instance_id="a")) == fenced


# --- leaves ---------------------------------------------------------------------------------------


def test_leave_begins_a_round() -> None:
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    assert group.code(leave(leader)) == 0
    assert group.coordinator.group.state is GroupState.PREPARING
    assert group.ask(join(other), JoinGroupAnswer).leader_id == other


def test_leave_with_an_unused_id_gives_it_back() -> None:
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    pending = group.new_member()
    waiting = group.send(join(leader))
    assert waiting not in group.answers
    assert group.code(leave(pending)) == 0
    assert group.joined(waiting).generation == 2


def test_leave_by_instance_id_alone_removes_a_static_member() -> None:
    """As an administrator does it (KIP-345)."""
    group = DrivenCoordinator()
    group.stable_group("a")
    assert group.code(leave("", instance_id="a")) == 0
    assert group.code(leave("", instance_id="a")) == ErrorCode.UNKNOWN_MEMBER_ID


# --- commits --------------------------------------------------------------------------------------


def test_commit_of_the_generation_is_kept() -> None:
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    generation = group.generation
    assert group.code(commit(leader, generation, 7)) == 0
    group.send(join(leader))
    assert group.code(commit(other, generation, 9)) == 0
    assert group.coordinator.committed == {("T", 0): 9}


def test_commit_between_join_and_sync_must_wait() -> None:
    """The generation is new, but its assignment is not known yet."""
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    generation = group.joined(group.send(join(leader))).generation
    assert group.code(commit(leader, generation)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.code(commit(leader, generation - 1)) == ErrorCode.ILLEGAL_GENERATION
    assert group.coordinator.committed == {}


def test_commit_without_a_member_is_taken_while_the_group_is_empty() -> None:
    """For example from a consumer that assigns its own partitions."""
    group = DrivenCoordinator()
    assert group.code(commit("", -1)) == 0
    group.stable_group(None)
    assert group.code(commit("", -1)) == ErrorCode.UNKNOWN_MEMBER_ID


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
