"""The history of groups from the pipeline's tables, as advice needs it.

Theory of operation: Spark reduces large tables (commits, lags, events) to a few figures of each
group, for all groups in one job. Absences and rebalances are few enough to be read as rows.

Today's setting comes from the rounds that the leaders recorded. A round records its policy and the
announced delay. The delay is the time-out only if the round has a new loss. Later rounds of the
same wait announce the rest of the delay. Rounds without a loss announce the time of the next
ration. So the longest delay of the newest wait under the newest policy counts. Older waits do not
count, since the setting may have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import frozen
from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.core.policies.built_in import policy_names
from coopgroup.errors import PipelineError
from coopgroup.pipeline.advice.cost import LADDER_MS, MoveCost
from coopgroup.pipeline.advice.history import GroupHistory, Observed, Seen, episodes_of
from coopgroup.pipeline.episodes.job import EPISODES_JOB
from coopgroup.pipeline.episodes.processes import EAGER, members_of, states_of
from coopgroup.pipeline.episodes.returns import LIKELY, PROVEN
from coopgroup.pipeline.topic.consumer_groups import BROKER
from coopgroup.simulator.scenario import Choice, How

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, Row

__all__ = ["Readable", "histories_of", "history_of", "move_costs_of", "policy_led", "seen_of"]

_MS_PER_DAY: Final = 86_400_000
_MS_PER_S: Final = 1_000
_ROWS_MAX: Final = 200_000
_ROUNDS_MAX: Final = 10_000
_GROUPS_NAMED_MAX: Final = 8
_SESSION_MS: Final = 45_000
_JOIN_SLACK_MS: Final = 60_000
_MOVES_MIN: Final = 5
_WATCHED_MS_MIN: Final = LADDER_MS[-1]
_NO_RATE_NOTE: Final = (
    "How much is produced is not known, so there are no figures of lag: run lag first."
)
_PLACE: Final = ("group", "member", "topic", "partition")
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

    def noted(self, job: str) -> Mapping[str, Any] | None:
        """Return the progress of a job, with the end of its history in `as_of_ms`."""
        ...


def history_of(
    tables: Readable,
    group: str,
    today: Choice | None = None,
    since_ms: int = 0,
    *,
    uses_likely: bool = False,
) -> GroupHistory:
    """Read the history of a group; else as `histories_of`.

    Raises:
        PipelineError: the tables have no history of that group, or none from then on.
    """
    found = histories_of(tables, [group], today, since_ms, uses_likely=uses_likely)[group]
    if isinstance(found, PipelineError):
        raise found
    return found


def histories_of(
    tables: Readable,
    groups: Sequence[str],
    today: Choice | None = None,
    since_ms: int = 0,
    *,
    uses_likely: bool = False,
) -> dict[str, GroupHistory | PipelineError]:
    """Read the histories of groups, or the reason why a group has none.

    Args:
        tables: tables of the pipeline, including the episodes.
        groups: their names.
        today: present policy; `None` derives it from the history.
        since_ms: begin of the history that counts, in ms since 1970.
        uses_likely: whether likely returns count as returns (see `episodes.returns`).
    """
    pasts = _pasts(tables, groups, since_ms)
    known = [group for group in groups if group in pasts]
    found: dict[str, GroupHistory | PipelineError] = {
        group: PipelineError(_unknown(tables, group, since_ms))
        for group in groups
        if group not in pasts
    }
    if not known:
        return found
    spans = _spans_ms(tables, pasts)
    lag = _lag_from(tables, {group: begin_ms for group, (begin_ms, _) in spans.items()})
    rates, peaks = _rates(lag), _lag_peaks(lag)
    policies = _policies(tables, known) if today is None else {}
    unsized = [group for group in known if not any(row.partitions for row in pasts[group].rounds)]
    sizes = _sizes(tables, unsized)
    for group in known:
        past, (begin_ms, end_ms) = pasts[group], spans[group]
        days = max(1, end_ms - begin_ms) / _MS_PER_DAY
        kinds = Counter(row.returned_as for row in past.absences)
        counted_kinds = (*PROVEN, LIKELY) if uses_likely else PROVEN
        seen = [seen_of(row, returned_as=counted_kinds) for row in past.absences]
        returns = [row.returned_ms for row in past.absences if row.returned_as in counted_kinds]
        episodes, left_out = episodes_of(
            seen, _joins(past.rounds, returns), watched_ms_min=_WATCHED_MS_MIN
        )
        timeouts = Counter(row.session_timeout_ms or _SESSION_MS for row in past.absences)
        named = sum(row.instance_id is not None for row in past.absences)
        members = _usual_members(past.rounds)
        partitions = max((int(row.partitions or 0) for row in past.rounds), default=0)
        policy, notes = (today, ()) if today is not None else policies[group]
        found[group] = GroupHistory(
            group=group,
            members=members,
            partitions=partitions or sizes.get(group, 0) or members,
            is_static=2 * named > len(past.absences),
            session_timeout_ms=timeouts.most_common(1)[0][0] if timeouts else _SESSION_MS,
            rate_per_s=rates.get(group, 0.0),
            days=days,
            as_of_ms=tables.as_of_ms(),
            episodes=episodes,
            left_out=left_out,
            absent=len(past.absences),
            proven=sum(kinds[kind] for kind in PROVEN),
            likely=kinds[LIKELY],
            uses_likely=uses_likely,
            today=policy,
            observed=_observed(past.exact, peaks.get(group), days),
            notes=(
                *_notes(past),
                *notes,
                *([] if group in rates else [_NO_RATE_NOTE]),
            ),
        )
    return found


@frozen(kw_only=True)
class _Past:
    """Rows of a group.

    Attributes:
        since_ms: begin of the history that counts.
        absences: oldest first.
        is_cut: whether there are more absences, which do not count.
        rounds: rebalances of the history, or else of telemetry.
        exact: rebalances of telemetry, or else of the history.
    """

    since_ms: int
    absences: Sequence[Row]
    is_cut: bool
    rounds: Sequence[Row]
    exact: Sequence[Row]


def _pasts(tables: Readable, groups: Sequence[str], since_ms: int) -> dict[str, _Past]:
    """Return the rows of each group that has any. Of too many absences, the newest count."""
    newest = Window.partitionBy("group").orderBy(sql.col("gone_ms").desc(), "member_id")
    known = _of(tables, "absences", groups).where(sql.col("gone_ms") >= since_ms)
    # `history` may have read on since `episodes`, and a return since then is in no table yet.
    end_ms = (tables.noted(EPISODES_JOB) or {"as_of_ms": 0})["as_of_ms"]
    until_ms = sql.coalesce("observed_until_ms", sql.nullif(sql.lit(end_ms), sql.lit(0)), "gone_ms")
    known = known.withColumn("observed_until_ms", until_ms)
    known = known.withColumn("place", sql.row_number().over(newest))
    absences, rebalances = defaultdict(list), defaultdict(list)
    for row in known.where(sql.col("place") <= _ROWS_MAX + 1).collect():
        absences[row.group].append(row)
    begun = _of(tables, "rebalances", groups).where(sql.col("begin_ms") >= since_ms)
    for row in begun.collect():
        rebalances[row.group].append(row)
    found = {}
    for group in {*absences, *rebalances}:
        rows = sorted(absences[group], key=lambda row: -row.place)
        is_cut = len(rows) > _ROWS_MAX
        rows = rows[1:] if is_cut else rows
        begin_ms = rows[0].gone_ms if is_cut else since_ms
        every = [row for row in rebalances[group] if row.begin_ms >= begin_ms]
        found[group] = _Past(
            since_ms=begin_ms,
            absences=rows,
            is_cut=is_cut,
            rounds=_by_source(every, "history", "telemetry"),
            exact=_by_source(every, "telemetry", "history"),
        )
    return found


def move_costs_of(tables: Readable, groups: Sequence[str]) -> dict[str, MoveCost]:
    """Return the costs of a move from telemetry: medians from the assignment to the begin of work.

    Args:
        tables: tables of the pipeline.
        groups: names of groups; those with fewer than five moves are left out.
    """
    waits = _waits(_of(tables, "events", groups), _starts(tables, groups))
    rows = waits.groupBy("group", "came_back").agg(
        sql.median("wait_ms").alias("wait_ms"), sql.count("*").alias("count")
    )
    seen = {(row.group, row.came_back): row for row in rows.collect() if row["count"] >= _MOVES_MIN}
    found = {}
    for group, came_back in seen:
        if not came_back:
            move_ms = round(seen[group, False].wait_ms)
            back = seen.get((group, True))
            return_ms = move_ms if back is None else min(move_ms, round(back.wait_ms))
            found[group] = MoveCost(move_ms=move_ms, return_ms=return_ms)
    return found


def _starts(tables: Readable, groups: Sequence[str]) -> DataFrame:
    """Return each begin of work, with its process in `who`.

    Real members write only their member id, and a process gets a new member id in each of its
    lives. The coordinator's states show the process.
    """
    states = states_of(_of(tables, "generations", groups))
    present = members_of(_of(tables, "members", groups), states)
    names = present.groupBy("group", sql.col("member_id").alias("member")).agg(
        sql.max("process").alias("process")
    )
    work = _of(tables, "work", groups).where("is_start").join(names, ["group", "member"], "left")
    who = sql.coalesce(sql.nullif("client", sql.lit("")), "process", "member")
    return work.withColumn("who", who)


def _waits(events: DataFrame, starts: DataFrame) -> DataFrame:
    """Return how long each partition took from its assignment to the begin of work.

    Returns:
        (group, wait_ms, came_back); the last is whether the process last worked on the partition.
        Partitions without earlier work are left out.
    """
    gained = sql.from_json(sql.get_json_object("record", "$.gained"), "map<string, array<int>>")
    gains = (
        events.where(sql.col("kind") == "assignment_received")
        .select("group", "member", "at_ms", sql.explode(gained).alias("topic", "partitions"))
        .select("group", "member", "topic", sql.explode("partitions").alias("partition"), "at_ms")
        .withColumn("is_gain", sql.lit(1))
    )
    by_partition = Window.partitionBy("group", "topic", "partition").orderBy("at_ms")
    begins = (
        starts.withColumn("before", sql.lag("who").over(by_partition))
        .where(sql.col("before").isNotNull())
        .select(*_PLACE, "at_ms", sql.expr("before = who AS came_back"))
        .withColumn("is_gain", sql.lit(0))
    )
    # A begin belongs to the last assignment before it: a gain comes right before its begin.
    by_member = Window.partitionBy(*_PLACE).orderBy("at_ms", sql.col("is_gain").desc())
    paired = gains.unionByName(begins, allowMissingColumns=True).withColumns(
        {
            "was_gain": sql.lag("is_gain").over(by_member),
            "wait_ms": sql.col("at_ms") - sql.lag("at_ms").over(by_member),
        }
    )
    return paired.where("is_gain = 0 AND was_gain = 1").select("group", "wait_ms", "came_back")


def _of(tables: Readable, name: str, groups: Sequence[str]) -> DataFrame:
    return tables.read(name).where(sql.col("group").isin(*groups))


def _by_source(rows: Sequence[Row], *sources: str) -> list[Row]:
    """Return the rows of the first source that has any; two sources may report the same group."""
    by_source = ([row for row in rows if row.source == source] for source in sources)
    return next((some for some in by_source if some), [])


def _notes(past: _Past) -> list[str]:
    """Return notes if absences are left out, or if only telemetry knows the group."""
    found = []
    if past.is_cut:
        found.append(
            f"There are more than {_ROWS_MAX:,} absences; only the newest count, and days with "
            "them."
        )
    if not past.absences and all(row.source != "history" for row in past.rounds):
        found.append(
            "Only telemetry knows this group, which does not say who was absent: advice needs "
            "`coopgroup pipeline history`, and then episodes."
        )
    return found


def _sizes(tables: Readable, groups: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions on which each group has worked, from telemetry."""
    if not groups:
        return {}
    worked = _of(tables, "work", groups).select("group", "topic", "partition").distinct()
    return {row.group: row["count"] for row in worked.groupBy("group").count().collect()}


def _unknown(tables: Readable, group: str, since_ms: int) -> str:
    if since_ms and not _of(tables, "rebalances", [group]).isEmpty():
        return f"group {group!r} has no rebalance and no absence after --since"
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


def _spans_ms(tables: Readable, pasts: Mapping[str, _Past]) -> dict[str, tuple[int, int]]:
    """Return the first and last sign of each group that count; commits may be the only sign."""
    times = {
        group: [
            *(at_ms for row in past.rounds for at_ms in (row.begin_ms, row.end_ms)),
            *(at_ms for row in past.absences for at_ms in (row.gone_ms, row.observed_until_ms)),
        ]
        for group, past in pasts.items()
    }
    signs = [
        _of(tables, name, list(pasts)).groupBy("group").agg(sql.min("at_ms"), sql.max("at_ms"))
        for name in ("commits", "generations", "events")
    ]
    for group, *some in signs[0].unionByName(signs[1]).unionByName(signs[2]).collect():
        times[group] += [at_ms for at_ms in some if at_ms is not None]
    as_of_ms = tables.as_of_ms() or 0
    return {
        group: (max(min(some), pasts[group].since_ms), max(*some, as_of_ms))
        for group, some in times.items()
    }


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


def _policies(tables: Readable, groups: Sequence[str]) -> dict[str, tuple[Choice, tuple[str, ...]]]:
    """Return the policy of each group, and notes on the parts that are estimates."""
    newest = Window.partitionBy("group").orderBy(
        sql.col("at_ms").desc(), sql.col("generation").desc()
    )
    led = defaultdict(list)
    rounds = _of(tables, "rounds", groups).withColumn("place", sql.row_number().over(newest))
    rounds = rounds.where(sql.col("place") <= _ROUNDS_MAX)
    for row in rounds.select("group", "policy", "lost", "rejoin_in_ms", "place").collect():
        led[row.group].append(row)
    states = _of(tables, "generations", groups).where("protocol is not null")
    chosen = states.groupBy("group").agg(sql.max_by("protocol", "at_ms").alias("protocol"))
    protocols = {row.group: row.protocol for row in chosen.collect()}
    found = {}
    for group in groups:
        known = policy_led(sorted(led[group], key=lambda row: row.place))
        if known is None:
            protocol = protocols.get(group)
            name = "eager" if protocol in EAGER else "simple"
            how = f"by its protocol {protocol!r}" if protocol else "as nothing says otherwise"
            if protocol == BROKER:
                how = "as the group coordinator assigns (KIP-848)"
            note = f"Today's policy is taken for {name}, {how}; --today says better."
            known = Choice(name=name), (note,)
        found[group] = known
    return found


def _lag_from(tables: Readable, begins_ms: Mapping[str, int]) -> DataFrame:
    """Return the rows of known `lag` of each group from its begin on."""
    lag = _of(tables, "lag", list(begins_ms)).where(sql.col("lag").isNotNull())
    begins = lag.sparkSession.createDataFrame(
        list(begins_ms.items()), "`group` string, from_ms long"
    )
    return lag.join(begins, "group").where(sql.col("at_ms") >= sql.col("from_ms"))


def _rates(lag: DataFrame) -> dict[str, float]:
    """Return the mean of the records per second and partition of each group, if known."""
    by_partition = Window.partitionBy("group", "topic", "partition").orderBy("at_ms")
    steps = lag.select(
        "group",
        (sql.col("end") - sql.lag("end").over(by_partition)).alias("records"),
        (sql.col("at_ms") - sql.lag("at_ms").over(by_partition)).alias("ms"),
    )
    # The end goes back if the topic was created again.
    grown = steps.where("records >= 0").groupBy("group")
    rows = grown.agg((sql.sum("records") / sql.sum("ms") * _MS_PER_S).alias("rate")).collect()
    return {row.group: float(row.rate) for row in rows if row.rate is not None}


def _lag_peaks(lag: DataFrame) -> dict[str, int]:
    """Return the highest lag of each group, if known."""
    totals = lag.groupBy("group", "at_ms").agg(sql.sum("lag").alias("total"))
    peaks = totals.groupBy("group").agg(sql.max("total").alias("peak")).collect()
    return {row.group: int(row.peak) for row in peaks if row.peak is not None}


def _observed(rebalances: Sequence[Row], lag_peak: int | None, days: float) -> Observed:
    known = [row for row in rebalances if row.unavailable_partition_s is not None]
    return Observed(
        unavailable_s=sum(row.unavailable_partition_s for row in known) / days if known else None,
        moved=sum(row.moved or 0 for row in rebalances) / days if rebalances else None,
        lag_peak=lag_peak,
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
