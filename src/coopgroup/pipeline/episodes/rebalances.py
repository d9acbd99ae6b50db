"""Rebalances of a group: the table `rebalances`, from its history and from its telemetry.

The history (source "history") has the end of each round but not its begin, so time separates the
rebalances. A round that is complete within `settle_ms` of the previous one belongs to the same
rebalance. The begin of a rebalance is an estimate within bounds; docs/pipeline.md has the
definitions.

A static member that returns within its session causes no round. But its partitions stood still,
and its return replaces a member id. So restarts have rows of their own, with the trigger `restart`,
unless they follow a state within `settle_ms`.

Telemetry (source "telemetry") is exact. Leaders record their decisions and announce further
rounds. So rounds belong together up to a round without such an announcement. Members record when
they left the stable state and when they received their assignment.

If a group was removed, its generations restart with the next join. So a generation is unique only
within one *life* of the group. In telemetry, in order of time, a new life begins with a round that
does not raise the generation, and that shares no member with the round before. The group
coordinator gives out new member ids after it forgot a group. So a round with two leaders, or clocks
that differ a little, do not begin a new life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.episodes.processes import EAGER
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.topic.consumer_groups import BROKER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "HISTORY",
    "SETTLE_MS",
    "TELEMETRY",
    "led_rebalances",
    "numbered_steps",
    "owner_changes",
    "rebalances_of",
    "rebalances_of_rounds",
]

HISTORY: Final = "history"
TELEMETRY: Final = "telemetry"
SETTLE_MS: Final = 5_000
_MS_PER_S: Final = 1_000
_STATE: Final = ("group", "state")
_LIFE: Final = ("group", "life")
_REBALANCE: Final = ("group", "first_state")
_REBALANCE_OF_ROUNDS: Final = (*_LIFE, "first_generation")
_PARTITION: Final = (*_LIFE, "topic", "partition")

# --- from the history -----------------------------------------------------------------------------


def numbered_steps(steps: DataFrame, settle_ms: int = SETTLE_MS) -> DataFrame:
    """Add `first_state` and `first_generation`, those of the rebalance of each step.

    Args:
        steps: from `processes.steps_of`.
        settle_ms: longest pause between two rounds of one rebalance.
    """
    window = Window.partitionBy(*_LIFE).orderBy("state")
    round_ms = sql.when(~sql.col("is_restart"), sql.col("at_ms"))
    last_round_ms = sql.last(round_ms, ignorenulls=True).over(
        window.rowsBetween(Window.unboundedPreceding, -1)
    )
    # A round does not belong to the restart before it: the restart is not the reason.
    since_ms = sql.when(sql.col("is_restart"), sql.col("previous_ms")).otherwise(last_round_ms)
    pause_ms = sql.col("at_ms") - since_ms
    starts = since_ms.isNull() | (pause_ms > settle_ms)
    # Members of a KIP-848 group reconcile within an epoch, one heartbeat after the other.
    same = sql.col("generation") == sql.col("previous_generation")
    same &= (sql.col("protocol") == BROKER) & ~sql.col("is_restart")
    starts &= ~sql.coalesce(same, sql.lit(0).cast("boolean"))
    first = sql.last(sql.when(starts, sql.struct("state", "generation")), ignorenulls=True).over(
        window
    )
    return steps.withColumn("first", first).select(
        *steps.columns,
        sql.col("first.state").alias("first_state"),
        sql.col("first.generation").alias("first_generation"),
    )


def owner_changes(holders: DataFrame, numbered: DataFrame) -> DataFrame:
    """Add the change of ownership to each partition in each state.

    Args:
        holders: from `processes.holders_of`.
        numbered: from `numbered_steps`.

    Returns:
        The columns of `holders`, with `first_state` and `first_generation`; `is_stopped`, whether
        the protocol stopped the partition for the round, whoever owned it; `lost_ms`, when the
        last owner lost the partition, null without one; `is_move`, whether the last owner was
        another process; `is_resumed`, whether the owner in the previous state was another member,
        or the partition had no owner then but had one earlier.
    """
    window = Window.partitionBy(*_PARTITION).orderBy("state")
    before = sql.lag("process").over(window)
    member = sql.lag("member_id").over(window)
    state = sql.lag("state").over(window)
    steps = Window.partitionBy(*_LIFE).orderBy("state")
    is_eager = sql.coalesce(sql.col("protocol").isin(*EAGER), sql.lit(0).cast("boolean"))
    place = numbered.select(
        *(*_STATE, "previous_state", "first_state", "first_generation"),
        (is_eager & ~sql.col("is_restart")).alias("is_stopped"),
        sql.lead("at_ms").over(steps).alias("next_ms"),
    )
    return holders.join(place, list(_STATE)).select(
        *holders.columns,
        *("first_state", "first_generation", "is_stopped"),
        sql.lag("next_ms").over(window).alias("lost_ms"),
        (before.isNotNull() & (before != sql.col("process"))).alias("is_move"),
        (
            member.isNotNull()
            & ((member != sql.col("member_id")) | (state < sql.coalesce("previous_state", state)))
        ).alias("is_resumed"),
    )


def rebalances_of(
    numbered: DataFrame, present: DataFrame, changes: DataFrame, outages: DataFrame
) -> DataFrame:
    """Return the table, one row for each rebalance.

    Args:
        numbered: from `numbered_steps`.
        present: from `processes.members_of`.
        changes: from `owner_changes`.
        outages: from `outages.outages_of`, with `is_observed`.
    """
    rows = _spans(numbered)
    sets = _member_sets(present)
    for name, state in (
        ("before", "previous_state"),
        ("first", "first_state"),
        ("after", "last_state"),
    ):
        chosen = sets.select(
            sql.col("group"),
            sql.col("state").alias(state),
            *(sql.col(one).alias(f"{one}_{name}") for one in _OF_SETS),
        )
        rows = rows.join(chosen, ["group", state], "left")
    # A state may be written again without any change.
    changed = ~sql.col("ids_before").eqNullSafe(sql.col("ids_first"))
    rows = rows.where(~sql.col("is_restart") | changed)
    rows = rows.join(_moves(changes), list(_REBALANCE), "left")
    held = changes.groupBy(*_STATE).agg(sql.count(sql.lit(1)).cast("int").alias("partitions"))
    rows = rows.join(held.withColumnRenamed("state", "last_state"), ["group", "last_state"], "left")
    rows = rows.join(_unavailable(outages), list(_REBALANCE), "left")
    return _described(rows).select(*TABLES["rebalances"].schema.names)


def _spans(numbered: DataFrame) -> DataFrame:
    """Return the first and last step of each rebalance, the step before it, and its rounds."""
    number, before = sql.col("generation"), sql.col("previous_generation")
    # A group that leaves KIP-848 begins with the generation of its last epoch. One that does so
    # without members begins with 1.
    is_again = sql.col("bound_generation").eqNullSafe(number)
    is_first = sql.col("state") == sql.col("first_state")
    rounds = sql.when(is_first, (~is_again).cast("int")).otherwise(
        sql.when(number >= before, number - before).otherwise(number)
    )
    return numbered.groupBy(*_REBALANCE, "first_generation").agg(
        sql.sum(rounds).cast("int").alias("rounds"),
        sql.max("state").alias("last_state"),
        sql.max_by("generation", "state").alias("last_generation"),
        sql.min("at_ms").alias("begin_ms"),
        sql.max("at_ms").alias("end_ms"),
        *(
            sql.min_by(name, "state").alias(name)
            for name in ("is_restart", "previous_state", "bound_generation", "bound_ms")
        ),
    )


_OF_SETS: Final = ("ids", "names", "topics", "rejoin_ms")


def _member_sets(present: DataFrame) -> DataFrame:
    # A static member has a new member id after each restart, and is the same member.
    name = sql.coalesce(sql.concat(sql.lit("static:"), "instance_id"), "member_id")
    return present.groupBy(*_STATE).agg(
        sql.array_sort(sql.collect_set("member_id")).alias("ids"),
        sql.array_sort(sql.collect_set(name)).alias("names"),
        sql.array_sort(sql.array_distinct(sql.flatten(sql.collect_list("topics")))).alias("topics"),
        sql.max("rebalance_timeout_ms").alias("rejoin_ms"),
    )


def _moves(changes: DataFrame) -> DataFrame:
    by_partition = changes.groupBy(*_REBALANCE, "topic", "partition").agg(
        sql.sum(sql.col("is_move").cast("int")).alias("moves")
    )
    return by_partition.groupBy(*_REBALANCE).agg(
        sql.count_if(sql.col("moves") > 0).cast("int").alias("moved"),
        sql.count_if(sql.col("moves") > 1).cast("int").alias("moved_twice"),
    )


def _unavailable(outages: DataFrame) -> DataFrame:
    seen = sql.col("is_observed")
    return outages.groupBy(*_REBALANCE).agg(
        (sql.sum(sql.when(seen, sql.col("unavailable_ms"))) / _MS_PER_S).alias("sum_s"),
        (sql.sum(sql.when(seen, sql.col("error_ms"))) / _MS_PER_S).alias("error_s"),
        sql.count_if(~seen).cast("int").alias("unseen"),
        sql.count_if(seen).alias("seen"),
    )


def _described(rows: DataFrame) -> DataFrame:
    nobody = sql.array().cast("array<string>")
    before, first, after = (
        sql.coalesce(f"names_{one}", nobody) for one in ("before", "first", "after")
    )
    is_unknown = sql.coalesce("unseen", sql.lit(0)) > 0
    nothing_seen = is_unknown & (sql.coalesce("seen", sql.lit(0)) == 0)
    zero = sql.lit(0.0)
    earliest = sql.greatest(
        "bound_ms",
        sql.col("begin_ms") - sql.coalesce("rejoin_ms_before", "rejoin_ms_first", sql.lit(0)),
    )
    # The first generation of a life is 1.
    known = sql.coalesce("bound_generation", sql.lit(0))
    missing = sql.col("first_generation") - known - 1
    return rows.select(
        *("group", "first_generation", "last_generation", "begin_ms", "end_ms"),
        sql.lit(HISTORY).alias("source"),
        _trigger(before, first).alias("trigger"),
        sql.when(sql.col("is_restart"), sql.lit(0)).otherwise(sql.col("rounds")).alias("rounds"),
        sql.greatest(missing, sql.lit(0)).alias("missing"),
        earliest.alias("begin_earliest_ms"),
        (sql.col("end_ms") - sql.col("begin_ms")).alias("duration_ms"),
        sql.size(before).alias("members_before"),
        sql.size(after).alias("members_after"),
        sql.size(sql.array_except(after, before)).alias("joined"),
        sql.size(sql.array_except(before, after)).alias("left"),
        *(
            sql.coalesce(name, sql.lit(0)).alias(name)
            for name in ("partitions", "moved", "moved_twice")
        ),
        sql.when(~nothing_seen, sql.coalesce("sum_s", zero)).alias("unavailable_partition_s"),
        sql.when(~nothing_seen, sql.coalesce("error_s", zero)).alias("unavailable_error_s"),
        sql.coalesce("unseen", sql.lit(0)).alias("unobserved"),
    )


def _trigger(before: Column, first: Column) -> Column:
    """Return the trigger of a rebalance, from the members before it and in its first round."""
    is_subscription = ~sql.col("topics_before").eqNullSafe(sql.col("topics_first"))
    return (
        sql.when(sql.col("is_restart"), "restart")
        .when(sql.size(first) == 0, "emptied")
        .otherwise(
            sql.coalesce(
                _member_change(before, first),
                sql.when(is_subscription, "subscription"),
                sql.lit("rejoin"),
            )
        )
    )


def _member_change(before: Column, first: Column) -> Column:
    """Return how the members changed; null if they are the same."""
    joined = sql.size(sql.array_except(first, before)) > 0
    left = sql.size(sql.array_except(before, first)) > 0
    return (
        sql.when(sql.size(before) == 0, "created")
        .when(joined & left, "exchange")
        .when(joined, "join")
        .when(left, "leave")
    )


# --- from telemetry -------------------------------------------------------------------------------


def led_rebalances(rounds: DataFrame) -> DataFrame:
    """Add `first_generation`, that of the round's rebalance, and the members before the round.

    Args:
        rounds: the table.

    Returns:
        (group, life, generation, at_ms, members, members_before, first_generation); `life` counts
        from 0 within the group.
    """
    # A round with two leaders (the group coordinator changed) counts once: the later record wins.
    once = (
        _with_life(rounds)
        .groupBy(*_LIFE, "generation")
        .agg(
            *(
                sql.max_by(name, "at_ms").alias(name)
                for name in ("members", "follow_up", "rejoin_in_ms")
            ),
            sql.max("at_ms").alias("at_ms"),
        )
    )
    window = Window.partitionBy(*_LIFE).orderBy("generation")
    goes_on = sql.col("follow_up") | sql.col("rejoin_in_ms").isNotNull()
    waited = sql.lag(goes_on).over(window)
    first = sql.when(~sql.coalesce(waited, sql.lit(0).cast("boolean")), sql.col("generation"))
    return once.select(
        *(*_LIFE, "generation", "at_ms", "members"),
        sql.lag("members").over(window).alias("members_before"),
        sql.last(first, ignorenulls=True).over(window).alias("first_generation"),
    )


def _with_life(rounds: DataFrame) -> DataFrame:
    window = Window.partitionBy("group").orderBy("at_ms", "generation")
    goes_back = sql.col("generation") <= sql.lag("generation").over(window)
    strangers = ~sql.arrays_overlap("members", sql.lag("members").over(window))
    is_new = sql.coalesce((goes_back & strangers).cast("int"), sql.lit(0))
    marked = rounds.withColumn("is_new", is_new)
    return marked.withColumn("life", sql.sum("is_new").over(window)).drop("is_new")


def rebalances_of_rounds(
    led: DataFrame, spans: DataFrame, events: DataFrame, outages: DataFrame
) -> DataFrame:
    """Return the table `rebalances`, with the source "telemetry".

    Args:
        led: from `led_rebalances`.
        spans: from `work_spans.work_spans`.
        events: the table.
        outages: from `outages.outages_of_work`.
    """
    rows = led.groupBy(*_REBALANCE_OF_ROUNDS).agg(
        sql.max("generation").alias("last_generation"),
        sql.count(sql.lit(1)).cast("int").alias("rounds"),
        sql.min("at_ms").alias("led_ms"),
        sql.max("at_ms").alias("end_led_ms"),
        sql.min_by("members_before", "generation").alias("before"),
        sql.min_by("members", "generation").alias("first"),
        sql.max_by("members", "generation").alias("after"),
    )
    rows = rows.join(_began(led, events), list(_REBALANCE_OF_ROUNDS), "left")
    rows = rows.join(_ended(led, events), list(_REBALANCE_OF_ROUNDS), "left")
    rows = rows.join(_moves_of_rounds(spans), list(_REBALANCE_OF_ROUNDS), "left")
    lost = outages.groupBy(*_REBALANCE_OF_ROUNDS).agg(
        (sql.sum("unavailable_ms") / _MS_PER_S).alias("sum_s"),
        (sql.sum("error_ms") / _MS_PER_S).alias("error_s"),
    )
    return _described_of_rounds(rows.join(lost, list(_REBALANCE_OF_ROUNDS), "left"))


def _began(led: DataFrame, events: DataFrame) -> DataFrame:
    """Return when the first member of each rebalance began to join.

    A member that began to join and is not in the round departed before. A new member has no member
    id when it begins.
    """
    state = sql.from_json("record", "before string, after string").alias("state")
    moved = events.where(sql.col("kind") == "state_changed")
    left = moved.select("group", "member", "at_ms", state).where("state.after = 'joining'")
    backwards = (-sql.col("at_ms")).alias("at_ms")
    columns = ["generation", "members", "life", "first_generation"]
    # In reverse order, the next round after a moment is the last one before it.
    moments = left.select("group", "member", backwards)
    ahead = led.select("group", backwards, *columns)
    found = with_last(moments, ahead, keys=["group"], columns=columns)
    first = found.where(sql.col("generation") == sql.col("first_generation"))
    first = first.where(sql.expr("member = '' OR array_contains(members, member)"))
    return first.groupBy(*_REBALANCE_OF_ROUNDS).agg((-sql.max("at_ms")).alias("left_ms"))


def _ended(led: DataFrame, events: DataFrame) -> DataFrame:
    """Return when the last member of each round received its assignment.

    A static member that returns within its session receives its assignment again, long after the
    rebalance: in the same generation, under another member id.
    """
    got = events.where(sql.col("kind") == "assignment_received")
    got = got.select("group", "generation", "member", sql.col("at_ms").alias("got_ms"))
    rows = led.join(got, ["group", "generation"]).where("array_contains(members, member)")
    return rows.groupBy(*_REBALANCE_OF_ROUNDS).agg(sql.max("got_ms").alias("got_ms"))


def _moves_of_rounds(spans: DataFrame) -> DataFrame:
    window = Window.partitionBy(*_PARTITION).orderBy("begin_ms", "process")
    before = spans.withColumn("before", sql.lag("process").over(window))
    moved = before.where(sql.col("before") != sql.col("process"))
    counts = moved.groupBy(*_REBALANCE_OF_ROUNDS, "topic", "partition").agg(
        sql.count(sql.lit(1)).alias("moves")
    )
    return counts.groupBy(*_REBALANCE_OF_ROUNDS).agg(
        sql.count(sql.lit(1)).cast("int").alias("moved"),
        sql.count_if(sql.col("moves") > 1).cast("int").alias("moved_twice"),
    )


def _described_of_rounds(rows: DataFrame) -> DataFrame:
    nobody = sql.array().cast("array<string>")
    before, first = (sql.coalesce(name, nobody) for name in ("before", "first"))
    after = sql.col("after")
    begin_ms = sql.coalesce("left_ms", "led_ms")
    end_ms = sql.greatest("end_led_ms", sql.coalesce("got_ms", "end_led_ms"))
    zero = sql.lit(0)
    return rows.select(
        *("group", "first_generation", "last_generation", "rounds"),
        sql.lit(TELEMETRY).alias("source"),
        sql.lit(None).cast("int").alias("missing"),
        sql.coalesce(_member_change(before, first), sql.lit("rejoin")).alias("trigger"),
        begin_ms.alias("begin_earliest_ms"),
        begin_ms.alias("begin_ms"),
        end_ms.alias("end_ms"),
        (end_ms - begin_ms).alias("duration_ms"),
        sql.size(before).alias("members_before"),
        sql.size(after).alias("members_after"),
        sql.size(sql.array_except(after, before)).alias("joined"),
        sql.size(sql.array_except(before, after)).alias("left"),
        sql.lit(None).cast("int").alias("partitions"),
        sql.coalesce("moved", zero).alias("moved"),
        sql.coalesce("moved_twice", zero).alias("moved_twice"),
        sql.coalesce("sum_s", sql.lit(0.0)).alias("unavailable_partition_s"),
        sql.coalesce("error_s", sql.lit(0.0)).alias("unavailable_error_s"),
        zero.alias("unobserved"),
    ).select(*TABLES["rebalances"].schema.names)
