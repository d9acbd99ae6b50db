"""Episodes of simulated groups with a known truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from coopgroup.pipeline.episodes.job import checkpointed, history_episodes, telemetry_episodes
from coopgroup.pipeline.history import commit_records, group_records, history_frames
from coopgroup.pipeline.telemetry import events_of, read_lines, rounds_of, work_of
from coopgroup.simulator.run import Run, simulate
from coopgroup.simulator.scenario.file import read_scenario
from coopgroup.telemetry import to_json
from tests.spark.frames import make
from tests.spark.simulated import raw_frame, records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCENARIOS = Path(__file__).resolve().parents[2] / "simulations"
# A process is killed at 60 s and returns at 80 s under another member id.
KILLED_MS, BACK_MS = 60_000, 80_000
COMMIT_MS = 5_000
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
KNOWN = "group string, member string, known_as string, session_ms int, rejoin_ms int"
LINE = "source string, source_partition int, source_offset long, written_ms long, line string"


def played(policy: str) -> Run:
    """Return a run with the death of a process under a policy."""
    return simulate(read_scenario(str(SCENARIOS / "process_death.toml")), policy=policy, seed=1)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """Return one run for each policy; each group has the name of its policy."""
    found = {}
    for policy in ("simple", "deferred", "eager"):
        run = played(policy)
        telemetry = tuple(evolve(one, group=policy) for one in run.telemetry)
        found[policy] = evolve(run, telemetry=telemetry)
    return found


@pytest.fixture(scope="module")
def episodes(spark: SparkSession, runs: dict[str, Run]) -> dict[str, DataFrame]:
    """Return the episodes of the history that a group coordinator would have."""
    records = [record for run in runs.values() for record in records_of(run)]
    raw = raw_frame(spark, records)
    frames = history_frames(
        commit_records(raw).localCheckpoint(), group_records(raw).localCheckpoint()
    )
    names = ("commits", "generations", "members", "assignments")
    tables = [frames[name].localCheckpoint() for name in names]
    found = history_episodes(*tables, lag=make(spark, "lag"))
    return {name: checkpointed(frame) for name, frame in found.items()}


@pytest.fixture(scope="module")
def observed(spark: SparkSession, runs: dict[str, Run]) -> dict[str, DataFrame]:
    """Return the episodes of the members' own telemetry."""
    lines = [
        ("file", None, None, None, json.dumps(to_json(one)))
        for run in runs.values()
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


@pytest.mark.parametrize("policy", ["simple", "deferred", "eager"])
def test_history_finds_the_absence(policy: str, episodes: dict[str, DataFrame]) -> None:
    """One member left and returned as the same client; the time of departure is within bounds."""
    table = episodes["absences"]
    (absence,) = table.where(table.group == policy).collect()
    assert absence.client_id == "worker-3"
    assert absence.returned_as == "client_and_host"
    assert absence.partitions == 4
    assert absence.gone_earliest_ms <= KILLED_MS <= absence.gone_latest_ms
    assert KILLED_MS - COMMIT_MS - 1_000 <= absence.gone_ms <= KILLED_MS
    assert absence.gone_latest_ms <= KILLED_MS + SESSION_MS + 1_000
    # The other members learn of the round with their next heartbeat.
    assert BACK_MS <= absence.returned_ms <= BACK_MS + HEARTBEAT_MS + 1_000


@pytest.mark.parametrize("policy", ["simple", "deferred", "eager"])
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


@pytest.mark.parametrize("policy", ["simple", "deferred", "eager"])
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
