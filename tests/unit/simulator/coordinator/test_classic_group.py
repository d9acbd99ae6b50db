"""The classic group of the model: settings, ids and fail-overs, which no program on a broker plays.

`tests/broker/test_model_conformance.py` compares all other answers with those of Kafka.
"""

from uuid import UUID

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import (
    JoinGroupAnswer,
    SyncGroupAnswer,
)
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupState
from tests.support.simulated import (
    SESSION_MS,
    DrivenCoordinator,
    heartbeat,
    join,
    leave,
    sync,
)


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
