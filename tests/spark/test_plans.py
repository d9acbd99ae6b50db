"""Spark's plans of the hot paths: Arrow in batches, no Python per row, no cross joins.

Spark may broadcast a table that is small when the plan is made. A hint in the code broadcasts it
also when it has grown, so the plans are made without Spark's own broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import in_log_order
from coopgroup.pipeline.episodes.absences import absences_of, arrivals_of, departures_of
from coopgroup.pipeline.episodes.outages import (
    open_outages_of,
    outages_of,
    outages_of_work,
    patience_of,
)
from coopgroup.pipeline.episodes.processes import (
    holders_of,
    members_of,
    states_of,
    steps_of,
    worked_commits,
)
from coopgroup.pipeline.episodes.rebalances import (
    led_rebalances,
    numbered_steps,
    owner_changes,
    rebalances_of,
    rebalances_of_rounds,
)
from coopgroup.pipeline.episodes.work_spans import known_members, work_spans
from coopgroup.pipeline.lag import interests_of, lag_of, loads_of, skew_of, subscribed_moments
from coopgroup.pipeline.telemetry import events_of, read_lines, rounds_of, work_of
from tests.spark.frames import make
from tests.spark.simulated import frames_of, raw_frame

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
    "BroadcastExchange",  # by a hint: all rows in the memory of the driver and of each executor
)
BROADCASTS = "spark.sql.autoBroadcastJoinThreshold"
LINES = "source string, source_partition int, source_offset long, written_ms long, line string"


@pytest.fixture(scope="module")
def plans(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Return physical plans by job, each from tables in files."""
    spark.conf.set(BROADCASTS, "-1")
    yield {name: plan_of(frame) for name, frame in hot_frames(spark).items()}
    spark.conf.unset(BROADCASTS)


def hot_frames(spark: SparkSession) -> dict[str, DataFrame]:
    def table(name: str) -> DataFrame:
        return make(spark, name, {}).localCheckpoint()

    def cut(frame: DataFrame) -> DataFrame:
        return spark.createDataFrame([], frame.schema)

    raw = raw_frame(spark, [(1, b"\0\1", b"")])
    found = frames_of(raw)
    commits, ends = table("commits"), table("ends")
    interests = interests_of(commits, table("members"))
    found |= {
        "interests": interests,
        "subscribed": subscribed_moments(
            *(ends, cut(interests), table("generations"), table("members"))
        ),
        "in log order": in_log_order(commits),
        "loads": loads_of(ends, commits, cut(interests)),
    }
    found["lag"] = lag_of(ends, commits, cut(interests), cut(found["subscribed"]), "latest")
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
    patience = cut(patience_of(present))
    found["outages"] = outages_of(changes, commits, table("lag"), patience)
    found["worked"] = worked_commits(commits, states)
    found["open outages"] = open_outages_of(
        *(numbered, holders, cut(found["worked"]), table("lag")), as_of_ms=9
    )
    found["rebalances"] = rebalances_of(numbered, present, changes, cut(found["outages"]))
    found["departures"] = departures_of(present, states, holders, commits)
    found["arrivals"] = arrivals_of(present)
    departures, arrivals = cut(found["departures"]), cut(found["arrivals"])
    found["absences"] = absences_of(departures, arrivals, states, commits)
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
    return found


def plan_of(frame: DataFrame) -> str:
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - as explain does
    return str(plan.toString())


def banned_in(plan: str) -> list[str]:
    return [step for step in BANNED if step in plan]


def test_nothing_is_computed_row_by_row_or_crosswise(plans: dict[str, str]) -> None:
    found = {name: steps for name, plan in plans.items() if (steps := banned_in(plan))}
    assert found == {}


@pytest.mark.parametrize("step", ["udf", "cross", "window", "hint"])
def test_a_bad_plan_would_be_found(step: str, spark: SparkSession, plans: object) -> None:
    """The names of steps are Spark's, and may change with a release."""
    assert plans
    some, other = (spark.range(9).withColumnRenamed("id", name) for name in ("a", "b"))
    frame, name = {
        "udf": (some.select(sql.udf(str)("a")), "BatchEvalPython"),
        "cross": (some.crossJoin(other), "CartesianProduct"),
        "window": (some.select(sql.sum("a").over(Window.orderBy("a"))), "SinglePartition"),
        "hint": (some.join(sql.broadcast(other), sql.expr("a = b")), "BroadcastExchange"),
    }[step]
    assert banned_in(plan_of(frame)) == [name]


def test_records_are_decoded_in_batches(plans: dict[str, str]) -> None:
    """The only Python in the hot paths is the codec, with Arrow; absences are few."""
    assert all("MapInArrow" in plans[name] for name in ("commits", "generations", "assignments"))
    with_python = {name for name, plan in plans.items() if "Python" in plan or "InArrow" in plan}
    of_records = {"commits", "generations", "members", "assignments", "rejected"}
    of_records.add("consumer_records")
    assert with_python == {*of_records, "absences"}
