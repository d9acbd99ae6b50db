"""Members that leave, and how they return: the table `absences`.

Theory of operation. A member departs with the first state of the group that lacks it, and arrives
with the first state that has it (for states see `processes`). A return is an arrival that is
paired with a departure: first by static id, then, for the rest, by client id and host, by client
id, by host. Departures and arrivals are paired within one life of the group.

Only a static id proves that the same process returned. Another name is weak, because many
processes may share it. So an arrival with a weak name ends only an absence of at most
`RETURN_MS_MAX`. Without this limit, one member that leaves permanently would shift all later
returns of its name.

Departures and arrivals are the *steps* of one frame. Within each name, `_with_partners` needs no
comparison of all steps with all others. First, each arrival is matched with the newest open
absence, like closing with opening brackets: running sums give the depth, and the partner is the
step before at the same depth. An arrival without an open absence, and a match that is too long, are
no return. What remains is balanced. So the n-th return then ends the n-th absence, because members
that stop together return in the same order more often than not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from coopgroup.pipeline.tables import Keep

__all__ = ["RETURN_MS_MAX", "absences_of", "arrivals_of", "departures_of"]

RETURN_MS_MAX: Final = 3_600_000
"""Longest absence that ends with the return of a name which is no static id: one hour."""

_MEMBER: Final = ("group", "member_id")
_NAME: Final = ("group", "life", "name")
_PARTITION: Final = ("group", "topic", "partition")
_KINDS: Final = {
    "static_id": ("instance_id",),
    "client_and_host": ("client_id", "client_host"),
    "client": ("client_id",),
    "host": ("client_host",),
}
_STATIC: Final = "static_id"
_PARTNER: Final = "struct<member_id string, at_ms long, returned_as string>"
_GOING: Final = 1
_COMING: Final = -1


def departures_of(
    present: DataFrame, states: DataFrame, holders: DataFrame, commits: DataFrame
) -> DataFrame:
    """Return the members whose last state is not the last of their life, with bounds of departure.

    Args:
        present: from `processes.members_of`.
        states: from `processes.states_of`.
        holders: from `processes.holders_of`.
        commits: the table.
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
        *(*_MEMBER, "life", "instance_id", "client_id", "client_host", "generation"),
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
    first = present.groupBy("group", "life", "member_id").agg(
        sql.min("state").alias("state"),
        *(
            sql.min_by(name, "state").alias(name)
            for name in ("instance_id", "client_id", "client_host", "at_ms")
        ),
    )
    came = first.where(sql.col("state") > 1)
    return came.select(*_MEMBER, "life", "instance_id", "client_id", "client_host", "at_ms")


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
    went = departures.join(_ends_of_lives(states, commits), ["group", "life"])
    went = went.withColumns({"at_ms": sql.col("gone_latest_ms"), "step": sql.lit(_GOING)})
    came = arrivals.withColumn("step", sql.lit(_COMING))
    steps = keep(went.unionByName(came, allowMissingColumns=True))
    # All windows below are within a group, so they need no other shuffle.
    steps = steps.repartition("group").withColumn("partner", sql.lit(None).cast(_PARTNER))
    for kind, keys in _KINDS.items():
        steps = _with_partners(steps, kind, keys)
    rows = steps.where(sql.col("step") == _GOING)
    returned_ms = sql.col("partner.at_ms")
    return rows.withColumns(
        {
            "returned_ms": returned_ms,
            "returned_member_id": sql.col("partner.member_id"),
            "returned_as": sql.coalesce("partner.returned_as", sql.lit("never")),
            "absent_ms": returned_ms - sql.col("gone_ms"),
        }
    ).select(*TABLES["absences"].schema.names)


def _ends_of_lives(states: DataFrame, commits: DataFrame) -> DataFrame:
    """Return how far each life was observed: (group, life, observed_until_ms)."""
    # A group without rebalances still commits. Its commits show that no member has returned.
    committed = commits.groupBy("group").agg(sql.max("written_ms").alias("committed_ms"))
    lives = states.groupBy("group", "life").agg(
        sql.max("at_ms").alias("state_ms"), sql.max("ended_ms").alias("ended_ms")
    )
    until_ms = sql.coalesce("ended_ms", sql.greatest("state_ms", "committed_ms"))
    return lives.join(committed, "group", "left").select(
        "group", "life", until_ms.alias("observed_until_ms")
    )


def _with_partners(steps: DataFrame, kind: str, keys: tuple[str, ...]) -> DataFrame:
    """Set `partner` of the n-th absence and the n-th return of each name, unless it is set.

    Args:
        steps: departures and arrivals.
        kind: one of `_KINDS`.
        keys: columns of the name.
    """
    is_static = kind == _STATIC
    has_id = sql.col("instance_id").isNotNull()
    fits = sql.col("partner").isNull() & (has_id if is_static else ~has_id)
    named = steps.withColumn("name", sql.when(fits, sql.concat_ws("\0", *keys)))
    matched = _in_time(_with_open(named), is_static=is_static)
    order = Window.partitionBy(*_NAME, "is_matched", "step").orderBy("at_ms", "member_id")
    ranked = matched.withColumn("rank", sql.row_number().over(order))
    pair = Window.partitionBy(*_NAME, "is_matched", "rank").orderBy(sql.desc("step"))
    own = sql.struct("member_id", "at_ms", sql.lit(kind).alias("returned_as"))
    other = sql.coalesce(sql.lead(own).over(pair), sql.lag(own).over(pair))
    partner = sql.coalesce("partner", sql.when(sql.col("is_matched"), other))
    return ranked.withColumn("partner", partner).select(*steps.columns)


def _in_order(*more: str) -> WindowSpec:
    """Return the steps of a name. Within a round the old member departs before the new arrives."""
    return Window.partitionBy(*_NAME, *more).orderBy("at_ms", sql.desc("step"), "member_id")


def _with_open(steps: DataFrame) -> DataFrame:
    """Add `is_open`: whether the step is a departure, or an arrival with an open absence."""
    so_far = _in_order().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    summed = steps.withColumn("sum", sql.sum("step").over(so_far))
    # The sum minus its minimum so far (0 at the begin) is the number of open absences. An arrival
    # that sets a new minimum found none.
    low = sql.least(sql.min("sum").over(so_far), sql.lit(0))
    floor = summed.withColumn("low", low)
    low_before = sql.coalesce(sql.lag("low").over(_in_order()), sql.lit(0))
    is_open = (sql.col("step") == _GOING) | (sql.col("low") == low_before)
    return floor.withColumn("is_open", sql.col("name").isNotNull() & is_open)


def _in_time(steps: DataFrame, *, is_static: bool) -> DataFrame:
    """Add `is_matched`: whether an open departure has a return in time, or is that return.

    Args:
        steps: from `_with_open`.
        is_static: whether the name is a static id, which has no limit.
    """
    so_far = _in_order("is_open").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_coming = sql.col("step") == _COMING
    depth = sql.sum("step").over(so_far) + sql.when(is_coming, 1).otherwise(0)
    # At one depth, departures and their returns alternate.
    one_depth = _in_order("is_open", "depth")
    before_ms, after_ms = (one("at_ms").over(one_depth) for one in (sql.lag, sql.lead))
    length_ms = sql.when(is_coming, sql.col("at_ms") - before_ms).otherwise(
        after_ms - sql.col("at_ms")
    )
    is_short = length_ms.isNotNull() if is_static else length_ms <= RETURN_MS_MAX
    is_matched = sql.col("is_open") & sql.coalesce(is_short, sql.lit(0).cast("boolean"))
    return steps.withColumn("depth", depth).withColumn("is_matched", is_matched)
