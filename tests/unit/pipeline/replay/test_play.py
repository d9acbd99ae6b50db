"""Replays: the simulated cost of an episode, in partitions of the real group."""

import pyarrow as pa
import pytest
from attrs import evolve

from coopgroup.pipeline.advice.choose import deferred
from coopgroup.pipeline.advice.cost import MoveCost
from coopgroup.pipeline.advice.warmups import with_warmups
from coopgroup.pipeline.replay.play import FIGURES, play_cells, replay
from coopgroup.pipeline.replay.scenario import ReplayedGroup
from coopgroup.simulator.scenario import Choice, How
from tests.unit.pipeline.return_times import history

COST = MoveCost(move_ms=8_000)
EPISODE = history([6_000]).episodes[0].shape


def group(cost: MoveCost = COST) -> ReplayedGroup:
    return ReplayedGroup.of(history([]), cost)


def test_partition_that_comes_back_costs_what_returning_costs() -> None:
    for return_ms in (8_000, 1_000, 0):
        cost = MoveCost(move_ms=8_000, return_ms=return_ms)
        found = replay(group(cost), EPISODE, deferred(30_000), seed=1)
        assert found.moved == 0
        assert found.unavailable_s == pytest.approx(2 * (6 + return_ms / 1_000), abs=0.5)


def test_partition_that_moves_costs_a_move_each_way() -> None:
    far = history([60_000]).episodes[0].shape
    found = replay(group(), far, deferred(0), seed=1)
    assert found.moved == 4
    assert found.unavailable_s == pytest.approx(2 * 1.5 + 4 * 8, abs=3)
    assert found.violations == 0


def test_killed_process_costs_the_same_whenever_it_is_back_within_its_session() -> None:
    """The group continues when the session ends, so advice need not know the exact return."""
    (gone,) = EPISODE.absences
    for policy in (Choice(name="simple"), deferred(30_000)):
        costs = []
        for part in (0.1, 0.5):
            absent_ms = round(part * group().session_timeout_ms)
            killed = evolve(gone, how=How.CRASH, absent_ms=absent_ms)
            found = replay(group(), evolve(EPISODE, absences=(killed,)), policy, seed=1)
            assert found.moved == 0
            costs.append(found.unavailable_s)
        assert costs[0] == pytest.approx(costs[1], rel=0.1)


def test_warm_ups_save_the_restore_of_the_way_back_and_standbys_of_both() -> None:
    far = history([60_000]).episodes[0].shape
    warm, doubled = with_warmups(Choice(name="simple"), COST, members=3)
    costs = []
    for policy in (Choice(name="simple"), warm, doubled):
        found = replay(group(), far, policy, seed=1)
        assert (found.moved, found.violations) == (4, 0)
        costs.append(found.unavailable_s)
    assert costs == pytest.approx([2 * 1.5 + 4 * 8, 2 * 1.5 + 2 * 8, 2 * 1.5], abs=3)


@pytest.mark.parametrize("session_timeout_ms", [1, 600_000])
def test_session_of_any_length_can_be_played(session_timeout_ms: int) -> None:
    played = ReplayedGroup.of(evolve(history([]), session_timeout_ms=session_timeout_ms), COST)
    for policy in (Choice(name="simple"), deferred(30_000)):
        assert replay(played, EPISODE, policy, seed=1).violations == 0


def test_figures_are_those_of_the_real_group() -> None:
    one = replay(group(), EPISODE, deferred(30_000), seed=1)
    four = replay(evolve(group(), partition_factor=4.0), EPISODE, deferred(30_000), seed=1)
    assert four.unavailable_s == pytest.approx(4 * one.unavailable_s)
    assert four.lag_peak == 4 * one.lag_peak > 0
    assert four.unavailable_peak == 4 * one.unavailable_peak


def test_rows_number_cells_with_settings_fastest_and_tell_what_failed() -> None:
    batches = play_cells(
        iter([pa.RecordBatch.from_pydict({"id": [1, 2]})]),
        group=group(),
        episodes=(EPISODE, EPISODE),
        policies=(deferred(30_000), Choice(name="gone")),
        seed=1,
    )
    (batch,) = batches
    failed, played = batch.to_pylist()
    assert [failed["cell"], played["cell"]] == [1, 2]
    assert "ConfigurationError" in failed["error"]
    assert "\n" not in failed["error"]
    assert played["error"] is None
    expected = replay(group(), EPISODE, deferred(30_000), seed=1)
    assert [played[name] for name in FIGURES] == [getattr(expected, name) for name in FIGURES]
