"""Spark's plans of the hot paths: Arrow in batches, no Python per row, no cross joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coopgroup.pipeline.absences import absences_of, arrivals_of, departures_of
from coopgroup.pipeline.history import commit_records, group_records, history_frames
from coopgroup.pipeline.lag import aliveness_of, interests_of, lag_of, loads_of
from coopgroup.pipeline.outages import commit_gaps, outages_of, patience_of
from coopgroup.pipeline.processes import holders_of, members_of, states_of, steps_of
from coopgroup.pipeline.rebalances import numbered_steps, owner_changes, rebalances_of
from coopgroup.pipeline.skew import skew_of
from coopgroup.pipeline.telemetry import events_of, read_lines, rounds_of, work_of
from coopgroup.pipeline.telemetry_episodes import (
    led_rebalances,
    outages_of_work,
    rebalances_of_rounds,
)
from coopgroup.pipeline.work_spans import known_members, work_spans
from tests.spark.frames import make
from tests.spark.simulated import raw_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BANNED = (
    "BatchEvalPython",  # a Python function for each row
    "ArrowEvalPython",  # the same with columns: acceptable, but nothing here needs it
    "MapInPandas",
    "FlatMapGroupsInPandas",
    "CartesianProduct",
    "BroadcastNestedLoopJoin",
    "SinglePartition",  # a window or a sort of all rows in one task
)
LINES = "source string, source_partition int, source_offset long, written_ms long, line string"


@pytest.fixture(scope="module")
def plans(spark: SparkSession) -> dict[str, str]:
    """Return physical plans by job, each from tables in files."""

    def table(name: str) -> DataFrame:
        return make(spark, name, {}).localCheckpoint()

    def cut(frame: DataFrame) -> DataFrame:
        return spark.createDataFrame([], frame.schema)

    raw = raw_frame(spark, [(1, b"\0\1", b"")])
    found = dict(history_frames(commit_records(raw), group_records(raw)))
    commits, ends = table("commits"), table("ends")
    interests = interests_of(commits, table("members"))
    found |= {
        "interests": interests,
        "lag": lag_of(ends, commits, cut(interests), aliveness_of(table("generations")), "latest"),
        "loads": loads_of(ends, commits, cut(interests)),
    }
    events = events_of(read_lines(spark.createDataFrame([], LINES)))
    found |= {"events": events, "rounds": rounds_of(cut(events)), "work": work_of(cut(events))}
    found["states"] = states_of(table("generations"))
    states = cut(found["states"])
    found["present"] = members_of(table("members"), states)
    present = cut(found["present"])
    found["holders"] = holders_of(table("assignments"), present)
    holders = cut(found["holders"])
    found["numbered"] = numbered_steps(steps_of(states))
    numbered = cut(found["numbered"])
    found["changes"] = owner_changes(holders, numbered)
    changes = cut(found["changes"])
    found["gaps"] = commit_gaps(commits)
    patience = cut(patience_of(present))
    found["outages"] = outages_of(changes, cut(found["gaps"]), table("lag"), patience)
    found["rebalances"] = rebalances_of(numbered, present, changes, cut(found["outages"]))
    found["departures"] = departures_of(present, states, holders, commits)
    found["arrivals"] = arrivals_of(present)
    departures, arrivals = cut(found["departures"]), cut(found["arrivals"])
    found["absences"] = absences_of(departures, arrivals, states, commits, cut)
    found["skew"] = skew_of(table("lag"), states, holders)
    found["led"] = led_rebalances(table("rounds"))
    led, seen = cut(found["led"]), table("events")
    found["known"] = known_members(present)
    found["spans"] = work_spans(table("work"), seen, led, cut(found["known"]))
    spans = cut(found["spans"])
    found["outages of work"] = outages_of_work(spans)
    found["rebalances of rounds"] = rebalances_of_rounds(
        led, spans, seen, cut(found["outages of work"])
    )
    return {
        name: frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - as explain does
        for name, frame in found.items()
    }


def test_nothing_is_computed_row_by_row_or_crosswise(plans: dict[str, str]) -> None:
    steps = [(name, step) for name, plan in plans.items() for step in BANNED if step in plan]
    assert steps == []


def test_records_are_decoded_in_batches(plans: dict[str, str]) -> None:
    """The only Python in the hot paths is the codec, with Arrow."""
    assert all("MapInArrow" in plans[name] for name in ("commits", "generations", "assignments"))
    with_python = {name for name, plan in plans.items() if "Python" in plan or "MapInArrow" in plan}
    assert with_python == {"commits", "generations", "members", "assignments", "rejected"}
