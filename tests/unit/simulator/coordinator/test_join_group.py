"""JoinGroup: who may join, when a round begins, when it ends."""

from uuid import UUID

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import JoinGroupAnswer
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupState
from tests.support.simulated import REBALANCE_MS, SESSION_MS, DrivenCoordinator, join


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
    assert group.ask(join(member_id), JoinGroupAnswer).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_when_session_time_out_is_out_of_bounds_is_refused() -> None:
    group = DrivenCoordinator(CoordinatorSettings(session_timeout_min_ms=6_000))
    answer = group.ask(join(), JoinGroupAnswer)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


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
    assert group.ask(join(leader), JoinGroupAnswer).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_of_follower_with_the_same_subscription_begins_no_round() -> None:
    """The first answer may have been lost, so the generation is sent again."""
    group = DrivenCoordinator()
    _, follower = group.stable_group(None, None)
    generation = group.coordinator.group.generation
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
    generation = group.coordinator.group.generation
    answer = group.ask(join(instance_id="a"), JoinGroupAnswer)
    assert (answer.generation, answer.skip_assignment) == (generation, True)
    assert answer.leader_id == answer.member_id != leader
    assert [one.group_instance_id for one in answer.members] == ["b", "a"]
    other = group.ask(join(instance_id="b"), JoinGroupAnswer)
    assert (other.skip_assignment, other.members) == (False, ())
    fenced = group.ask(join(follower, instance_id="b"), JoinGroupAnswer)
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


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
