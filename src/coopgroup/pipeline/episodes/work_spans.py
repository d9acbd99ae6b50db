"""Times of work of each process on each partition, from telemetry: `work_spans`.

Applications record when they started and stopped work on a partition. Work ends with the first of
these later events:

- a stop by the same *worker*: its name (`client`), or its member id if it has no name;
- a start or an end of its process, if a host records these (the simulator does);
- a stop without a member id: a member that lost its membership has no member id any longer. The
  stop belongs to the last starter on the partition, if that member id never appears again;
- the return of its member in another life of the process (`coopgroup.state.dir`): it died;
- a start by another worker, or by the same worker under another member id, if the old member id
  never appears again: it died.

The last two events show that a member died, but not when. It was alive at its last record before
the next life. It was dead when it returned, or when the group had its first round without it. By
then it had been silent for at most its session time-out plus the longest rebalance time-out of the
group. So its work ended between two moments. The estimate is one session time-out before the later
moment.

A *process* is the identity behind a return: the name of the worker, else the process that the
group's history has for the member id (see `processes`), else the member id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["SESSION_MS", "known_members", "work_spans"]

SESSION_MS: Final = 45_000
"""Session time-out if the history does not contain it: the default of clients (KIP-735)."""

_PARTITION: Final = ("group", "topic", "partition")
_ENDS_OF_PROCESSES: Final = ("process_ended", "process_started")
_FOREVER_MS: Final = 2**62
_STOP: Final = 0
_START: Final = 1


def known_members(present: DataFrame) -> DataFrame:
    """Return the history's data on member ids: (group, member, known_as, session_ms, rejoin_ms).

    Args:
        present: from `processes.members_of`.
    """
    rejoin_ms = present.groupBy("group").agg(sql.max("rebalance_timeout_ms").alias("rejoin_ms"))
    members = present.groupBy("group", sql.col("member_id").alias("member")).agg(
        sql.max("process").alias("known_as"), sql.max("session_timeout_ms").alias("session_ms")
    )
    return members.join(rejoin_ms, "group")


def work_spans(work: DataFrame, events: DataFrame, led: DataFrame, known: DataFrame) -> DataFrame:
    """Return the times of a process's work on a partition.

    Args:
        work: the table.
        events: the table.
        led: from `rebalances.led_rebalances`.
        known: from `known_members`; may be empty.

    Returns:
        (group, topic, partition, process, begin_ms, end_ms, error_ms, life, first_generation). The
        last two are those of the last round before the begin. `end_ms` is null while the work
        continues; its error is at most `error_ms`.
    """
    spans = _with_what_follows(_said_spans(work, events), work)
    spans = spans.join(known, ["group", "member"], "left")
    ended = _with_signs(spans, events, led).select(
        *_PARTITION,
        sql.coalesce("name", "known_as", "member").alias("process"),
        *("begin_ms", sql.col("begin_ms").alias("at_ms")),
        *_end_and_error(),
    )
    return with_last(ended, led, keys=["group"], columns=["life", "first_generation"]).drop("at_ms")


def _name() -> Column:
    return sql.nullif("client", sql.lit(""))


def _worker() -> Column:
    return sql.coalesce(_name(), "member")


def _said_spans(work: DataFrame, events: DataFrame) -> DataFrame:
    """Return starts, with `end_ms` if the worker or the host of its process recorded the stop.

    Returns:
        (group, topic, partition, worker, name, member, begin_ms, end_ms, returned_ms); the last is
        the time when the member returned with its old id without having stopped.
    """
    said = (*_PARTITION, "worker", "name", "member", "at_ms")
    steps = work.withColumns({"worker": _worker(), "name": _name()})
    steps = steps.where(sql.col("worker") != "").select(*said, "is_start")
    lives = events.where(sql.col("kind").isin(*_ENDS_OF_PROCESSES))
    lives = lives.select("group", _worker().alias("worker"), "at_ms").distinct()
    touched = steps.select(*_PARTITION, "worker").distinct()
    no = sql.lit(0).cast("boolean")
    ends = lives.join(touched, ["group", "worker"]).withColumn("is_start", no)
    returns = _returns(events).join(touched, ["group", "worker"]).withColumn("is_start", no)
    returns = returns.withColumn("is_return", ~no)
    window = Window.partitionBy(*_PARTITION, "worker").orderBy("at_ms", "is_start", "member")
    is_again = sql.lag("is_start").over(window) & (
        sql.lag("member").over(window) == sql.col("member")
    )
    edges = steps.unionByName(ends, allowMissingColumns=True)
    edges = edges.unionByName(returns, allowMissingColumns=True)
    edges = edges.withColumns(
        {"is_again": sql.coalesce(is_again, no), "is_return": sql.coalesce("is_return", no)}
    )
    # A repeated start of a member changes nothing. Neither does a return without earlier work.
    is_idle = sql.col("is_return") & ~sql.col("is_again")
    edges = edges.where(~(sql.col("is_start") & sql.col("is_again")) & ~is_idle)
    next_ms, is_returned = (sql.lead(one).over(window) for one in ("at_ms", "is_return"))
    is_stopped = ~sql.lead("is_start").over(window)
    spans = edges.select(
        *said,
        "is_start",
        sql.when(is_stopped & ~is_returned, next_ms).alias("end_ms"),
        sql.when(is_returned, next_ms).alias("returned_ms"),
    )
    return spans.where("is_start").drop("is_start").withColumnRenamed("at_ms", "begin_ms")


def _returns(events: DataFrame) -> DataFrame:
    """Return joins of members that had a member id already: (group, worker, member, at_ms)."""
    before = sql.get_json_object("record", "$.before")
    moved = events.where((sql.col("kind") == "state_changed") & (sql.col("member") != ""))
    moved = moved.where(before == "unsubscribed")
    return moved.select("group", _worker().alias("worker"), "member", "at_ms").distinct()


def _with_what_follows(spans: DataFrame, work: DataFrame) -> DataFrame:
    """Add the next start on the partition, and the stop without a member id before it.

    Returns:
        `spans` with `next_ms` and `stopped_ms`, null if missing.
    """
    nobody = work.where((_worker() == "") & ~sql.col("is_start"))
    stops = nobody.select(
        *_PARTITION, sql.col("at_ms").alias("begin_ms"), sql.lit(_STOP).alias("step")
    )
    both = spans.withColumn("step", sql.lit(_START)).unionByName(stops, allowMissingColumns=True)
    # In reverse order, later rows come first: Spark is fast with windows over preceding rows only.
    order = (sql.desc("begin_ms"), sql.desc("step"), sql.desc("worker"))
    window = Window.partitionBy(*_PARTITION).orderBy(*order)
    seen = window.rowsBetween(Window.unboundedPreceding, -1)
    is_start = sql.col("step") == _START
    next_ms = sql.last(sql.when(is_start, sql.col("begin_ms")), ignorenulls=True).over(seen)
    following = sql.lag(sql.struct("step", "begin_ms")).over(window)
    rows = both.select(*both.columns, next_ms.alias("next_ms"), following.alias("following"))
    stopped_ms = sql.when(sql.col("following.step") == _STOP, sql.col("following.begin_ms"))
    return rows.where(is_start).withColumn("stopped_ms", stopped_ms).drop("step", "following")


def _with_signs(spans: DataFrame, events: DataFrame, led: DataFrame) -> DataFrame:
    """Add the last record of each member, and the group's first round without it.

    Returns:
        `spans` with `last_ms` and `left_ms`; `left_ms` is null without such a round.
    """
    window = Window.partitionBy("group", "life").orderBy("generation")
    rounds = led.withColumn("next_round_ms", sql.lead("at_ms").over(window))
    rounds = rounds.withColumn("member", sql.explode("members"))
    left = rounds.groupBy("group", "member").agg(
        sql.max_by("next_round_ms", "generation").alias("left_ms")
    )
    words = events.select("group", _worker().alias("worker"), "member", "at_ms").distinct()
    words = words.withColumn("last_ms", sql.col("at_ms"))
    # The first records of the next life are not the last ones of this life.
    until_ms = sql.coalesce(sql.col("returned_ms") - 1, sql.lit(_FOREVER_MS))
    said = with_last(
        spans.withColumn("at_ms", until_ms),
        words,
        keys=("group", "worker", "member"),
        columns=["last_ms"],
    )
    return said.drop("at_ms").join(left, ["group", "member"], "left")


def _end_and_error() -> tuple[Column, Column]:
    """Return the end of a span's work, null if it continues, and the maximum error in ms."""
    last_ms, left_ms = (sql.col(name) for name in ("last_ms", "left_ms"))
    next_ms = sql.least("next_ms", "returned_ms")
    is_lost = sql.col("stopped_ms") >= last_ms
    said_ms = sql.coalesce("end_ms", sql.when(is_lost, sql.col("stopped_ms")))
    is_dead = said_ms.isNull() & (next_ms > last_ms)
    latest_ms = sql.when(left_ms > last_ms, sql.least(next_ms, left_ms)).otherwise(next_ms)
    guess_ms = sql.greatest(latest_ms - sql.coalesce("session_ms", sql.lit(SESSION_MS)), last_ms)
    # If the time-outs are unknown, only the member's own records give a bound.
    silent_ms = sql.col("session_ms") + sql.col("rejoin_ms")
    earliest_ms = sql.greatest(latest_ms - silent_ms, last_ms)
    error_ms = sql.greatest(latest_ms - guess_ms, guess_ms - earliest_ms)
    return (
        sql.coalesce(said_ms, sql.when(is_dead, guess_ms)).alias("end_ms"),
        sql.when(is_dead, error_ms).otherwise(sql.lit(0)).cast("long").alias("error_ms"),
    )
