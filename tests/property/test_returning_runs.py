"""Runs in which processes return (`tests/swarm/returning.py`)."""

from pathlib import Path

import pytest

from coopgroup.simulator.scenario import Choice, Identity
from coopgroup.telemetry import AssignmentReceived, ProcessEnded, ProcessStarted
from tests.support.mutants import RARE_MUTANTS, broken
from tests.swarm.play import play
from tests.swarm.returning import draw_returning
from tests.swarm.run_files import read_run, run_to_toml
from tests.swarm.runs import Act, ActKind, SwarmRun


@pytest.mark.parametrize(
    ("bug", "seed"),
    [
        ("the remainder of a released loss goes back to its owner", 7),
        ("a late join of a static member renews its lease", 154),
        ("the share of a departed member is lost as two", 987011103),
    ],
)
def test_bug_of_a_return_is_found_by_a_drawn_run(bug: str, seed: int) -> None:
    with broken(next(mutant for _, mutant in RARE_MUTANTS if mutant.name == bug)):
        assert play(draw_returning(seed)).violations


def test_returning_run_is_written_and_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for seed in range(50):
        run = draw_returning(seed)
        path.write_text(run_to_toml(run), encoding="utf-8")
        assert read_run(path) == run


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
