"""Uneven lag among the members of a group, over time: the table `skew`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["skew_of"]

_MOMENT: Final = ("group", "at_ms", "generation")


def skew_of(lag: DataFrame, states: DataFrame, holders: DataFrame) -> DataFrame:
    """Return the table: a row for each time with a known lag of a group with members.

    A member without partitions counts with a lag of 0. A partition without an owner does not count.

    Args:
        lag: the table.
        states: from `processes.states_of`.
        holders: from `processes.holders_of`.
    """
    times = lag.select("group", "at_ms").distinct()
    facts = states.select("group", "at_ms", "state", "generation", "member_count")
    at = with_last(
        times,
        facts,
        keys=["group"],
        columns=["state", "generation", "member_count"],
        order=["state"],
    ).where(sql.col("member_count") > 0)
    held = holders.select("group", "state", "topic", "partition", "member_id")
    rows = lag.join(at, ["group", "at_ms"]).join(held, ["group", "state", "topic", "partition"])
    by_member = rows.groupBy(*_MOMENT, "member_count", "member_id").agg(sql.sum("lag").alias("lag"))
    mean = sql.col("lag_total") / sql.col("members")
    return (
        by_member.groupBy(*_MOMENT, sql.col("member_count").alias("members"))
        .agg(sql.sum("lag").alias("lag_total"), sql.max("lag").alias("lag_max"))
        .withColumn("lag_mean", mean)
        .withColumn(
            "imbalance",
            sql.when(sql.col("lag_total") > 0, sql.col("lag_max") / sql.col("lag_mean")),
        )
        .select(*TABLES["skew"].schema.names)
    )
