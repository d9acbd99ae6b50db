"""Members that leave, and how they return: the table `absences`.

Theory of operation. A member departs with the first state of the group that lacks it, and arrives
with the first state that has it (for states see `processes`). A return is an arrival that is
paired with a departure: first by static id, then, for the rest, by client id and host, by client
id, by host. Within each of these, the oldest open absence is paired with the next arrival. This is
a queue, and two running sums describe it. An arrival is a return if more members of that name have
departed than arrived since the queue was last empty. The n-th return ends the n-th absence. So no
row is compared with all others.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from coopgroup.pipeline.tables import Keep

__all__ = ["absences_of", "arrivals_of", "departures_of"]

_MEMBER: Final = ("group", "member_id")
_PARTITION: Final = ("group", "topic", "partition")
_KINDS: Final = {
    "static_id": ("instance_id",),
    "client_and_host": ("client_id", "client_host"),
    "client": ("client_id",),
    "host": ("client_host",),
}
_GOING: Final = 1
_COMING: Final = -1


def departures_of(
    present: DataFrame, states: DataFrame, holders: DataFrame, commits: DataFrame
) -> DataFrame:
    """Return the members whose last state is not the group's last, with bounds of their departure.

    Args:
        present: from `processes.members_of`.
        states: from `processes.states_of`.
        holders: from `processes.holders_of`.
        commits: the table.
    """
    rejoin_ms = present.groupBy("group", "state").agg(
        sql.max("rebalance_timeout_ms").alias("rejoin_ms")
    )
    last = present.groupBy(*_MEMBER).agg(
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
        "group",
        (sql.col("state") - 1).alias("state"),
        sql.col("generation").alias("next_generation"),
        sql.col("at_ms").alias("gone_latest_ms"),
    )
    gone = last.join(after, ["group", "state"]).join(rejoin_ms, ["group", "state"])
    return _with_last_work(gone, holders, commits)


def _with_last_work(gone: DataFrame, holders: DataFrame, commits: DataFrame) -> DataFrame:
    """Add the number of partitions that a member owned, and its departure: bounds and estimate."""
    one = ["group", "state", "member_id"]
    leaving = gone.select(*one, "gone_latest_ms", sql.col("at_ms").alias("since_ms"))
    moments = leaving.join(holders.select(*one, "topic", "partition"), one)
    moments = moments.withColumnRenamed("gone_latest_ms", "at_ms")
    work = commits.where(~sql.col("is_tombstone")).select(
        *_PARTITION, "at_ms", sql.col("at_ms").alias("said_ms")
    )
    worked = with_last(moments, work, keys=_PARTITION, columns=["said_ms"])
    # A commit from before the member owned the partition says nothing about the member.
    own_ms = sql.when(sql.col("said_ms") >= sql.col("since_ms"), sql.col("said_ms"))
    signs = worked.groupBy(*one).agg(
        sql.max(own_ms).alias("said_ms"), sql.count(sql.lit(1)).cast("int").alias("partitions")
    )
    rows = gone.join(signs, one, "left")
    alive_ms = _known_alive_ms()
    return rows.select(
        *(*_MEMBER, "instance_id", "client_id", "client_host", "generation"),
        "session_timeout_ms",
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
    first = present.groupBy(*_MEMBER).agg(
        sql.min("state").alias("state"),
        *(
            sql.min_by(name, "state").alias(name)
            for name in ("instance_id", "client_id", "client_host", "at_ms")
        ),
    )
    came = first.where(sql.col("state") > 1)
    return came.select(*_MEMBER, "instance_id", "client_id", "client_host", "at_ms")


def absences_of(
    departures: DataFrame,
    arrivals: DataFrame,
    states: DataFrame,
    commits: DataFrame,
    keep: Keep,
) -> DataFrame:
    """Return the table: every departure with its return.

    Args:
        departures: from `departures_of`.
        arrivals: from `arrivals_of`.
        states: from `processes.states_of`.
        commits: the table.
        keep: as in `episodes`.
    """
    open_ones, comings = departures, arrivals
    paired = []
    for kind, keys in _KINDS.items():
        pairs = _pairs(open_ones, comings, keys, is_static=kind == "static_id")
        pairs = keep(pairs.withColumn("returned_as", sql.lit(kind)))
        paired.append(pairs)
        open_ones = open_ones.join(pairs.select(*_MEMBER), list(_MEMBER), "left_anti")
        came = pairs.select("group", sql.col("returned_member_id").alias("member_id"))
        comings = comings.join(came, list(_MEMBER), "left_anti")
    returns = reduce(lambda one, other: one.unionByName(other), paired)
    # A group without rebalances still commits. Its commits show that no member has returned.
    seen = states.select("group", "at_ms").unionByName(
        commits.select("group", sql.col("written_ms").alias("at_ms"))
    )
    until = seen.groupBy("group").agg(sql.max("at_ms").alias("observed_until_ms"))
    rows = departures.join(returns, list(_MEMBER), "left").join(until, "group")
    return (
        rows.withColumn("returned_as", sql.coalesce("returned_as", sql.lit("never")))
        .withColumn("absent_ms", sql.col("returned_ms") - sql.col("gone_ms"))
        .select(*TABLES["absences"].schema.names)
    )


def _pairs(
    departures: DataFrame, arrivals: DataFrame, keys: tuple[str, ...], *, is_static: bool
) -> DataFrame:
    """Pair the n-th return of a name with its n-th absence: (group, member_id, returned_*)."""
    fits = sql.col("instance_id").isNotNull() if is_static else sql.col("instance_id").isNull()
    name = sql.concat_ws("\0", *keys).alias("name")
    columns = ("group", name, "member_id")
    went = departures.where(fits).select(
        *columns, sql.col("gone_latest_ms").alias("at_ms"), sql.lit(_GOING).alias("step")
    )
    came = arrivals.where(fits).select(*columns, "at_ms", sql.lit(_COMING).alias("step"))
    # Within a round the old member departs before the new one arrives.
    window = Window.partitionBy("group", "name").orderBy("at_ms", sql.desc("step"), "member_id")
    window = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    summed = went.unionByName(came).withColumn("sum", sql.sum("step").over(window))
    # The sum minus its minimum so far (0 at the begin) is the length of the queue. An arrival that
    # sets a new minimum found the queue empty.
    low = sql.least(sql.min("sum").over(window), sql.lit(0))
    floor = summed.withColumn("low", low)
    before = Window.partitionBy("group", "name").orderBy("at_ms", sql.desc("step"), "member_id")
    floor = floor.withColumn("low_before", sql.coalesce(sql.lag("low").over(before), sql.lit(0)))
    is_return = (sql.col("step") == _COMING) & (sql.col("low") == sql.col("low_before"))
    kept = floor.where((sql.col("step") == _GOING) | is_return)
    order = Window.partitionBy("group", "name", "step").orderBy("at_ms", "member_id")
    ranked = kept.withColumn("rank", sql.row_number().over(order))
    absent = ranked.where(sql.col("step") == _GOING).select("group", "name", "rank", "member_id")
    back = ranked.where(sql.col("step") == _COMING).select(
        *("group", "name", "rank"),
        sql.col("member_id").alias("returned_member_id"),
        sql.col("at_ms").alias("returned_ms"),
    )
    return absent.join(back, ["group", "name", "rank"]).drop("name", "rank")
