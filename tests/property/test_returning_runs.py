"""Runs in which processes return (`tests/swarm/returning.py`)."""

import pytest

from coopgroup.simulator.scenario import Choice, Identity
from coopgroup.telemetry import AssignmentReceived, ProcessEnded, ProcessStarted
from tests.swarm.play import play
from tests.swarm.runs import Act, ActKind, SwarmRun


@pytest.mark.parametrize("served", [0, 1], ids=["its sync is lost", "its sync arrives"])
@pytest.mark.parametrize("identity", list(Identity))
def test_process_that_is_killed_at_its_sync_hears_no_assignment(
    identity: Identity, served: int
) -> None:
    doom = Act(kind=ActKind.CRASH_AT_SYNC, process="p1", for_ms=50, number=served, times=2)
    run = SwarmRun(
        seed=1,
        policy=Choice(name="simple"),
        assignor="sticky",
        rebalance_timeout_ms=600,
        acts=(
            Act(kind=ActKind.RESIZE, topics=("T",), number=2),
            Act(kind=ActKind.START, process="p1", topics=("T",), identity=identity),
            doom,
        ),
        healed_after_ms=100,
    )
    played = play(run)
    assert played.violations == ()
    kinds = (ProcessStarted, ProcessEnded, AssignmentReceived)
    lives = [type(one.record) for one in played.telemetry if isinstance(one.record, kinds)]
    first_lives = [ProcessStarted, ProcessEnded, ProcessStarted, ProcessEnded, ProcessStarted]
    assert lives[:6] == [*first_lives, AssignmentReceived]
