"""Advice end to end: simulated groups, their bytes in the internal topic, episodes, advice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from attrs import evolve, frozen

from coopgroup.pipeline.advice.choose import ENOUGH, advise
from coopgroup.pipeline.advice.cost import MoveCost, deferred
from coopgroup.pipeline.advice.history import Absence, Episode
from coopgroup.pipeline.advice.tables import history_of
from coopgroup.pipeline.episodes.job import checkpointed, history_episodes
from coopgroup.pipeline.history import commit_records, group_records, history_frames
from coopgroup.pipeline.replay import ReplayedGroup, SparkPlay
from coopgroup.simulator.run import simulate
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
from tests.spark.frames import make
from tests.spark.simulated import raw_frame, records_of
from tests.unit.pipeline.return_times import FAMILIES, Cells, on_grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.simulated import Records

pytestmark = pytest.mark.verify

GRID_S = np.geomspace(4, 150, 6)
COST = MoveCost(move_ms=20_000)
# Between the durations, as a real timeout is: no absence is exactly as long as a timeout.
TIMEOUTS_MS = (0, 5_000, 10_000, 20_000, 40_000, 75_000)
ABSENCES = ENOUGH
REST_MS, REPLACED_MS = 60_000, 150_000
SESSION_MS = 10_000
MEMBERS, PARTITIONS = 3, 6
KINDS: Final = {"short": How.CLOSE, "long": How.CRASH, "never": How.CRASH}
"""How the processes of a family go: a restart closes them, what else happens does not ask."""


@frozen(kw_only=True)
class Given:
    """Computed tables; the others are empty."""

    spark: SparkSession
    frames: dict[str, DataFrame]
    folder: str = "tables"

    def read(self, name: str) -> DataFrame:
        return self.frames[name] if name in self.frames else make(self.spark, name)


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


def written(family: str) -> Records:
    """Return the group coordinator's records for a group with the absences of a family."""
    away_ms = on_grid(FAMILIES[family](np.random.default_rng(5), ABSENCES), GRID_S)
    run = simulate(story(away_ms, KINDS[family]), seed=1)
    assert not run.violations
    telemetry = tuple(evolve(one, group=family) for one in run.telemetry)
    return records_of(evolve(run, telemetry=telemetry))


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Given:
    """Return history and episodes of a group of each family."""
    raw = raw_frame(spark, [record for family in KINDS for record in written(family)])
    frames = history_frames(
        commit_records(raw).localCheckpoint(), group_records(raw).localCheckpoint()
    )
    names = ("commits", "generations", "members", "assignments")
    history = {name: checkpointed(frames[name]) for name in names}
    episodes = history_episodes(*history.values(), lag=make(spark, "lag"))
    found = {name: checkpointed(episodes[name]) for name in ("rebalances", "absences")}
    return Given(spark=spark, frames={**history, **found})


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

    play = SparkPlay(spark=tables.spark, group=ReplayedGroup.of(history, COST))
    given = advise(history, COST, play, timeouts_ms=TIMEOUTS_MS, tried=2, only_timeouts=True)
    assert (given.failed, given.violations) == (0, 0)
    # The replays of today's setting cost what the history shows.
    assert given.model_error_s is not None
    assert given.model_error_s <= 0.2 * given.current.unavailable_s.mean
    true = true_costs(family)
    chosen = [deferred(one) for one in TIMEOUTS_MS].index(given.advised.policy)
    assert true[chosen] <= 1.05 * min(true)
    assert (chosen > 0) is is_patient
