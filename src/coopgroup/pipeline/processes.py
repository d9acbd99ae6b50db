"""History of groups, prepared for episodes: rounds, states and their members.

Terms of this module:

- A *state* is a record of a group from the group coordinator. It writes one for each round, and
  one for each static member that returns within a round. Records of one group are in one partition
  of the topic, so their offsets give their order.
- A *round* is a generation with its last members. It is complete when the group coordinator first
  writes it. The same generation may be written again (a static member returned).
- A *process* is the identity behind a return. It is the static id if there is one. Else it is
  client id and host, if no generation of the group ever had two members of that name. Else it is
  the member id. This is an estimate: a client without a stable name is new each time.

If a group was removed and created again, its generations restart. Everything before the last
removal is left out.
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
    """Return one row per state: (group, generation, at_ms, member_count, SOURCE, state).

    `state` counts from 1 within the group. For the first state of a generation, `at_ms` is the end
    of the round. For later ones it is the time of the record.

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
    """Return one row per generation: (group, generation, at_ms, member_count, SOURCE, previous_*).

    `at_ms` is the end of the round; the other columns come from its last state.
    `previous_generation` and `previous_ms` are those of the previous round, null for the first
    known one. Of several consecutive empty rounds (a new group begins with one) only the first
    counts, which emptied the group.

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
    """Return the members in each state, with `process`, and `at_ms` and `state` of the state.

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
    """Return the owner of each partition in each state.

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
