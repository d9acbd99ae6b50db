"""The history of one group from the pipeline's tables, as advice needs it.

Theory of operation: Spark reduces large tables (commits, lags, events) to a few figures. The
absences and rebalances of one group are few enough to be read as rows.

Today's setting comes from the rounds that the leaders recorded. A round records its policy and the
announced delay. The delay is the time-out only if the round has a new loss. Later rounds of the
same wait announce the rest of the delay. Rounds without a loss announce the time of the next
ration. So the longest delay of the newest wait under the newest policy counts. Older waits do not
count, since the setting may have changed.
"""

from __future__ import annotations

from collections import Counter
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.core.policies.built_in import policy_names
from coopgroup.errors import PipelineError
from coopgroup.pipeline.advice.cost import LADDER_MS, MoveCost
from coopgroup.pipeline.advice.history import GroupHistory, Observed, Seen, episodes_of
from coopgroup.pipeline.episodes.processes import EAGER, members_of, states_of
from coopgroup.pipeline.episodes.returns import LIKELY, PROVEN
from coopgroup.pipeline.topic.consumer_groups import BROKER
from coopgroup.simulator.scenario import Choice, How

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

__all__ = ["Readable", "history_of", "move_cost_of", "policy_led", "seen_of"]

_MS_PER_DAY: Final = 86_400_000
_MS_PER_S: Final = 1_000
_ROWS_MAX: Final = 200_000
_ROUNDS_MAX: Final = 10_000
_GROUPS_NAMED_MAX: Final = 8
_SESSION_MS: Final = 45_000
_JOIN_SLACK_MS: Final = 60_000
_MOVES_MIN: Final = 5
_WATCHED_MS_MIN: Final = LADDER_MS[-1]
_JOINS: Final = ("join", "exchange")
_WAITING: Final = ("deferred", "incremental")


class Readable(Protocol):
    """Readable tables: those of a folder (`tables.Tables`), or of a test."""

    @property
    def folder(self) -> str:
        """Location of the tables, for messages."""
        ...

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table of `schemas.TABLES`."""
        ...

    def as_of_ms(self) -> int | None:
        """Return the end of the history; `None` if unknown."""
        ...


def history_of(
    tables: Readable,
    group: str,
    today: Choice | None = None,
    since_ms: int = 0,
    *,
    uses_likely: bool = False,
) -> GroupHistory:
    """Read the history of a group.

    Args:
        tables: tables of the pipeline, including the episodes.
        group: its name.
        today: present policy; `None` derives it from the history.
        since_ms: begin of the history that counts, in ms since 1970.
        uses_likely: whether likely returns count as returns (see `episodes.returns`).

    Raises:
        PipelineError: the tables have no history of that group, or none from then on.
    """
    absences, cut_notes = _absences(tables, group, since_ms)
    since_ms = absences[0].gone_ms if cut_notes else since_ms
    all_rebalances = _of(tables, "rebalances", group)
    every = all_rebalances.where(sql.col("begin_ms") >= since_ms).collect()
    rebalances = _by_source(every, "history", "telemetry")
    if not rebalances and not absences:
        if since_ms and not all_rebalances.isEmpty():
            raise PipelineError(f"group {group!r} has no rebalance and no absence after --since")
        raise PipelineError(_unknown(tables, group))
    begin_ms, end_ms = _span_ms(tables, group, rebalances, absences)
    begin_ms = max(begin_ms, since_ms)
    days = max(1, end_ms - begin_ms) / _MS_PER_DAY
    telemetry_first = _by_source(every, "telemetry", "history")
    members = _usual_members(rebalances)
    kinds = Counter(row.returned_as for row in absences)
    counted_kinds = (*PROVEN, LIKELY) if uses_likely else PROVEN
    seen = [seen_of(row, returned_as=counted_kinds) for row in absences]
    returns = [row.returned_ms for row in absences if row.returned_as in counted_kinds]
    episodes, left_out = episodes_of(
        seen, _joins(rebalances, returns), watched_ms_min=_WATCHED_MS_MIN
    )
    timeouts = Counter(row.session_timeout_ms or _SESSION_MS for row in absences)
    found, notes = _today(tables, group)
    rate_per_s, rate_notes = _rate(tables, group, begin_ms)
    return GroupHistory(
        group=group,
        members=members,
        partitions=_partitions(tables, group, rebalances) or members,
        is_static=2 * sum(row.instance_id is not None for row in absences) > len(absences),
        session_timeout_ms=timeouts.most_common(1)[0][0] if timeouts else _SESSION_MS,
        rate_per_s=rate_per_s,
        days=days,
        as_of_ms=tables.as_of_ms(),
        episodes=episodes,
        left_out=left_out,
        absent=len(absences),
        proven=sum(kinds[kind] for kind in PROVEN),
        likely=kinds[LIKELY],
        uses_likely=uses_likely,
        today=found if today is None else today,
        observed=_observed(tables, group, telemetry_first, begin_ms, days),
        notes=(
            *cut_notes,
            *_source_notes(rebalances, absences),
            *(notes if today is None else ()),
            *rate_notes,
        ),
    )


def move_cost_of(tables: Readable, group: str) -> MoveCost | None:
    """Return the cost of a move from telemetry: medians from the assignment to the begin of work.

    Args:
        tables: tables of the pipeline.
        group: its name.

    Returns:
        `None` if the telemetry has fewer than five moves.
    """
    waits = _waits(_of(tables, "events", group), _starts(tables, group)).groupBy("came_back")
    rows = waits.agg(sql.median("wait_ms").alias("wait_ms"), sql.count("*").alias("count"))
    found = {row.came_back: row for row in rows.collect()}
    moved, back = found.get(False), found.get(True)
    if moved is None or moved["count"] < _MOVES_MIN:
        return None
    move_ms = round(moved.wait_ms)
    return_ms = move_ms if back is None or back["count"] < _MOVES_MIN else round(back.wait_ms)
    return MoveCost(move_ms=move_ms, return_ms=min(move_ms, return_ms))


def _starts(tables: Readable, group: str) -> DataFrame:
    """Return each begin of work, with its process in `who`.

    Real members write only their member id, and a process gets a new member id in each of its
    lives. The coordinator's states show the process.
    """
    states = states_of(_of(tables, "generations", group))
    present = members_of(_of(tables, "members", group), states)
    names = present.groupBy(sql.col("member_id").alias("member")).agg(
        sql.max("process").alias("process")
    )
    work = _of(tables, "work", group).where("is_start").join(names, "member", "left")
    who = sql.coalesce(sql.nullif("client", sql.lit("")), "process", "member")
    return work.withColumn("who", who)


def _waits(events: DataFrame, starts: DataFrame) -> DataFrame:
    """Return how long each partition took from its assignment to the begin of work.

    Returns:
        `wait_ms` and `came_back`: whether the process is the one that last worked on the partition.
        Partitions without earlier work are left out.
    """
    gained = sql.from_json(sql.get_json_object("record", "$.gained"), "map<string, array<int>>")
    gains = (
        events.where(sql.col("kind") == "assignment_received")
        .select("member", "at_ms", sql.explode(gained).alias("topic", "partitions"))
        .select("member", "topic", sql.explode("partitions").alias("partition"), "at_ms")
        .withColumn("is_gain", sql.lit(1))
    )
    by_partition = Window.partitionBy("topic", "partition").orderBy("at_ms")
    begins = (
        starts.withColumn("before", sql.lag("who").over(by_partition))
        .where(sql.col("before").isNotNull())
        .select("member", "topic", "partition", "at_ms", sql.expr("before = who AS came_back"))
        .withColumn("is_gain", sql.lit(0))
    )
    # A begin belongs to the last assignment before it: a gain comes right before its begin.
    by_member = Window.partitionBy("member", "topic", "partition").orderBy(
        "at_ms", sql.col("is_gain").desc()
    )
    paired = gains.unionByName(begins, allowMissingColumns=True).withColumns(
        {
            "was_gain": sql.lag("is_gain").over(by_member),
            "wait_ms": sql.col("at_ms") - sql.lag("at_ms").over(by_member),
        }
    )
    return paired.where("is_gain = 0 AND was_gain = 1").select("wait_ms", "came_back")


def _of(tables: Readable, name: str, group: str) -> DataFrame:
    return tables.read(name).where(sql.col("group") == group)


def _by_source(rows: Sequence[Row], *sources: str) -> list[Row]:
    """Return the rows of the first source that has any; two sources may report the same group."""
    by_source = ([row for row in rows if row.source == source] for source in sources)
    return next((some for some in by_source if some), [])


def _absences(tables: Readable, group: str, since_ms: int) -> tuple[list[Row], tuple[str, ...]]:
    """Return the absences, oldest first. If there are too many, keep the newest and add a note."""
    known = _of(tables, "absences", group).where(sql.col("gone_ms") >= since_ms)
    newest = known.orderBy(sql.col("gone_ms").desc(), "member_id")
    rows = newest.limit(_ROWS_MAX + 1).collect()
    if len(rows) <= _ROWS_MAX:
        return rows[::-1], ()
    note = f"There are more than {_ROWS_MAX:,} absences; only the newest count, and days with them."
    return rows[:_ROWS_MAX][::-1], (note,)


def _source_notes(rebalances: Sequence[Row], absences: Sequence[Row]) -> tuple[str, ...]:
    """Return a note if only telemetry knows the group."""
    if absences or any(row.source == "history" for row in rebalances):
        return ()
    note = (
        "Only telemetry knows this group, which does not say who was absent: advice needs "
        "`coopgroup pipeline history`, and then episodes."
    )
    return (note,)


def _partitions(tables: Readable, group: str, rebalances: Sequence[Row]) -> int:
    """Return the number of a group's partitions; 0 if unknown."""
    known = [int(row.partitions) for row in rebalances if row.partitions]
    if known:
        return max(known)
    return _of(tables, "work", group).select("topic", "partition").distinct().count()


def _unknown(tables: Readable, group: str) -> str:
    known = tables.read("rebalances").select("group").distinct().orderBy("group")
    names = [row.group for row in known.limit(_GROUPS_NAMED_MAX + 1).collect()]
    if not names:
        return (
            f"{tables.folder} has no episodes to advise on; read a history first, and then its "
            "episodes"
        )
    more = ", ..." if len(names) > _GROUPS_NAMED_MAX else ""
    named = ", ".join(names[:_GROUPS_NAMED_MAX])
    return f"{tables.folder} has no history of group {group!r}; there are {named}{more}"


def seen_of(row: Row, returned_as: Sequence[str] = PROVEN) -> Seen:
    """Return an absence in the form that advice uses.

    A death shows only by its silence. If a process without a static id is killed and restarts
    immediately, it waits within its join until its old session ends. So the next round shows when
    the session ended, and hides the real return. Every length below the session time-out costs the
    same under every policy, so half of it is used.

    Args:
        row: of the table `absences`.
        returned_as: kinds of returns that count. Other absences are permanent.
    """
    session_ms = row.session_timeout_ms or _SESSION_MS
    heard_ms = max(0, row.gone_latest_ms - row.gone_ms)
    absent_ms = row.absent_ms if row.returned_as in returned_as else None
    if absent_ms is not None and row.instance_id is None and row.returned_ms <= row.gone_latest_ms:
        absent_ms = min(heard_ms, session_ms) // 2
    return Seen(
        process=row.instance_id or f"{row.client_id}@{row.client_host}",
        gone_ms=row.gone_ms,
        absent_ms=None if absent_ms is None else max(0, absent_ms),
        watched_ms=row.observed_until_ms - row.gone_ms,
        how=How.CRASH if 2 * heard_ms >= session_ms else How.CLOSE,
    )


def _usual_members(rebalances: Sequence[Row]) -> int:
    """Return the number of members of a complete group."""
    counts = Counter(row.members_after for row in rebalances if row.members_after)
    # Between a death and a return the group lacks a member. So the largest of the frequent sizes
    # counts.
    often = max(counts.values(), default=0)
    return max((size for size, count in counts.items() if 2 * count >= often), default=2)


def _span_ms(
    tables: Readable, group: str, rebalances: Sequence[Row], absences: Sequence[Row]
) -> tuple[int, int]:
    """Return the first and last sign of the group; commits count, as they may be the only sign."""
    times = [
        *(at_ms for row in rebalances for at_ms in (row.begin_ms, row.end_ms)),
        *(at_ms for row in absences for at_ms in (row.gone_ms, row.observed_until_ms)),
    ]
    signs = [
        _of(tables, name, group).agg(sql.min("at_ms"), sql.max("at_ms"))
        for name in ("commits", "generations", "events")
    ]
    rows = signs[0].unionByName(signs[1]).unionByName(signs[2]).collect()
    times += [at_ms for row in rows for at_ms in row if at_ms is not None]
    return min(times), max(*times, tables.as_of_ms() or 0)


def _joins(rebalances: Sequence[Row], returns: Sequence[int]) -> dict[int, int]:
    """Return the number of new members, without returning ones, by time."""
    found = {}
    for row in rebalances:
        if row.trigger not in _JOINS or not row.joined:
            continue
        from_ms, to_ms = row.begin_ms - _JOIN_SLACK_MS, row.end_ms + _JOIN_SLACK_MS
        back = sum(from_ms <= one <= to_ms for one in returns)
        if row.joined > back:
            found[row.begin_ms] = row.joined - back
    return found


def _today(tables: Readable, group: str) -> tuple[Choice, tuple[str, ...]]:
    """Return the policy of a group, and notes on the parts that are estimates."""
    newest_first = (sql.col("at_ms").desc(), sql.col("generation").desc())
    rounds = _of(tables, "rounds", group).orderBy(*newest_first).limit(_ROUNDS_MAX)
    led = policy_led(rounds.select("policy", "lost", "rejoin_in_ms").collect())
    if led is not None:
        return led
    states = _of(tables, "generations", group).where("protocol is not null")
    newest = states.orderBy(sql.col("at_ms").desc()).select("protocol").first()
    protocol = None if newest is None else newest.protocol
    name = "eager" if protocol in EAGER else "simple"
    how = f"by its protocol {protocol!r}" if protocol else "as nothing says otherwise"
    if protocol == BROKER:
        how = "as the group coordinator assigns (KIP-848)"
    return Choice(name=name), (f"Today's policy is taken for {name}, {how}; --today says better.",)


def _rate(tables: Readable, group: str, begin_ms: int) -> tuple[float, tuple[str, ...]]:
    """Return the mean of the records per second and partition from a time on."""
    by_partition = Window.partitionBy("topic", "partition").orderBy("at_ms")
    lag = _of(tables, "lag", group).where(sql.col("at_ms") >= begin_ms)
    steps = lag.select(
        (sql.col("end") - sql.lag("end").over(by_partition)).alias("records"),
        (sql.col("at_ms") - sql.lag("at_ms").over(by_partition)).alias("ms"),
    )
    # The end goes back if the topic was created again.
    grown = steps.where("records >= 0")
    row = grown.agg((sql.sum("records") / sql.sum("ms") * _MS_PER_S).alias("rate")).first()
    if row is None or row.rate is None:
        note = "How much is produced is not known, so there are no figures of lag: run lag first."
        return 0.0, (note,)
    return float(row.rate), ()


def _observed(
    tables: Readable, group: str, rebalances: Sequence[Row], begin_ms: int, days: float
) -> Observed:
    known = [row for row in rebalances if row.unavailable_partition_s is not None]
    lag = _of(tables, "lag", group).where(sql.col("at_ms") >= begin_ms)
    totals = lag.groupBy("at_ms").agg(sql.sum("lag").alias("total"))
    peak = totals.agg(sql.max("total").alias("peak")).first()
    return Observed(
        unavailable_s=sum(row.unavailable_partition_s for row in known) / days if known else None,
        moved=sum(row.moved or 0 for row in rebalances) / days if rebalances else None,
        lag_peak=None if peak is None or peak.peak is None else int(peak.peak),
    )


def policy_led(rounds: Sequence[Row]) -> tuple[Choice, tuple[str, ...]] | None:
    """Return the policy of a group, and notes on the parts that are estimates.

    Args:
        rounds: rows of the table `rounds`, newest first.

    Returns:
        `None` without rounds, or if the policy is not one of coopgroup's own.
    """
    if not rounds or rounds[0].policy not in policy_names():
        return None
    name = rounds[0].policy
    span = takewhile(lambda one: one.policy == name, rounds)
    if name not in _WAITING:
        return Choice(name=name), ()
    wait = takewhile(_is_waiting, dropwhile(lambda one: not _is_waiting(one), span))
    waits_ms = max((one.rejoin_in_ms for one in wait), default=0)
    options: dict[str, Any] = {}
    guessed = []
    if waits_ms:
        options["scheduled_rebalance_timeout_ms"] = int(waits_ms)
    else:
        guessed.append("time-out")
    if name == "incremental":
        guessed.append("ration")
    if not guessed:
        return Choice(name=name, options=options), ()
    note = (
        f"Today's {' and '.join(guessed)} was not seen in telemetry: taken for what the "
        f"{name} policy has by itself, a guess; --today says better."
    )
    return Choice(name=name, options=options), (note,)


def _is_waiting(one: Row) -> bool:
    return bool(one.lost) and one.rejoin_in_ms is not None
