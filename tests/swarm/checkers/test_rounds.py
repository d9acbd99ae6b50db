"""Moves per round, and delays."""

import attrs

from coopgroup.telemetry import AssignmentReceived, ResourcesStarted
from tests.swarm.checkers.rounds import check_delays, check_ration
from tests.unit.simulator.checkers.rows import T0, T01, T1, envelope, led


def test_ration_when_too_much_moves_is_broken() -> None:
    """A resource that waits for its present owner counts as moved."""
    assert list(check_ration([envelope(1, 5, led(revoked=T0, waiting=T01))], 1)) == []
    (violation,) = check_ration([envelope(1, 5, led(revoked=T01, waiting=T01))], 1)
    assert "generation 5 moves more than 1" in violation.message


def test_ration_does_not_count_what_a_late_join_claims_from_its_owner() -> None:
    """Regression: only the older claim was revoked, and the move comes later."""
    first = envelope(1, 5, AssignmentReceived(leader=False, gained=T01))
    second = attrs.evolve(envelope(2, 6, AssignmentReceived(leader=False, kept=T1)), member="n")
    decided = attrs.evolve(led(revoked=T01, waiting=T01), members=("m", "n"))
    rows = [first, second, envelope(3, 7, decided)]
    assert list(check_ration(rows, 1)) == []
    assert len(list(check_ration(rows, 0))) == 1, "T-0 moves"
    rows[-1] = envelope(3, 7, attrs.evolve(decided, members=("m",)))
    assert len(list(check_ration(rows, 1))) == 1, "the owner is not in the round"


def test_ration_does_not_count_what_must_stop_anyway() -> None:
    gone = [envelope(1, 5, led(revoked=T01))]
    contested = [envelope(1, 5, led(revoked=T01, waiting=T01, contested=T1))]
    again = [
        envelope(1, 5, led(revoked=T0, waiting=T01)),
        envelope(2, 6, led(revoked=T01, waiting=T01)),
    ]
    for rows in (gone, contested, again):
        assert list(check_ration(rows, 1)) == []


def test_delays_when_something_lost_waits_too_long_are_broken() -> None:
    rows = [envelope(100, 5, led(lost=T0)), envelope(900, 6, led(lost=T0))]
    (violation,) = check_delays(rows, 300, 100, 0, 1_000)
    assert (violation.at_ms, violation.message) == (500, "T-0, lost at 100, still waits")
    assert list(check_delays(rows, 300, 100, 700, 1_000)) == []


def test_delays_end_with_a_round_that_gives_it_away() -> None:
    rows = [
        envelope(100, 5, led(lost=T0)),
        envelope(400, 6, led()),
        envelope(450, 6, ResourcesStarted(resources=T0)),
        envelope(800, 7, led(lost=T0)),
    ]
    assert list(check_delays(rows, 300, 100, 0, 1_000)) == []
