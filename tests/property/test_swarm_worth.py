"""The swarm's own worth: deliberate bugs in the core, and how many of them it finds.

Here a broken core is played. The test prints a table: which checker found which bug after how many
seeds. The first run for each bug is the run that found it last (`tests.support.worth` finds such
runs again, with all 500 seeds and all histories of exhaustion). A few more seeds follow, so that a
change of the core or of the draws does not immediately fail the test.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.host_mutants import FOUND_BY, HOST_MUTANTS, PROCESSING, REVERTED
from tests.support.mutants import MUTANTS, RARE_MUTANTS, Mutant, broken
from tests.support.warm_mutants import WARM_MUTANTS
from tests.support.worth import Hunt, Start, hunt, known_runs, runs_of, table
from tests.swarm.directed import draw_directed
from tests.swarm.play import play
from tests.swarm.returning import draw_returning
from tests.swarm.run_files import read_run
from tests.swarm.runs import SwarmRun, draw
from tests.swarm.warm import draw_warm

MORE_SEEDS: Final = 10  # of each kind
FOUND_MIN: Final = 101
HOST_BUGS_FOUND_MIN: Final = 20
BUGS: Final = {
    mutant.name: mutant for mutant in (*MUTANTS, *(mutant for _, mutant in RARE_MUTANTS))
}


def _regression(name: str) -> SwarmRun:
    return read_run(Path("simulations/regressions") / f"{name}.toml")


def test_bug_can_be_made_and_taken_back(subtests: pytest.Subtests) -> None:
    """The changed line still exists; afterwards the core is correct again."""
    for mutant in MUTANTS:
        with subtests.test(mutant=mutant):
            with broken(mutant) as function:
                assert function.__code__ is mutant.code
            assert function.__code__ is not mutant.code


def test_bugs_are_many_and_all_over_the_core() -> None:
    """No bug is listed twice."""
    assert len(MUTANTS) == 101
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    places = {mutant.place.split(".")[0].split(":")[0] for mutant in MUTANTS}
    assert places >= {"member", "leader", "model", "policies", "session"}


@pytest.mark.parametrize(
    ("run", "mutant"),
    [
        *((_regression(name), mutant) for name, mutant in RARE_MUTANTS),
        *((draw_warm(seed), mutant) for seed, mutant in WARM_MUTANTS),
        (draw_returning(7), BUGS["the remainder of a released loss goes back to its owner"]),
        (draw_returning(154), BUGS["a late join of a static member renews its lease"]),
        (draw_returning(987011103), BUGS["the share of a departed member is lost as two"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_run_finds_the_bug_that_it_is_kept_for(run: SwarmRun, mutant: Mutant) -> None:
    assert not play(run).violations
    with broken(mutant):
        assert play(run).violations


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


def test_run_that_found_a_bug_last_finds_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The first tier's part of the table: one run for each bug."""
    known = known_runs()
    hunts = [hunt(one, [known[one.name]] if one.name in known else ()) for one in MUTANTS]
    _show(hunts, capsys)


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_swarm_finds_every_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """By the run that found each last, or by a few seeds."""
    known = known_runs()
    hunts = [_hunted(mutant, known.get(mutant.name)) for mutant in MUTANTS]
    _show(hunts, capsys)


@pytest.mark.parametrize(
    "mutant", [*HOST_MUTANTS, *REVERTED, *PROCESSING], ids=lambda mutant: mutant.name
)
def test_bug_of_callbacks_is_found_by_the_run_that_found_it_last(mutant: Mutant) -> None:
    """A bug that no run has found can at least be made."""
    runs = [FOUND_BY[mutant.name]] if mutant.name in FOUND_BY else []
    found = hunt(mutant, runs)
    assert (found.start is None) == (not runs), found


@pytest.mark.verify
@pytest.mark.timeout(3_600)
def test_swarm_of_consumers_finds_twenty_of_their_bugs() -> None:
    """Within 400 runs each; and all bugs that this code once had."""
    found = [hunt(one, _runs_of_consumers(400)) for one in HOST_MUTANTS]
    assert sum(one.start is not None for one in found) >= HOST_BUGS_FOUND_MIN, table(found)
    found = [hunt(one, _runs_of_consumers(400)) for one in REVERTED]
    assert all(one.start is not None for one in found), table(found)


def _runs_of_consumers(count: int) -> Iterator[tuple[str, int]]:
    return ((kind, seed) for seed in range(count // 2) for kind in ("polled", "looped"))


def _show(hunts: list[Hunt], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{table(hunts)}")  # noqa: T201 - the table is what this is for
    assert sum(one.start is not None for one in hunts) >= FOUND_MIN, table(hunts)


def _hunted(mutant: Mutant, known: tuple[str, Start] | None) -> Hunt:
    first = () if known is None else (known,)
    return hunt(mutant, (*first, *runs_of(range(MORE_SEEDS))))
