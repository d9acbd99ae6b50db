"""Simulated groups, their bytes in the internal topic, episodes with a known truth, and advice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from attrs import evolve

from coopgroup.pipeline.advice.choose import ENOUGH, Advice, advise, search
from coopgroup.pipeline.advice.cost import MoveCost, deferred
from coopgroup.pipeline.advice.from_tables import history_of
from coopgroup.pipeline.advice.history import Absence, Episode
from coopgroup.pipeline.episodes.job import checkpointed, telemetry_episodes
from coopgroup.pipeline.replay import ReplayedGroup, SparkPlay
from coopgroup.pipeline.telemetry import events_of, read_lines, rounds_of, work_of
from coopgroup.simulator.run import Run
from coopgroup.simulator.scenario import (
    Close,
    Cost,
    Crash,
    Event,
    Group,
    How,
    MemberSet,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario.file import read_scenario
from coopgroup.telemetry import to_json
from tests.spark.frames import Given
from tests.spark.simulated import Played, history_of_groups, play
from tests.spark.stories import AS_OF_MS
from tests.support.written_log import Log
from tests.unit.pipeline.return_times import FAMILIES, Cells, on_grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLICIES = ("simple", "deferred", "eager")
SCENARIOS = Path(__file__).resolve().parents[2] / "simulations"
# A process is killed at 60 s and returns at 80 s under another member id.
KILLED_MS, BACK_MS = 60_000, 80_000
SESSION_MS = 10_000
KNOWN = "group string, member string, known_as string, session_ms int, rejoin_ms int"
LINE = "source string, source_partition int, source_offset long, written_ms long, line string"


@pytest.fixture(scope="module")
def groups() -> list[Played]:
    """Return one group for each policy, with the death of a process."""
    scenario = read_scenario(str(SCENARIOS / "process_death.toml"))
    return [play(scenario, Log(group=policy), policy=policy, seed=1) for policy in POLICIES]


@pytest.fixture(scope="module")
def runs(groups: list[Played]) -> dict[str, Run]:
    return {group.log.group: group.run for group in groups}


@pytest.fixture(scope="module")
def episodes(spark: SparkSession, groups: list[Played]) -> dict[str, DataFrame]:
    """Return the episodes of the history that a group coordinator would have."""
    return history_of_groups(spark, groups)


@pytest.fixture(scope="module")
def observed(spark: SparkSession, runs: dict[str, Run]) -> dict[str, DataFrame]:
    """Return the episodes of the members' own telemetry."""
    lines = [
        ("file", None, None, None, json.dumps(to_json(evolve(one, group=policy))))
        for policy, run in runs.items()
        for one in run.telemetry
    ]
    events = events_of(read_lines(spark.createDataFrame(lines, LINE))).localCheckpoint()
    tables = [checkpointed(frame) for frame in (rounds_of(events), work_of(events))]
    known = spark.createDataFrame([], KNOWN)
    found = telemetry_episodes(events, *tables, known=known)
    return {name: checkpointed(frame) for name, frame in found.items()}


def after_death(frame: DataFrame, policy: str) -> list[Any]:
    """Return the rebalances of a group after the kill, in order."""
    chosen = frame.where((frame.group == policy) & (frame.end_ms > KILLED_MS))
    return chosen.orderBy("begin_ms").collect()


@pytest.mark.parametrize("policy", POLICIES)
def test_history_finds_the_rebalances(
    policy: str, runs: dict[str, Run], episodes: dict[str, DataFrame]
) -> None:
    """Rounds and moves equal those of the run; unavailability is within its bound."""
    truth = runs[policy].measures
    found = after_death(episodes["rebalances"], policy)
    assert [one.trigger for one in found] == ["leave", "join"]
    assert sum(one.rounds for one in found) == truth.rounds
    assert sum(one.moved for one in found) <= truth.moved
    assert sum(one.moved + one.moved_twice for one in found) >= truth.moved - truth.moved_twice
    seconds = sum(one.unavailable_partition_s for one in found)
    error = sum(one.unavailable_error_s for one in found)
    assert abs(seconds - truth.unavailable_partition_s) <= error
    assert all(one.begin_earliest_ms <= one.begin_ms <= one.end_ms for one in found)


@pytest.mark.parametrize("policy", POLICIES)
def test_telemetry_says_it_exactly(
    policy: str, runs: dict[str, Run], observed: dict[str, DataFrame]
) -> None:
    """No estimates where members report the times: the figures equal those of the run."""
    truth = runs[policy].measures
    found = after_death(observed["rebalances"], policy)
    assert sum(one.rounds for one in found) == truth.rounds
    assert sum(one.moved for one in found) >= truth.moved - truth.moved_twice
    seconds = sum(one.unavailable_partition_s for one in found)
    assert seconds == pytest.approx(truth.unavailable_partition_s, abs=0.002)
    assert found[0].trigger == "leave"
    assert all(one.unavailable_error_s == 0 for one in found)


def test_a_delay_is_part_of_a_rebalance_where_the_leader_says_so(
    observed: dict[str, DataFrame], episodes: dict[str, DataFrame]
) -> None:
    """Telemetry announces the next round; the history shows two rebalances."""
    (one,) = after_death(observed["rebalances"], "deferred")
    assert (one.rounds, one.moved) == (2, 0)
    assert BACK_MS - KILLED_MS - SESSION_MS <= one.duration_ms <= BACK_MS - KILLED_MS
    assert len(after_death(episodes["rebalances"], "deferred")) == 2


# --- advice ---------------------------------------------------------------------------------------

GRID_S = np.geomspace(4, 150, 6)
COST = MoveCost(move_ms=20_000)
# Between the durations, as a real timeout is: no absence is exactly as long as a timeout.
TIMEOUTS_MS = (0, 5_000, 10_000, 20_000, 40_000, 75_000)
ABSENCES = ENOUGH
REST_MS, REPLACED_MS = 60_000, 150_000
MEMBERS, PARTITIONS = 3, 6
KINDS: Final = {"short": How.CLOSE, "long": How.CRASH, "never": How.CRASH}
"""How the processes of a family go: a restart closes them, what else happens does not ask."""


def story(away_ms: list[int | None], how: How) -> Scenario:
    """Return a story: processes leave in turn; one that never returns is replaced by another."""
    names = [f"m{number + 1}" for number in range(MEMBERS)]
    members = [MemberSet(name=name, topics=("orders",)) for name in names]
    events: list[Event] = []
    kind = Close if how is How.CLOSE else Crash
    at_ms = REST_MS
    for number, away in enumerate(away_ms):
        place = number % MEMBERS
        events.append(kind(at_ms=at_ms, member=names[place], back_after_ms=away))
        at_ms += REPLACED_MS if away is None else away
        if away is None:
            names[place] = f"new-{number}"
            members.append(MemberSet(name=names[place], topics=("orders",), start_ms=at_ms))
        at_ms += REST_MS
    return Scenario(
        duration_ms=at_ms,
        # The absence of the last member must be observed for longer than any timeout.
        settle_ms=900_000,
        group=Group(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=60_000),
        topics=(Topic(name="orders", partitions=PARTITIONS, rate_per_s=(1.0,) * PARTITIONS),),
        members=tuple(members),
        costs=(Cost(restore_ms=Span(COST.move_ms, COST.move_ms)),),
        events=tuple(events),
    )


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Given:
    """Return history and episodes of a group of each family."""
    groups = []
    for family, how in KINDS.items():
        away_ms = on_grid(FAMILIES[family](np.random.default_rng(5), ABSENCES), GRID_S)
        groups.append(play(story(away_ms, how), Log(group=family), seed=1))
        assert not groups[-1].run.violations
    return Given(
        spark=spark,
        frames=history_of_groups(spark, groups, is_named=True),
        notes={"episodes": {"as_of_ms": AS_OF_MS}},
    )


def true_costs(family: str) -> list[float]:
    """Return the cost of each timeout over all durations of the family, played with other seeds."""
    drawn = Counter(on_grid(FAMILIES[family](np.random.default_rng(99), 100_000), GRID_S))
    episodes = [
        Episode(
            begin_ms=0,
            absences=(Absence(at_ms=0, process=1, absent_ms=away_ms, how=KINDS[family]),),
        )
        for away_ms in drawn
    ]
    costs = Cells(COST, seed=2)(episodes, [deferred(one) for one in TIMEOUTS_MS])[..., 0]
    summed: list[float] = (np.array(list(drawn.values())) @ costs).tolist()
    return summed


@pytest.mark.verify
@pytest.mark.parametrize(
    ("family", "is_patient"), [("short", True), ("long", False), ("never", False)]
)
def test_advice_from_the_bytes_of_a_topic_is_within_five_percent_of_the_best(
    family: str, is_patient: bool, tables: Given
) -> None:
    """The best advice waits only for members that return soon; the history distinguishes them."""
    history = history_of(tables, family)
    assert (history.members, history.partitions) == (MEMBERS, PARTITIONS)
    absences = [one for episode in history.episodes for one in episode.absences]
    assert (len(absences), history.left_out) == (ABSENCES, 0)
    assert {one.how for one in absences} == {KINDS[family]}
    assert {one.absent_ms is None for one in absences} == {family == "never"}

    play = SparkPlay(spark=tables.spark, groups=[ReplayedGroup.of(history, COST)])
    steps = search(history, COST, timeouts_ms=TIMEOUTS_MS, tried=2, only_timeouts=True)
    (given,) = advise([steps], play)
    assert isinstance(given, Advice)
    assert (given.failed, given.violations) == (0, 0)
    # The replays of today's setting cost what the history shows.
    assert given.model_error_s is not None
    assert given.model_error_s <= 0.2 * given.current.unavailable_s.mean
    true = true_costs(family)
    chosen = [deferred(one) for one in TIMEOUTS_MS].index(given.advised.policy)
    assert true[chosen] <= 1.05 * min(true)
    assert (chosen > 0) is is_patient
