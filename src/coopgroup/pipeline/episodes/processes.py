"""History of groups, prepared for episodes: lives, states and their members.

Terms of this module:

- A *state* is a record of a group from the group coordinator. It writes one for each round, and
  one for each static member that returns within a round. Records of one group are in one partition
  of the topic, so their offsets give their order.
- A *round* is a generation. It is complete when the group coordinator first writes it. A later
  state of the same generation is a *restart*: a static member returned within its session. In a
  group of KIP-848 it is so only if nothing else changed: owners change within an epoch.
- A *life* of a group ends when the group is removed. The group coordinator writes that as a
  tombstone, which compaction may remove later. A generation below the previous one also begins a
  life. Nothing is compared across lives.
- A *process* is the identity behind a return. It is the static id if there is one. Else it is
  client id and host, if no generation of the group ever had two members of that name. Else it is
  the member id. This is an estimate: a client without a stable name is new each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import in_log_order
from coopgroup.pipeline.topic.consumer_groups import BROKER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EAGER", "holders_of", "members_of", "states_of", "steps_of", "worked_commits"]

EAGER: Final = ("range", "roundrobin", "sticky", "default")
"""Protocols of clients that stop everything in a rebalance (`default` is Kafka Connect's)."""
_UPGRADE_MS: Final = 1_000  # the records of an upgrade are in one write
_LIFE: Final = ("group", "life")
_GENERATION: Final = ("group", "generation")
_CLIENT: Final = ("group", "client_id", "client_host")
_SOURCE: Final = ("source_partition", "source_offset")


def states_of(generations: DataFrame) -> DataFrame:
    """Return one row per state, of every life.

    Args:
        generations: the table.

    Returns:
        (group, life, generation, at_ms, member_count, protocol, SOURCE, state, is_restart,
        ended_ms). `state` counts from 1 within the group, over all lives. `at_ms` is the end of the
        round, or the time of the record for a restart. `ended_ms` is the end of the life, null for
        the present one.
    """
    order = Window.partitionBy("group").orderBy("source_offset")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    marked = generations.dropDuplicates([*_SOURCE]).withColumn(
        "known", sql.last("generation", ignorenulls=True).over(before)
    )
    no = sql.lit(0).cast("boolean")
    goes_back = sql.coalesce(sql.col("generation") < sql.col("known"), no)
    # A change to KIP-848, or back, deletes the old records and writes the new ones: the group goes
    # on. If it has no members at that time, its generations begin again.
    after_it = [sql.lead(name).over(order) for name in ("protocol", "written_ms")]
    was_broker = sql.last("protocol", ignorenulls=True).over(before) == BROKER
    changes = sql.coalesce(after_it[0] == BROKER, no) != sql.coalesce(was_broker, no)
    changes &= after_it[1] <= sql.col("written_ms") + _UPGRADE_MS
    is_change = sql.col("is_tombstone") & sql.coalesce(changes, no)
    marked = marked.withColumn("is_change", is_change)
    is_removed = sql.col("is_tombstone") & ~sql.col("is_change")
    goes_back &= ~sql.coalesce(sql.lag("is_change").over(order), no)
    marked = marked.withColumn("is_end", is_removed | goes_back)
    life = sql.sum(sql.col("is_end").cast("int")).over(order)
    # In reverse order, the end of a life is the last one before its states: Spark is fast with
    # windows over preceding rows only.
    after = Window.partitionBy("group").orderBy(sql.desc("source_offset"))
    after = after.rowsBetween(Window.unboundedPreceding, -1)
    ended_ms = sql.last(sql.when(sql.col("is_end"), sql.col("written_ms")), ignorenulls=True)
    lives = marked.withColumns({"life": life, "ended_ms": ended_ms.over(after)})
    alive = lives.where(~sql.col("is_tombstone"))
    in_life = Window.partitionBy(*_LIFE).orderBy("source_offset")
    again = sql.lag("generation").over(in_life) == sql.col("generation")
    # The way back to a classic group begins with the generation of the last epoch.
    is_back = sql.coalesce(sql.lag("protocol").over(in_life) == BROKER, no)
    is_restart = sql.coalesce("is_restart", again & ~is_back, no)
    return alive.withColumn("is_restart", is_restart).select(
        *("group", "life", "generation"),
        sql.when(sql.col("is_restart"), sql.col("written_ms"))
        .otherwise(sql.col("at_ms"))
        .alias("at_ms"),
        *("member_count", "protocol", *_SOURCE),
        sql.row_number().over(order).alias("state"),
        *("is_restart", "ended_ms"),
    )


def steps_of(states: DataFrame) -> DataFrame:
    """Return the states that change something, with the step before: the columns and `previous_*`.

    `previous_state`, `previous_generation` and `previous_ms` are null for the first known state of
    a life. Of several consecutive empty states (a new group begins with one) only the first counts,
    which emptied the group. `bound_generation` and `bound_ms` are those of the state right before,
    even if it does not count.

    Args:
        states: from `states_of`.
    """
    window = Window.partitionBy(*_LIFE).orderBy("state")
    before = sql.coalesce(sql.lag("member_count").over(window), sql.lit(0))
    kept = states.withColumns(
        {
            "before": before,
            "bound_generation": sql.lag("generation").over(window),
            "bound_ms": sql.lag("at_ms").over(window),
        }
    )
    kept = kept.where((sql.col("member_count") > 0) | (sql.col("before") > 0)).drop("before")
    return kept.select(
        *states.columns,
        *("bound_generation", "bound_ms"),
        sql.lag("state").over(window).alias("previous_state"),
        sql.lag("generation").over(window).alias("previous_generation"),
        sql.lag("at_ms").over(window).alias("previous_ms"),
    )


def worked_commits(commits: DataFrame, states: DataFrame) -> DataFrame:
    """Return the commits of members, in the order of the log.

    A tombstone is no work. Neither is a commit to a group without members: an administrator reset
    the offsets.

    Args:
        commits: the table.
        states: from `states_of`.
    """
    changes = states.select("group", "source_offset", "member_count")
    both = commits.unionByName(changes, allowMissingColumns=True)
    before = Window.partitionBy("group").orderBy("source_offset")
    before = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    count = sql.last("member_count", ignorenulls=True).over(before)
    both = both.withColumn("members", sql.coalesce(count, sql.lit(1)))
    # A change has no `is_tombstone`, so it is left out as well.
    work = both.where(~sql.col("is_tombstone") & (sql.col("members") > 0))
    return in_log_order(work.select(*commits.columns))


def members_of(members: DataFrame, states: DataFrame) -> DataFrame:
    """Return the members in each state, with `process`, and `life`, `at_ms`, `state` of the state.

    Args:
        members: the table.
        states: from `states_of`.
    """
    key = ["group", "generation", *_SOURCE]
    place = states.select(*key, "life", "at_ms", "state")
    present = members.dropDuplicates([*_SOURCE, "member_id"]).drop("at_ms").join(place, key)
    at_once = present.groupBy(*_CLIENT, "state").agg(sql.count(sql.lit(1)).alias("count"))
    unique = at_once.groupBy(*_CLIENT).agg((sql.max("count") == 1).alias("is_unique"))
    client = sql.concat_ws("@", "client_id", "client_host")
    return present.join(unique, list(_CLIENT)).select(
        *present.columns,
        sql.coalesce(
            sql.concat(sql.lit("static:"), "instance_id"),
            sql.when(sql.col("is_unique"), sql.concat(sql.lit("client:"), client)),
            sql.concat(sql.lit("member:"), "member_id"),
        ).alias("process"),
    )


def holders_of(assignments: DataFrame, present: DataFrame) -> DataFrame:
    """Return the owner of each partition in each state.

    Args:
        assignments: the table.
        present: from `members_of`.

    Returns:
        (group, life, generation, state, at_ms, topic, partition, member_id, process).
    """
    key = [*_GENERATION, *_SOURCE, "member_id"]
    held = assignments.dropDuplicates([*key, "topic", "partition"]).drop("at_ms")
    rows = held.join(present.select(*key, "life", "at_ms", "state", "process"), key)
    return rows.select(
        *("group", "life", "generation", "state", "at_ms"),
        *("topic", "partition", "member_id", "process"),
    )
