"""Replays: a group like the real one, all events of an episode, and their cost."""

import pyarrow as pa
import pytest

from coopgroup.pipeline.advice.cost import MoveCost, deferred, with_warmups
from coopgroup.pipeline.advice.history import Absence, Episode
from coopgroup.pipeline.replay import (
    FIGURES,
    Cells,
    ReplayedGroup,
    play_cells,
    played_absences,
    replay,
    scenario_of,
)
from coopgroup.simulator.scenario import Choice, Crash, How, Identity, Scale
from coopgroup.simulator.scenario.checks import check_scenario
from tests.unit.pipeline.return_times import history

COST = MoveCost(move_ms=8_000)
SIMPLE = Choice(name="simple")
EPISODE = history([6_000]).episodes[0].shape


def episode(*processes: int, joined: int = 0) -> Episode:
    return Episode(
        begin_ms=77,
        absences=tuple(
            Absence(at_ms=1_000 * place, process=one, absent_ms=5_000, how=How.CLOSE)
            for place, one in enumerate(processes)
        ),
        joined=joined,
    )


def test_deployment_of_more_than_the_group_is_thinned() -> None:
    group = ReplayedGroup.of(history([], members=3, partitions=6), COST)
    whole = episode(*range(1, 9))
    kept, factor = played_absences(group, whole)
    assert [one.process for one in kept] == [1, 8]
    assert factor == 4
    check_scenario(scenario_of(group, whole, SIMPLE))
    assert played_absences(group, episode(1, 2)) == (episode(1, 2).absences, 1.0)


def test_kinds_of_absence_and_joins_become_events() -> None:
    group = ReplayedGroup.of(history([], is_static=True), COST)
    happens = Episode(
        begin_ms=0,
        absences=(Absence(at_ms=0, process=7, absent_ms=None, how=How.CRASH),),
        joined=2,
    )
    scenario = scenario_of(group, happens, SIMPLE)
    check_scenario(scenario)
    crash, scale = scenario.events
    assert isinstance(crash, Crash)
    assert (crash.member, crash.back_after_ms) == ("member-1", None)
    assert isinstance(scale, Scale)
    assert scale.to == group.members + 2
    assert scenario.members[0].identity is Identity.STATIC


def test_run_lasts_until_all_time_outs_and_rations_are_over() -> None:
    """Partitions that are out of service at the end would count for nothing."""
    group = ReplayedGroup.of(history([]), COST)
    waits = Choice(
        name="incremental",
        options={
            "scheduled_rebalance_timeout_ms": 100_000,
            "max_moves_per_round": 1,
            "move_interval_ms": 7_000,
        },
    )
    plain = scenario_of(group, episode(1), SIMPLE)
    rationed = scenario_of(group, episode(1), waits)
    longer_ms = 100_000 + group.partitions * (7_000 + COST.move_ms)
    assert rationed.settle_ms == plain.settle_ms + longer_ms


def group(cost: MoveCost = COST) -> ReplayedGroup:
    return ReplayedGroup.of(history([]), cost)


def test_partition_that_comes_back_costs_what_returning_costs() -> None:
    for return_ms in (8_000, 1_000, 0):
        cost = MoveCost(move_ms=8_000, return_ms=return_ms)
        found = replay(group(cost), EPISODE, deferred(30_000), seed=1)
        assert found.moved == 0
        assert found.unavailable_s == pytest.approx(2 * (6 + return_ms / 1_000), abs=0.5)


def test_warm_ups_save_the_restore_of_the_way_back_and_standbys_of_both() -> None:
    far = history([60_000]).episodes[0].shape
    warm, doubled = with_warmups(SIMPLE, COST, members=3)
    costs = []
    for policy, restores in ((SIMPLE, 4), (warm, 2), (doubled, 0)):
        found = replay(group(), far, policy, seed=1)
        assert (found.moved, found.restores, found.violations) == (4, restores, 0)
        costs.append(found.unavailable_s)
    assert costs == pytest.approx([2 * 1.5 + 4 * 8, 2 * 1.5 + 2 * 8, 2 * 1.5], abs=3)


def test_rows_number_cells_with_settings_fastest_and_tell_what_failed() -> None:
    batches = play_cells(
        iter([pa.RecordBatch.from_pydict({"id": [1, 2]})]),
        some=[
            Cells(group=group(), episodes=(EPISODE,), policies=(SIMPLE,), seeds=1),
            Cells(
                group=group(),
                episodes=(EPISODE, EPISODE),
                policies=(Choice(name="gone"), deferred(30_000)),
                seeds=2,
            ),
        ],
    )
    (batch,) = batches
    failed, played = batch.to_pylist()
    assert [failed["cell"], played["cell"]] == [1, 2]
    assert "ConfigurationError" in failed["error"]
    assert "\n" not in failed["error"]
    assert played["error"] is None
    expected = replay(group(), EPISODE, deferred(30_000), seed=1)
    assert [played[name] for name in FIGURES] == [getattr(expected, name) for name in FIGURES]
