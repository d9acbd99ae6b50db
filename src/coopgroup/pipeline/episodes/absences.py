"""Members that leave, and how they return: the table `absences`.

A member departs with the first state of the group that lacks it, and arrives with the first state
that has it (for states see `processes`). `returns` pairs departures and arrivals, group by group,
within one life of the group. A group has few of them, even if it has many commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.episodes.returns import CAME, GONE, SIZE, with_returns
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.topic.consumer_groups import BROKER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["absences_of", "arrivals_of", "departures_of", "identities_of"]

_MEMBER: Final = ("group", "member_id")
_PARTITION: Final = ("group", "topic", "partition")


def departures_of(
    present: DataFrame, states: DataFrame, holders: DataFrame, commits: DataFrame
) -> DataFrame:
    """Return the members whose last state is not the last of their life, with bounds of departure.

    Args:
        present: from `processes.members_of`.
        states: from `processes.states_of`.
        holders: from `processes.holders_of`.
        commits: from `processes.worked_commits`.
    """
    rejoin_ms = present.groupBy("group", "state").agg(
        sql.max("rebalance_timeout_ms").alias("rejoin_ms")
    )
    last = present.groupBy("group", "life", "member_id").agg(
        sql.max("state").alias("state"),
        *(
            sql.max_by(name, "state").alias(name)
            for name in (
                *("generation", "instance_id", "client_id", "client_host"),
                *("session_timeout_ms", "at_ms"),
            )
        ),
    )
    after = states.select(
        *("group", "life"),
        (sql.col("state") - 1).alias("state"),
        sql.col("generation").alias("next_generation"),
        sql.col("at_ms").alias("gone_latest_ms"),
    )
    gone = last.join(after, ["group", "life", "state"]).join(rejoin_ms, ["group", "state"])
    return _with_last_work(_with_last_sign(gone, present, states, holders), holders, commits)


def _with_last_sign(
    gone: DataFrame, present: DataFrame, states: DataFrame, holders: DataFrame
) -> DataFrame:
    """Let `at_ms` be the time of the last state that shows that the member was alive.

    A round of a classic group shows it: the member joined. In other states the member may be dead,
    and its session not over yet. There only its first state shows it, and a change of its
    partitions.
    """
    is_round = sql.coalesce(sql.col("protocol") != BROKER, sql.lit(True)) & ~sql.col("is_restart")  # noqa: FBT003 - a value
    kinds = states.select("group", "state", is_round.alias("is_round"))
    last = gone.join(kinds, ["group", "state"])
    unsure = last.where(~sql.col("is_round")).select("group", "life", "member_id")
    one = ["group", "state", "member_id"]
    owned = holders.groupBy(*one).agg(
        sql.bit_xor(sql.xxhash64("topic", "partition")).alias("owned")
    )
    seen = present.select("life", "at_ms", *one).join(unsure, ["group", "life", "member_id"])
    seen = seen.join(kinds, ["group", "state"]).join(owned, one, "left")
    window = Window.partitionBy("group", "life", "member_id").orderBy("state")
    is_first = sql.lag("state").over(window).isNull()
    is_other = ~sql.col("owned").eqNullSafe(sql.lag("owned").over(window))
    signs = seen.withColumn("is_sign", sql.col("is_round") | is_first | is_other).where("is_sign")
    signs = signs.groupBy("group", "life", "member_id").agg(sql.max("at_ms").alias("sign_ms"))
    return (
        last.join(signs, ["group", "life", "member_id"], "left")
        .withColumn("at_ms", sql.coalesce("sign_ms", "at_ms"))
        .drop("is_round", "sign_ms")
    )


def _with_last_work(gone: DataFrame, holders: DataFrame, commits: DataFrame) -> DataFrame:
    """Add the number of partitions that a member owned, and its departure: bounds and estimate."""
    one = ["group", "state", "member_id"]
    leaving = gone.select(*one, "gone_latest_ms", sql.col("at_ms").alias("since_ms"))
    moments = leaving.join(holders.select(*one, "topic", "partition"), one)
    moments = moments.withColumnRenamed("gone_latest_ms", "at_ms")
    work = commits.select(*_PARTITION, "at_ms", sql.col("at_ms").alias("said_ms"))
    worked = with_last(moments, work, keys=_PARTITION, columns=["said_ms"])
    # A commit from before the member owned the partition says nothing about the member.
    own_ms = sql.when(sql.col("said_ms") >= sql.col("since_ms"), sql.col("said_ms"))
    signs = worked.groupBy(*one).agg(
        sql.max(own_ms).alias("said_ms"), sql.count(sql.lit(1)).cast("int").alias("partitions")
    )
    rows = gone.join(signs, one, "left")
    alive_ms = _known_alive_ms()
    return rows.select(
        *(*_MEMBER, "life", "instance_id", "client_id", "client_host", "generation"),
        *("session_timeout_ms", "state"),
        sql.coalesce("partitions", sql.lit(0)).alias("partitions"),
        sql.greatest(sql.coalesce("said_ms", "at_ms"), alive_ms).alias("gone_earliest_ms"),
        # Members without records to commit give no sign of their end. Only the group's next round
        # shows it.
        sql.when(sql.col("said_ms") < alive_ms, sql.col("gone_latest_ms"))
        .otherwise(sql.coalesce("said_ms", "gone_latest_ms"))
        .alias("gone_ms"),
        "gone_latest_ms",
    )


def _known_alive_ms() -> Column:
    """Return the time before which the member cannot have departed.

    The group would have continued without it sooner. The time is null if it is unknown, because
    compaction removed rounds in between.
    """
    is_next = sql.col("next_generation") <= sql.col("generation") + 1
    longest_ms = sql.col("session_timeout_ms") + sql.coalesce("rejoin_ms", sql.lit(0))
    return sql.when(is_next, sql.col("gone_latest_ms") - longest_ms)


def arrivals_of(present: DataFrame) -> DataFrame:
    """Return members in their first state, except members of the first known state of the group.

    Args:
        present: from `processes.members_of`.
    """
    first = present.groupBy("group", "life", "member_id").agg(
        sql.min("state").alias("state"),
        *(
            sql.min_by(name, "state").alias(name)
            for name in ("instance_id", "client_id", "client_host", "at_ms")
        ),
    )
    came = first.where(sql.col("state") > 1)
    return came.select(
        *(*_MEMBER, "life", "state", "instance_id", "client_id", "client_host", "at_ms")
    )


def identities_of(events: DataFrame) -> DataFrame:
    """Return the name of the process of each member id in telemetry: (group, member_id, identity).

    The name of a consumer is its client id. A name that several members have at the same time, such
    as the default on a host with several members, identifies no process.

    Args:
        events: the table.
    """
    named = events.where((sql.col("member") != "") & (sql.col("client") != ""))
    times = named.groupBy("group", "client", sql.col("member").alias("member_id")).agg(
        sql.min("at_ms").alias("begin_ms"), sql.max("at_ms").alias("end_ms")
    )
    of_name = Window.partitionBy("group", "client")
    before = of_name.orderBy("begin_ms").rowsBetween(Window.unboundedPreceding, -1)
    overlaps = sql.coalesce(sql.max("end_ms").over(before) > sql.col("begin_ms"), sql.lit(False))  # noqa: FBT003
    times = times.withColumn("overlaps", overlaps)
    times = times.withColumn("is_shared", sql.max("overlaps").over(of_name))
    return (
        times.where(~sql.col("is_shared"))
        .groupBy("group", "member_id")
        .agg(sql.max("client").alias("identity"))
    )


def absences_of(
    departures: DataFrame,
    arrivals: DataFrame,
    states: DataFrame,
    commits: DataFrame,
    identities: DataFrame | None = None,
    as_of_ms: int | None = None,
) -> DataFrame:
    """Return the table: every departure with its return.

    Args:
        departures: from `departures_of`.
        arrivals: from `arrivals_of`.
        states: from `processes.states_of`.
        commits: the table.
        identities: from `identities_of`; `None` without telemetry.
        as_of_ms: end of the history; `None` takes the last commit or round of each group.
    """
    ends = _ends_of_lives(states, commits, as_of_ms)
    went = departures.join(ends, ["group", "life"])
    went = went.withColumns({"at_ms": sql.col("gone_latest_ms"), "state": sql.col("state") + 1})
    sizes = states.select("group", "life", "state", "at_ms", "member_count")
    steps = went.withColumn("step", sql.lit(GONE))
    for kind, frame in ((CAME, arrivals), (SIZE, sizes)):
        steps = steps.unionByName(frame.withColumn("step", sql.lit(kind)), allowMissingColumns=True)
    if identities is not None:
        steps = steps.join(identities, ["group", "member_id"], "left")
    # Spark creates no Python worker for groups from which no member left.
    leaving = departures.select("group").distinct()
    steps = steps.join(leaving, "group", "left_semi")
    return steps.groupBy("group").applyInArrow(_paired, TABLES["absences"].schema)


def _paired(steps: pa.Table) -> pa.Table:
    schema = to_arrow_schema(TABLES["absences"].schema)
    rows = with_returns(steps.to_pylist())
    return pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
    )


def _ends_of_lives(states: DataFrame, commits: DataFrame, as_of_ms: int | None) -> DataFrame:
    """Return how far each life was observed: (group, life, observed_until_ms).

    A present life is observed up to the end of the history, which moves on without new records of
    the group. It has no time, so that the row remains true.
    """
    # A group without rebalances still commits. Its commits show that no member has returned.
    committed = commits.groupBy("group").agg(sql.max("written_ms").alias("committed_ms"))
    lives = states.groupBy("group", "life").agg(
        sql.max("at_ms").alias("state_ms"), sql.max("ended_ms").alias("ended_ms")
    )
    until_ms = sql.col("ended_ms")
    if as_of_ms is None:
        until_ms = sql.coalesce(until_ms, sql.greatest("state_ms", "committed_ms"))
    return lives.join(committed, "group", "left").select(
        "group", "life", until_ms.alias("observed_until_ms")
    )
