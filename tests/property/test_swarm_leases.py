"""The swarm's check of leases: it finds a lease that is too long before there are two owners."""

from pathlib import Path

import pytest

from tests.support.mutants import MUTANTS, RARE_MUTANTS, broken
from tests.swarm.directed import draw_directed
from tests.swarm.play import play
from tests.swarm.run_files import read_run
from tests.swarm.runs import SwarmRun, draw

BUGS = {mutant.name: mutant for mutant in (*MUTANTS, *(mutant for _, mutant in RARE_MUTANTS))}


def _regression(name: str) -> SwarmRun:
    return read_run(Path("simulations/regressions") / f"{name}.toml")


@pytest.mark.parametrize(
    ("bug", "run"),
    [
        ("the lease counts from the answer", draw(0)),
        ("the lease lasts twice as long", draw(0)),
        ("any heartbeat proves peace", draw(5)),
        ("the lease does not end with the time to rejoin", draw_directed(0)),
        ("the sync of a follower renews its lease", _regression("lease_of_a_late_sync")),
        (
            "a late join of a static member renews its lease",
            _regression("static_round_ended_without_its_join"),
        ),
    ],
)
def test_lease_that_outlasts_the_session_is_found_without_two_owners(
    bug: str, run: SwarmRun
) -> None:
    assert play(run).violations == ()
    with broken(BUGS[bug]):
        assert {one.checker for one in play(run).violations} == {"lease"}


def test_false_answer_of_the_swarm_is_no_proof_against_the_member() -> None:
    """The simulated network refuses the heartbeat; a broker would have renewed the session."""
    assert play(_regression("heartbeat_refused_by_the_network")).violations == ()
