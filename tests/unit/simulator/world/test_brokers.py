"""Brokers: availability, and moves of the group coordinator."""

from coopgroup.telemetry import RequestRefused
from tests.support.simulated import quiet_group


def test_move_is_found_out_and_the_group_goes_on() -> None:
    group = quiet_group()
    process = group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.move_coordinator(2)
    assert group.run_until_rest(5_000, 200)
    assert process.session.member.generation == 1
    errors = [
        one.record.error for one in group.world.telemetry if isinstance(one.record, RequestRefused)
    ]
    assert "NOT_COORDINATOR" in errors
    coordinator = process.session.member.coordinator
    assert coordinator is not None
    assert coordinator.node_id == 2


def test_broker_that_dies_answers_nothing_until_another_has_the_group() -> None:
    group = quiet_group()
    process = group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.move_coordinator(3, 300)
    assert not group.brokers.is_up
    group.run(200)
    errors = {
        one.record.error for one in group.world.telemetry if isinstance(one.record, RequestRefused)
    }
    assert errors == {"NO_ANSWER", "COORDINATOR_NOT_AVAILABLE"}
    assert group.run_until_rest(5_000, 200)
    assert process.session.member.generation == 1
    assert len(process.application.working) == 4
