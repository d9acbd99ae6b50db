"""Replays: every episode of a history under every setting, in the simulator, as one job of Spark.

The played group is like the real one: as many members up to `MEMBERS_MAX`, as many partitions per
member, equal load. If an episode has more absences than that group has members, every n-th absence
is played and counts n times. The simulator's `restore_ms` is the cost of a move, and `return_ms`
that of a return (`advice.cost` defines both). Members process the backlog of an outage immediately,
because the history does not show how fast they could.

A *cell* is one episode under one setting with one seed. It depends only on its arguments, and a
cell that cannot be played costs the others nothing.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen
from pyspark.sql.pandas.types import from_arrow_schema

from coopgroup.core.policies.built_in import create_policy
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.pipeline.spark.session import in_one_line
from coopgroup.pipeline.spark.workers import settled
from coopgroup.simulator.run import simulate
from coopgroup.simulator.scenario import (
    Close,
    Cost,
    Crash,
    Group,
    How,
    Identity,
    MemberSet,
    Scale,
    Scenario,
    Span,
    Topic,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import SparkSession

    from coopgroup.pipeline.advice.cost import MoveCost
    from coopgroup.pipeline.advice.history import Absence, Episode, GroupHistory
    from coopgroup.simulator.scenario import Choice, Event

__all__ = [
    "FIGURES",
    "MEMBERS_MAX",
    "ROWS",
    "Asked",
    "Cells",
    "Figures",
    "Replayed",
    "ReplayedGroup",
    "SparkPlay",
    "play_cells",
    "played_absences",
    "replay",
    "scenario_of",
]

MEMBERS_MAX: Final = 24
"""Limit of members in a played group: an absence costs the same in a larger one."""

_PARTITIONS_MAX: Final = 50  # per member; costs are counted per partition
_MEMBERS: Final = "member"
_SESSION_MS_MIN: Final = 1_000  # brokers accept no session below 6 s by default
_BEGIN_MS: Final = 10_000
_MARGIN_MS: Final = 5_000
_BACK_MS_MAX: Final = 3_600_000
_ROUNDS_MS: Final = 30_000  # time for some rounds, in addition to the known times
_SEEDED_MIN: Final = 40  # plays of each setting, at least
_TASKS_PER_CORE: Final = 8  # cells differ in length: small tasks keep all cores busy


class Replayed(NamedTuple):
    """Cost of an episode under a setting, in partitions of the real group.

    Attributes:
        unavailable_s: partition-seconds without work, including the cost of moves.
        moved: number of moves of partitions.
        unavailable_peak: maximum number of partitions without work at a time.
        lag_peak: highest lag of the group, in records.
        violations: number of violated invariants; a bug, to be reported.
        restores: moves that paid the cost of a move: the new process was not warm.
    """

    unavailable_s: float
    moved: float
    unavailable_peak: float
    lag_peak: float
    violations: int
    restores: float


FIGURES: Final = Replayed._fields
"""Names of the figures, in the order in which rows and matrices have them."""

Figures: TypeAlias = "npt.NDArray[np.float64]"
"""Figures of E episodes under S settings: float64 (E, S, F), in the order of `FIGURES`."""

Asked: TypeAlias = tuple[Sequence["Episode"], Sequence["Choice"]]
"""Episodes, and settings under which they are played."""

ROWS: Final = pa.schema(
    [("cell", pa.int64()), *((name, pa.float64()) for name in FIGURES), ("error", pa.string())]
)
"""A row for each cell, numbered so that settings vary fastest, then episodes, then seeds."""


@frozen(kw_only=True)
class ReplayedGroup:
    """The group to play.

    Attributes:
        members: number of members.
        partitions: total number of partitions.
        is_static: whether members have static ids.
        session_timeout_ms: session time-out of its members.
        rate_per_s: records per second and partition.
        cost: cost of moves and returns.
        partition_factor: number of real partitions that each played one represents.
    """

    members: int
    partitions: int
    is_static: bool
    session_timeout_ms: int
    rate_per_s: float
    cost: MoveCost
    partition_factor: float

    @classmethod
    def of(cls, history: GroupHistory, cost: MoveCost) -> ReplayedGroup:
        """Return a group like the one of a history."""
        members = min(MEMBERS_MAX, max(2, history.members))
        each = max(1, round(history.partitions / max(1, history.members)))
        played = min(_PARTITIONS_MAX, each)
        return cls(
            members=members,
            partitions=members * played,
            is_static=history.is_static,
            session_timeout_ms=max(_SESSION_MS_MIN, history.session_timeout_ms),
            rate_per_s=history.rate_per_s,
            cost=cost,
            partition_factor=history.partitions / (max(1, history.members) * played),
        )


def played_absences(group: ReplayedGroup, episode: Episode) -> tuple[tuple[Absence, ...], float]:
    """Return the absences to play, and the number of real absences per played one."""
    processes = sorted({one.process for one in episode.absences})
    # All members may depart, but one more must stay in the simulator to keep the group alive.
    most = group.members - 1
    if len(processes) <= most:
        return episode.absences, 1.0
    places = np.linspace(0, len(processes) - 1, most).round().astype(int)
    kept = {processes[place] for place in places.tolist()}
    chosen = tuple(one for one in episode.absences if one.process in kept)
    return chosen, len(episode.absences) / max(1, len(chosen))


def scenario_of(group: ReplayedGroup, episode: Episode, policy: Choice) -> Scenario:
    """Return the scenario of an episode under a policy.

    Args:
        group: the group to play.
        episode: the episode.
        policy: the policy with its options.
    """
    begin_ms = _begin_ms(group)
    absences, _ = played_absences(group, episode)
    numbers = {
        process: place for place, process in enumerate(sorted({one.process for one in absences}), 1)
    }
    events: list[Event] = [
        _event(one, numbers[one.process], begin_ms + one.at_ms) for one in absences
    ]
    joined = min(episode.joined, group.members)
    if joined:
        events.append(Scale(at_ms=begin_ms, members=_MEMBERS, to=group.members + joined))
    lasts_ms = max(
        (one.at_ms + min(one.absent_ms or 0, _BACK_MS_MAX) for one in absences), default=0
    )
    return Scenario(
        name="replay",
        duration_ms=begin_ms + lasts_ms + _MARGIN_MS,
        settle_ms=_settle_ms(group, policy),
        group=Group(
            policy=policy,
            session_timeout_ms=group.session_timeout_ms,
            # A session must not outlast the rebalance time-out.
            rebalance_timeout_ms=max(Group().rebalance_timeout_ms, group.session_timeout_ms),
            heartbeat_interval_ms=_heartbeat_ms(group),
        ),
        topics=(
            Topic(
                name="partitions",
                partitions=group.partitions,
                rate_per_s=(group.rate_per_s,) * group.partitions,
            ),
        ),
        members=(
            MemberSet(
                name=_MEMBERS,
                count=group.members,
                topics=("partitions",),
                identity=Identity.STATIC if group.is_static else Identity.NONE,
            ),
        ),
        costs=(
            Cost(
                restore_ms=_exactly(group.cost.move_ms),
                return_ms=_exactly(min(group.cost.return_ms, group.cost.move_ms)),
            ),
        ),
        events=tuple(events),
    )


def _exactly(time_ms: int) -> Span:
    return Span(time_ms, time_ms)


def _begin_ms(group: ReplayedGroup) -> int:
    """Return the begin of an episode: after all restores, half an interval before a heartbeat.

    Members that joined together send their heartbeats together. They learn of a change with the
    next heartbeat, so half an interval is the mean delay.
    """
    heartbeat_ms = _heartbeat_ms(group)
    heartbeats = -(-(_BEGIN_MS + group.cost.move_ms) // heartbeat_ms)
    return heartbeats * heartbeat_ms + heartbeat_ms // 2


def _heartbeat_ms(group: ReplayedGroup) -> int:
    """Return the usual heartbeat interval, or a third of a short session time-out."""
    return min(Group().heartbeat_interval_ms, group.session_timeout_ms // 3)


def _event(absence: Absence, number: int, at_ms: int) -> Event:
    kind = Crash if absence.how is How.CRASH else Close
    back_ms = None if absence.absent_ms is None else min(absence.absent_ms, _BACK_MS_MAX)
    return kind(at_ms=at_ms, member=f"{_MEMBERS}-{number}", back_after_ms=back_ms)


def _settle_ms(group: ReplayedGroup, policy: Choice) -> int:
    """Return the time until every partition has a working owner, even if no member returns."""
    made = create_policy(policy.name, policy.options)
    waits_ms = getattr(made, "scheduled_rebalance_timeout_ms", 0)
    ration = getattr(made, "ration", None)
    moves_ms = 0
    if ration is not None:
        rounds = -(-group.partitions // ration.moves_max)
        moves_ms = rounds * (ration.interval_ms + group.cost.move_ms)
    warmup = warmup_of(made)
    if warmup is not None:
        running = min(warmup.max_concurrent, warmup.per_member * group.members)
        restores = -(-group.partitions * (1 + warmup.standbys) // running)
        # Each batch of warm-ups ends with a round, which members begin at most once a heartbeat.
        moves_ms += restores * (group.cost.move_ms + 2 * _heartbeat_ms(group))
    known_ms: int = group.session_timeout_ms + waits_ms + moves_ms + 2 * group.cost.move_ms
    return known_ms + _ROUNDS_MS


# --- playing --------------------------------------------------------------------------------------


def replay(group: ReplayedGroup, episode: Episode, policy: Choice, *, seed: int) -> Replayed:
    """Play an episode under a policy."""
    run = simulate(scenario_of(group, episode, policy), seed=seed)
    measures, each = run.measures, group.partition_factor
    all_of_them = played_absences(group, episode)[1] * each
    return Replayed(
        unavailable_s=measures.unavailable_partition_s * all_of_them,
        moved=measures.moved * all_of_them,
        unavailable_peak=measures.unavailable_peak * each,
        lag_peak=measures.lag_peak * each,
        violations=len(run.violations),
        restores=measures.moved_cold * all_of_them,
    )


@frozen(kw_only=True)
class Cells:
    """The cells of a group: its episodes under settings, with several seeds.

    Attributes:
        group: the group to play.
        episodes: the episodes.
        policies: the settings.
        seeds: number of seeds.
    """

    group: ReplayedGroup
    episodes: tuple[Episode, ...]
    policies: tuple[Choice, ...]
    seeds: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of seeds, episodes and settings."""
        return self.seeds, len(self.episodes), len(self.policies)

    def play(self, cell: int) -> Replayed:
        """Play the cell with a number, counted within the group."""
        play, policy = divmod(cell, len(self.policies))
        turn, episode = divmod(play, len(self.episodes))
        return replay(self.group, self.episodes[episode], self.policies[policy], seed=1 + turn)


def play_cells(
    batches: Iterable[pa.RecordBatch], *, some: Sequence[Cells]
) -> Iterator[pa.RecordBatch]:
    """Play the cells with the given numbers, for `mapInArrow`.

    Args:
        batches: numbers of cells, in a column `id`.
        some: cells of each group; numbers go on from group to group.

    Yields:
        Batches of `ROWS`; cells that could not be played have an `error`, and no figures.
    """
    ends = [*accumulate(prod(cells.shape) for cells in some)]
    for batch in batches:
        rows = []
        for cell in batch.column("id").to_pylist():
            place = bisect(ends, cell)
            cells, number = some[place], cell - (ends[place - 1] if place else 0)
            row: dict[str, Any] = {"cell": cell}
            try:
                found = cells.play(number)
            except Exception as error:  # noqa: BLE001 - one episode must not cost the others
                policy = cells.policies[number % len(cells.policies)]
                text = f"{policy}: {type(error).__name__}: {error}"
                row["error"] = " ".join(text.split())
            else:
                row |= found._asdict()
            rows.append(row)
        yield pa.RecordBatch.from_pylist(rows, schema=ROWS)


@define(kw_only=True)
class SparkPlay:
    """Play episodes under settings, for `advise`: all groups in one job, a cell a row.

    Attributes:
        spark: the session.
        groups: the groups to play.
        seeds: limits of the number of seeds of a cell.
        errors: reasons of failed cells, the first of each job.
    """

    spark: SparkSession
    groups: Sequence[ReplayedGroup]
    seeds: tuple[int, int] = (2, 5)
    errors: list[str] = field(factory=list)

    def __call__(self, asked: Mapping[int, Asked]) -> dict[int, Figures]:
        """Play all cells, each with several seeds.

        Few episodes are played with more seeds: otherwise one lucky order of events would decide
        between two settings, and the cost would zigzag over the time-outs.

        Args:
            asked: episodes and settings, by the place of their group.

        Returns:
            Figures, averaged over the seeds that could be played, and the sum of violations; NaN
            where no seed could be played.

        Raises:
            PipelineError: Spark could not run the job.
        """
        some = [
            Cells(
                group=self.groups[place],
                episodes=tuple(episodes),
                policies=tuple(policies),
                seeds=self._seeds_of(len(episodes)),
            )
            for place, (episodes, policies) in asked.items()
        ]
        sizes = [prod(cells.shape) for cells in some]
        count = sum(sizes)
        tasks = min(count, _TASKS_PER_CORE * max(1, self.spark.sparkContext.defaultParallelism))
        numbers = self.spark.range(0, count, 1, max(1, tasks))
        with in_one_line("Spark could not replay"):
            play = partial(settled, partial(play_cells, some=some))
            # As rows of Python, the figures of many groups would fill the driver's memory.
            rows = numbers.mapInArrow(play, from_arrow_schema(ROWS)).toArrow()
        found = np.full((count, len(FIGURES)), np.nan)
        # A cell with an error has no figures: nulls become NaN.
        found[rows["cell"].to_numpy()] = np.column_stack(
            [rows[name].to_numpy() for name in FIGURES]
        )
        self.errors += rows["error"].drop_null()[:1].to_pylist()
        parts = np.split(found, np.cumsum(sizes)[:-1])
        return {
            place: _mean(part.reshape(*cells.shape, len(FIGURES)))
            for place, cells, part in zip(asked, some, parts, strict=True)
        }

    def _seeds_of(self, episodes: int) -> int:
        fewest, most = self.seeds
        return min(most, max(fewest, -(-_SEEDED_MIN // max(1, episodes))))


def _mean(found: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    known = ~np.isnan(found)
    sums, counts = np.where(known, found, 0.0).sum(axis=0), known.sum(axis=0)
    means: npt.NDArray[np.float64] = sums / np.maximum(counts, 1)
    violations = FIGURES.index("violations")
    means[..., violations] = sums[..., violations]
    means[counts == 0] = np.nan
    return means
