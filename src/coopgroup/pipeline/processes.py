"""What history says of groups, made ready for episodes: rounds, states and who was in them.

Words of this module:
- A *state* is a record of a group, as the group coordinator wrote it: one for each round, and one
  for each static member that came back within it. Records of one group stand in one partition of
  the topic, so their offsets say their order.
- A *round* is a generation with its last members; it is complete when the group coordinator wrote
  it down for the first time. The same generation may be written again (a static member came back).
- A *process* is what comes back: a static id; else client id and host, if no generation of the
  group ever had two members of that name; else the member id. It is a guess, and the best there is:
  a client that does not say who it is, is new each time.

A group that was removed and made anew counts its generations from the start: what was before its
last removal is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["completed_rounds", "holders_of", "members_of", "states_of"]

_GENERATION: Final = ("group", "generation")
_CLIENT: Final = ("group", "client_id", "client_host")
_SOURCE: Final = ("source_partition", "source_offset")


def states_of(generations: DataFrame) -> DataFrame:
    """One row for each state: (group, generation, at_ms, member_count, SOURCE, state).

    `state` counts from 1 within the group. `at_ms` is when the group was in it: for the first one
    of a generation the end of the round, for further ones when they were written.

    Args:
        generations: the table.
    """
    whole = Window.partitionBy("group")
    removed = sql.max(sql.when(sql.col("is_tombstone"), sql.col("source_offset"))).over(whole)
    alive = generations.dropDuplicates([*_SOURCE]).withColumn("removed", removed)
    alive = alive.where(
        ~sql.col("is_tombstone") & (sql.col("source_offset") > sql.coalesce("removed", sql.lit(-1)))
    )
    order = Window.partitionBy("group").orderBy("source_offset")
    again = sql.lag("generation").over(order) == sql.col("generation")
    return alive.select(
        *_GENERATION,
        sql.when(again, sql.col("written_ms")).otherwise(sql.col("at_ms")).alias("at_ms"),
        *("member_count", *_SOURCE),
        sql.row_number().over(order).alias("state"),
    )


def completed_rounds(states: DataFrame) -> DataFrame:
    """One row for each generation: (group, generation, at_ms, member_count, SOURCE, previous_*).

    `at_ms` is when the round was complete, the rest is of its last state. `previous_generation` and
    `previous_ms` are those of the round before, null for the first one known. Of several rounds in
    a row with nobody in them (a new group begins with one) only the one that emptied it counts.

    Args:
        states: from `states_of`.
    """
    rounds = states.groupBy(*_GENERATION).agg(
        sql.min_by("at_ms", "state").alias("at_ms"),
        *(sql.max_by(name, "state").alias(name) for name in ("member_count", *_SOURCE)),
    )
    window = Window.partitionBy("group").orderBy("generation")
    before = sql.coalesce(sql.lag("member_count").over(window), sql.lit(0))
    rounds = rounds.withColumn("before", before)
    rounds = rounds.where((sql.col("member_count") > 0) | (sql.col("before") > 0))
    return rounds.select(
        *(*_GENERATION, "at_ms", "member_count", *_SOURCE),
        sql.lag("generation").over(window).alias("previous_generation"),
        sql.lag("at_ms").over(window).alias("previous_ms"),
    )


def members_of(members: DataFrame, states: DataFrame) -> DataFrame:
    """Members in each state, with `process` (see above), and `at_ms` and `state` of the state.

    Args:
        members: the table.
        states: from `states_of`.
    """
    key = ["group", "generation", *_SOURCE]
    place = states.select(*key, "at_ms", "state")
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
    """Who held which partition in each state.

    Args:
        assignments: the table.
        present: from `members_of`.

    Returns:
        (group, generation, state, at_ms, topic, partition, member_id, process, SOURCE).
    """
    key = [*_GENERATION, *_SOURCE, "member_id"]
    held = assignments.dropDuplicates([*key, "topic", "partition"]).drop("at_ms")
    rows = held.join(present.select(*key, "at_ms", "state", "process"), key)
    return rows.select(
        *(*_GENERATION, "state", "at_ms", "topic", "partition", "member_id", "process", *_SOURCE)
    )
