"""Rebalances of our own groups, from rounds and events written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.pipeline.episodes import telemetry_episodes
from tests.spark.frames import make, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


def test_a_static_member_that_returns_prolongs_no_rebalance(spark: SparkSession) -> None:
    """It gets its assignment again, in the old generation, hours after the round."""
    led = {"group": "g", "generation": 7, "at_ms": 1_000, "members": ["a-1", "b-1"]}
    got = {"group": "g", "generation": 7, "kind": "assignment_received", "record": "{}"}
    events = make(
        spark,
        "events",
        {**got, "member": "a-1", "at_ms": 1_200},
        {**got, "member": "b-1", "at_ms": 1_500},
        {**got, "member": "a-2", "at_ms": 3 * HOUR_MS},
    )
    rounds = make(spark, "rounds", {**led, "follow_up": False, "scheduled_rebalance_timeout_ms": 0})
    found = telemetry_episodes(events, rounds, make(spark, "work"))
    assert rows(found["rebalances"], "begin_ms", "end_ms") == [(1_000, 1_500)]
