"""Lag, load and skew of groups: ends of partitions, joined with the commits of the same time.

A partition counts from its commit to the deletion of that commit. The last record in the order of
the log counts, as for the group coordinator.

Without a commit, a partition counts only while members of the group subscribe to its topic: they
read it. The rules are those of the lag-aware assignors (KAFKA-5337). With
`auto.offset.reset=latest` the lag is 0. With other values it is the number of all records. They
also apply to a commit outside of the log, if begin and end are of that moment: its record was
deleted, or the topic was made again. The begin of a past moment is not known, and its end is only
as accurate as the clocks of producers. If a commit is beyond the end of a past moment, this end is
wrong: a record before it has a later timestamp. The lag is then unknown (null), and so is the lag
of a moment whose end is unknown.

If a topic is deleted and made again, its id tells the two lives apart. A moment is left out if the
last commit and the end have different ids. So the lag is unknown until the first commit to the new
topic.

No moment is later than the end of the history (`Tables.as_of_ms`): the commits are missing there.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen
from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import in_log_order, with_last
from coopgroup.pipeline.progress import UNKNOWN, Progress
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import ALL, Scope, in_groups
from coopgroup.pipeline.tables import day_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from coopgroup.pipeline.tables import Tables

__all__ = [
    "LAG_INPUT",
    "LAG_JOB",
    "LOADS_JOB",
    "RESETS",
    "committed_topics",
    "interests_of",
    "lag_of",
    "loads_of",
    "skew_of",
    "subscribed_moments",
    "unknown_of",
    "used_topics",
    "write_lag",
]

LAG_JOB: Final = "lag"
LOADS_JOB: Final = "loads"
RESETS: Final = ("earliest", "latest")
_NO_LAG: Final = "unknown"
_PARTITION: Final = ("group", "topic", "partition")
_STATE: Final = ("group", "source_partition", "source_offset")
_MOMENT: Final = ("group", "at_ms", "generation")
LAG_INPUT: Final = ("commits", "members", "generations", "ends")
_AFTER_ALL: Final = 2**62  # an offset after those of all records of a time
_MS_PER_S: Final = 1_000
_MS_PER_HOUR: Final = 3_600_000


def interests_of(commits: DataFrame, members: DataFrame) -> DataFrame:
    """Return the topics of each group, with the first time: (group, topic, since_ms).

    Args:
        commits: the table.
        members: the table.
    """
    committed = commits.select("group", "topic", "at_ms")
    subscribed = members.select("group", sql.explode("topics").alias("topic"), "at_ms")
    both = committed.unionByName(subscribed)
    return both.groupBy("group", "topic").agg(sql.min("at_ms").alias("since_ms"))


def lag_of(
    ends: DataFrame, commits: DataFrame, interests: DataFrame, subscribed: DataFrame, reset: str
) -> DataFrame:
    """Return the lag of every group at every time with known ends: the table `lag`.

    `ends` and `commits` may be large, and each of their rows is shuffled once. `interests` and
    `subscribed` are small; Spark broadcasts them if it knows their size when it plans (see
    `_sized`).

    Args:
        ends: the table.
        commits: the table, from `in_log_order`.
        interests: from `interests_of`.
        subscribed: from `subscribed_moments`.
        reset: `auto.offset.reset` of the consumers, one of `RESETS`.
    """
    wanted = _wanted(ends, interests)
    said = commits.withColumnRenamed("topic_id", "commit_topic_id")
    known = with_last(
        *(wanted, said),
        keys=_PARTITION,
        columns=["committed", "commit_topic_id"],
        order=["source_offset"],
        is_once=True,
    )
    is_other = sql.col("committed").isNotNull() & (
        sql.col("commit_topic_id") != sql.col("topic_id")
    )
    known = known.where(~sql.coalesce(is_other, sql.lit(0).cast("boolean")))
    is_committed = sql.col("committed").isNotNull()
    reads = subscribed.withColumn("is_read", sql.lit(1))
    known = known.join(reads, ["group", "topic", "at_ms"], "left")
    known = known.where(is_committed | sql.col("is_read").isNotNull())
    none, false = sql.lit(0).cast("long"), sql.lit(0).cast("boolean")
    uncommitted = none if reset == "latest" else sql.col("end") - sql.col("begin")
    is_present = sql.coalesce("is_present", false)
    is_outside = is_present & ~sql.col("committed").between(sql.col("begin"), sql.col("end"))
    counts = is_committed & ~sql.coalesce(is_outside, false)
    lag = sql.when(counts, sql.col("end") - sql.col("committed")).otherwise(uncommitted)
    return known.select(
        *(*_PARTITION, "at_ms", "end", "committed"),
        sql.when(lag >= 0, lag).alias("lag"),
        sql.when(lag >= 0, sql.when(counts, "committed").otherwise(reset))
        .otherwise(_NO_LAG)
        .alias("rule"),
    )


def subscribed_moments(
    ends: DataFrame, interests: DataFrame, generations: DataFrame, members: DataFrame
) -> DataFrame:
    """Return the moments at which members subscribed to a topic: (group, topic, at_ms).

    Args:
        ends: the table.
        interests: from `interests_of`.
        generations: the table.
        members: the table.
    """
    topics = members.select(*_STATE, sql.explode("topics").alias("topic"))
    topics = topics.groupBy(*_STATE).agg(sql.collect_set("topic").alias("topics"))
    states = generations.select(*_STATE, "at_ms").join(topics, list(_STATE), "left")
    # Distinct moments of a topic first: they are few, and the ends of all partitions are many.
    times = ends.select("topic", "at_ms").distinct()
    moments = _wanted(times, interests).select("group", "at_ms").distinct()
    at = with_last(moments, states, keys=["group"], columns=["topics"], order=["source_offset"])
    return at.select("group", sql.explode("topics").alias("topic"), "at_ms")


def _wanted(ends: DataFrame, interests: DataFrame) -> DataFrame:
    """Return ends for each group that uses the topic then."""
    wanted = ends.join(interests, "topic").where(sql.col("at_ms") >= sql.col("since_ms"))
    return wanted.drop("since_ms")


def loads_of(ends: DataFrame, commits: DataFrame, interests: DataFrame) -> DataFrame:
    """Return produced and committed records per second: the table `loads`.

    The rates are by partition and hour of the day (UTC). A rate is the number of all records
    divided by all seconds of the hour. An interval of several hours counts for each of them, in
    proportion to its time. Intervals whose offset went back (a new topic, a reset group) do not
    count.

    Args:
        ends: the table.
        commits: the table.
        interests: from `interests_of`.
    """
    ends = ends.where(sql.col("end").isNotNull())
    produced = ends.select("topic", "partition", "at_ms", sql.col("end").alias("offset"))
    arrivals = _rates(produced, ("topic", "partition"), "arrival")
    arrivals = arrivals.join(interests.select("group", "topic"), "topic")
    consumed = commits.where(~sql.col("is_tombstone"))
    consumed = consumed.select(*_PARTITION, "at_ms", sql.col("committed").alias("offset"))
    consumption = _rates(consumed, _PARTITION, "consumption")
    both = arrivals.join(consumption, [*_PARTITION, "hour"], "full_outer")
    return both.select(*TABLES["loads"].schema.names)


def _rates(offsets: DataFrame, keys: tuple[str, ...], name: str) -> DataFrame:
    """Return the rate of growing offsets by hour: the keys, hour, `NAME_per_s` and `NAME_s`."""
    window = Window.partitionBy(*keys).orderBy("at_ms", "offset")
    steps = offsets.select(
        *(*keys, "at_ms"),
        sql.lag("at_ms").over(window).alias("from_ms"),
        (sql.col("offset") - sql.lag("offset").over(window)).alias("records"),
    ).where((sql.col("records") >= 0) & (sql.col("at_ms") > sql.col("from_ms")))
    first, last = (
        sql.floor(one / _MS_PER_HOUR) for one in (sql.col("from_ms"), sql.col("at_ms") - 1)
    )
    parts = steps.withColumn("number", sql.explode(sql.sequence(first, last)))
    until_ms = sql.least(sql.col("at_ms"), (sql.col("number") + 1) * _MS_PER_HOUR)
    parts = parts.select(
        *keys,
        sql.pmod("number", sql.lit(24)).cast("int").alias("hour"),
        (until_ms - sql.greatest("from_ms", sql.col("number") * _MS_PER_HOUR)).alias("ms"),
        (sql.col("records") / (sql.col("at_ms") - sql.col("from_ms"))).alias("per_ms"),
    )
    seconds: Column = sql.sum("ms") / _MS_PER_S
    return parts.groupBy(*keys, "hour").agg(
        (sql.sum(sql.col("per_ms") * sql.col("ms")) / seconds).alias(f"{name}_per_s"),
        seconds.alias(f"{name}_s"),
    )


def skew_of(lag: DataFrame, states: DataFrame, holders: DataFrame) -> DataFrame:
    """Return the table: a row for each time at which the lag of all owned partitions is known.

    A member without partitions counts with a lag of 0. A partition without an owner does not count.

    Args:
        lag: the table.
        states: from `episodes.processes.states_of`.
        holders: from `episodes.processes.holders_of`.
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
    lags = lag.select(*_PARTITION, "at_ms", "lag")
    rows = at.join(held, ["group", "state"]).join(lags, [*_PARTITION, "at_ms"], "left")
    by_member = rows.groupBy(*_MOMENT, "member_count", "member_id").agg(
        sql.sum("lag").alias("lag"), sql.count_if(sql.col("lag").isNull()).alias("unknown")
    )
    mean = sql.col("lag_total") / sql.col("members")
    return (
        by_member.groupBy(*_MOMENT, sql.col("member_count").alias("members"))
        .agg(
            sql.sum("lag").alias("lag_total"),
            sql.max("lag").alias("lag_max"),
            sql.sum("unknown").alias("unknown"),
        )
        .where(sql.col("unknown") == 0)
        .withColumn("lag_mean", mean)
        .withColumn(
            "imbalance",
            sql.when(sql.col("lag_total") > 0, sql.col("lag_max") / sql.col("lag_mean")),
        )
        .select(*TABLES["skew"].schema.names)
    )


def unknown_of(tables: Tables, scope: Scope = ALL) -> list[tuple[str, int, int]]:
    """Return the partitions with unknown lags, and the number of such moments, ascending.

    Args:
        tables: with lag.
        scope: groups, and begin.
    """
    lag = scope.since(scope.of_groups(tables.read("lag"))).where(sql.col("lag").isNull())
    counts = lag.groupBy("topic", "partition").agg(sql.count_distinct("at_ms").alias("moments"))
    return sorted((row.topic, row.partition, row.moments) for row in counts.collect())


def committed_topics(tables: Tables, scope: Scope = ALL) -> tuple[tuple[str, ...], int]:
    """Return the topics that a group committed, ascending, and the time of the first commit.

    Args:
        tables: with history.
        scope: the groups.
    """
    commits = scope.of_groups(tables.read("commits"))
    topics = commits.groupBy("topic").agg(sql.min("at_ms").alias("at_ms"))
    rows = topics.collect()  # only the names, to ask the brokers about ends
    return tuple(sorted(row.topic for row in rows)), min((row.at_ms for row in rows), default=0)


def used_topics(tables: Tables, scope: Scope) -> set[str]:
    """Return the topics that a group committed in the time of a scope.

    Args:
        tables: with history.
        scope: groups, and begin.
    """
    commits = scope.since(scope.of_groups(tables.read("commits")))
    return {
        row.topic
        for row in commits.where(~sql.col("is_tombstone")).select("topic").distinct().collect()
    }


def write_lag(tables: Tables, reset: str, scope: Scope = ALL) -> None:
    """Bring `lag` and `loads` up to date.

    New input changes the lag of later moments only, so only those are computed. Loads are rates of
    whole hours over all commits and ends, so they are computed once an hour.

    Args:
        tables: with history and `ends`.
        reset: one of `RESETS`.
        scope: groups, and begin of lag and load; older commits still count for later times.
    """
    tables = tables.current()
    now = Progress.of(tables, LAG_INPUT, reset, scope)
    last, loaded = (Progress.last(tables, job) for job in (LAG_JOB, LOADS_JOB))
    has_loads = loaded is not None and _are_new(loaded, now)
    if last == now and has_loads and "lag" in tables.versions():
        return
    # The job reads `lag` too, which has a row of each end for each group of its topic.
    tables = tables.for_rows_of("commits", "ends", "lag")
    from_ms: int | None = UNKNOWN
    if last is None or "lag" not in tables.versions() or not now.continues(last):
        tables.note(LAG_JOB, None)
        last = None
    else:
        from_ms = now.new_from_ms(tables, last)
        if from_ms is not None and from_ms > now.as_of_ms > 0:
            from_ms = None  # it counts once the end of the history has moved on
        last = _forget(tables, scope, last)
    if from_ms is None and has_loads:
        now.note(tables, LAG_JOB, after=last)
        return
    with ExitStack() as kept:
        inputs = _Inputs.of(tables, scope, now.as_of_ms, kept)
        if from_ms is not None:
            if from_ms > scope.since_ms:
                new = inputs.later_lag(tables, from_ms, reset, kept)
                where = _where(scope, f"at_ms >= {from_ms}", f"day >= {day_of(from_ms)}")
            else:
                new, where = inputs.lag(reset, kept), _where(scope)
            tables.replace("lag", new, where)
        now.note(tables, LAG_JOB, after=last)
        if not has_loads:
            tables.replace("loads", inputs.loads(scope), _where(scope))
            now.note(tables, LOADS_JOB, after=loaded)


def _are_new(loaded: Progress, now: Progress) -> bool:
    """Return whether loads need not be computed again."""
    is_soon = loaded.as_of_ms <= now.as_of_ms < loaded.as_of_ms + _MS_PER_HOUR
    is_same = now.continues(loaded) and loaded.since_ms == now.since_ms
    return is_same and (loaded.read == now.read or (is_soon and now.as_of_ms > 0))


def _forget(tables: Tables, scope: Scope, last: Progress) -> Progress:
    """Delete the rows before the begin of the scope; return the progress without them."""
    if last.since_ms == scope.since_ms:
        return last
    # First, because a later run with an earlier begin must not rely on these rows.
    known = evolve(last, since_ms=scope.since_ms).note(tables, LAG_JOB, after=last)
    where = _where(scope, f"at_ms < {scope.since_ms}")
    tables.execute("lag", f"DELETE FROM {tables.in_sql('lag')} WHERE {where}")  # noqa: S608 - quoted
    return known


def _where(scope: Scope, *conditions: str) -> str:
    """Return a condition of SQL: a row is of the groups of a scope, and meets the conditions."""
    return " AND ".join([*conditions, *([in_groups(scope.groups)] if scope.groups else [])])


def _sized(small: DataFrame, kept: ExitStack) -> DataFrame:
    """Compute a small frame now, and keep it until the end of the job.

    Spark then knows its size, and broadcasts it if it is small enough. Otherwise Spark would guess
    a size from the tables, and shuffle all rows of the large side by topic or by moment.
    """
    small = small.persist()
    kept.callback(small.unpersist)
    small.count()
    return small


def _from(frame: DataFrame, from_ms: int) -> DataFrame:
    """Return the rows from a time on; of tables with days, only these days are read."""
    return frame.where(sql.col("at_ms") >= from_ms)


@frozen
class _Inputs:
    """Raw rows of a scope.

    Attributes:
        commits: of all times.
        members: of all times.
        generations: of all times.
        ends: of the time of the scope, until the end of the history.
        interests: from `interests_of`.
    """

    commits: DataFrame
    members: DataFrame
    generations: DataFrame
    ends: DataFrame
    interests: DataFrame

    @classmethod
    def of(cls, tables: Tables, scope: Scope, as_of_ms: int, kept: ExitStack) -> _Inputs:
        names = ("commits", "members", "generations")
        commits, members, generations = (scope.of_groups(tables.read(name)) for name in names)
        ends = scope.since(tables.read("ends"))
        if as_of_ms:
            # Of later moments the commits are not known yet.
            ends = ends.where(sql.col("at_ms") <= as_of_ms)
        interests = _sized(interests_of(commits, members), kept)
        return cls(commits, members, generations, ends, interests)

    def lag(self, reset: str, kept: ExitStack) -> DataFrame:
        """Return the table `lag`."""
        return self._lag(self.ends, in_log_order(self.commits), reset, kept)

    def later_lag(self, tables: Tables, from_ms: int, reset: str, kept: ExitStack) -> DataFrame:
        """Return the rows of `lag` from a time on, from those of the hour before it."""
        said = _known_commits(tables, from_ms, self, kept)
        return self._lag(_from(self.ends, from_ms), said, reset, kept)

    def _lag(self, ends: DataFrame, commits: DataFrame, reset: str, kept: ExitStack) -> DataFrame:
        moments = subscribed_moments(ends, self.interests, self.generations, self.members)
        return lag_of(ends, commits, self.interests, _sized(moments, kept), reset)

    def loads(self, scope: Scope) -> DataFrame:
        """Return the table `loads`."""
        return loads_of(self.ends, scope.since(self.commits), self.interests)


def _known_commits(tables: Tables, from_ms: int, inputs: _Inputs, kept: ExitStack) -> DataFrame:
    """Return the commits that count from a time on.

    The last lag of the hour before says what was committed by then, so older commits are not read.
    Each run computes the lag at the end of the history, so this hour usually has a moment.
    All commits of a group to a topic are read if the hour does not say it: the topic was made
    again, or a partition has no moment in that hour, or no lag at the last moment. It then had no
    commit, or only one to an earlier topic of that name.
    """
    before_ms = from_ms - _MS_PER_HOUR
    ids = sql.coalesce("topic_id", sql.lit(""))
    last = (
        _from(inputs.ends, before_ms)
        .groupBy("topic", "partition")
        .agg(
            sql.max(sql.when(sql.col("at_ms") < from_ms, sql.col("at_ms"))).alias("at_ms"),
            sql.max("topic_id").alias("topic_id"),
            (sql.count_distinct(ids) > 1).alias("is_made_again"),
        )
    )
    # One row for each partition before the join, because lag has one for each moment as well.
    lag = _from(tables.read("lag"), before_ms).where(sql.col("at_ms") < from_ms)
    known = lag.groupBy(*_PARTITION).agg(
        sql.max("at_ms").alias("known_ms"), sql.max_by("committed", "at_ms").alias("committed")
    )
    # All commits of a younger interest are read anyway.
    old = inputs.interests.where(sql.col("since_ms") < before_ms).select("group", "topic")
    carried = last.join(old, "topic").join(known, [*_PARTITION], "left")
    is_known = ~sql.col("is_made_again") & sql.col("known_ms").eqNullSafe(sql.col("at_ms"))
    is_known &= sql.col("at_ms").isNotNull()
    unknown = _sized(carried.where(~is_known).select("group", "topic").distinct(), kept)
    names = (*_PARTITION, "at_ms", "committed", "topic_id", "source_offset")
    said = _from(inputs.commits, before_ms)
    if not unknown.isEmpty():
        older = inputs.commits.where(sql.col("at_ms") < before_ms)
        said = said.unionByName(older.join(unknown, ["group", "topic"], "left_semi"))
        carried = carried.join(unknown, ["group", "topic"], "left_anti")
    carried = carried.withColumn("source_offset", sql.lit(_AFTER_ALL))
    return in_log_order(said).select(*names).unionByName(carried.select(*names))
