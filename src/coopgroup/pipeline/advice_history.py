"""What advice goes by: who of a group was absent, when and for how long, and how the group is made.

Rules of this file: frozen values and pure functions; no Spark, which `advice_tables` reads them
with. Times are ms since 1970, or since the begin of an episode where it says so.

An **episode** is what a replay plays: absences that belong together, because each begins before the
group has come to rest from those before. A deployment is one episode with many absences, a crash
one with a single one. Members that are new to the group make an episode too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from coopgroup.simulator.scenario import Choice, How

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Absence",
    "Episode",
    "GroupHistory",
    "Observed",
    "Seen",
    "episodes_of",
    "how_it_ended",
    "span_words",
]

_SIMPLE: Final = Choice(name="simple")
_QUIET_MS: Final = 30_000
_RETURN_MS_MAX: Final = 600_000  # whoever is away for longer holds no episode open


@frozen(kw_only=True)
class Seen:
    """An absence as the tables tell it.

    Attributes:
        process: what the process is known by: its static id, or client id and host.
        gone_ms: when it went.
        noticed_ms: when the group went on without it.
        absent_ms: how long it was away; None where it has not come back.
        watched_ms: how long the history goes on after it went.
        session_timeout_ms: of the member.
    """

    process: str
    gone_ms: int
    noticed_ms: int
    absent_ms: int | None
    watched_ms: int
    session_timeout_ms: int


@frozen(kw_only=True)
class Absence:
    """One process that goes, within an episode.

    Attributes:
        at_ms: since the begin of the episode.
        process: number of the process within the episode, counted from 1.
        absent_ms: for how long; None for good.
        how: whether it left or was killed.
    """

    at_ms: int
    process: int
    absent_ms: int | None
    how: How


@frozen(kw_only=True)
class Episode:
    """What happens together.

    Attributes:
        begin_ms: when it began.
        absences: in order of time; none where members came that were not there before.
        joined: members that are new to the group, at the begin.
    """

    begin_ms: int
    absences: tuple[Absence, ...] = ()
    joined: int = 0

    @property
    def shape(self) -> Episode:
        """The episode without its date: what it costs depends on nothing else."""
        return evolve(self, begin_ms=0)


@frozen(kw_only=True)
class Observed:
    """What the history itself says the group costs, per day; None where it cannot tell.

    Attributes:
        unavailable_s: partition-seconds without work.
        moved: partitions that moved.
        lag_peak: highest lag of the group, in records.
    """

    unavailable_s: float | None = None
    moved: float | None = None
    lag_peak: int | None = None


@frozen(kw_only=True)
class GroupHistory:
    """A group, and everything that advice needs of its past.

    Attributes:
        group: its name.
        members: how many it usually has.
        partitions: how many it reads.
        is_static: whether its members have static ids.
        session_timeout_ms: of its members.
        rate_per_s: records produced per second to a partition, on average.
        capacity_per_s: records that a member can work off per second; infinite if unknown.
        days: length of the history.
        episodes: in order of time.
        left_out: absences that ended with the history too early to say whether they ended.
        today: policy that the group behaves like today.
        observed: what the history says it costs.
        notes: what the reader has to know about how these figures came about.
    """

    group: str
    members: int
    partitions: int
    is_static: bool
    session_timeout_ms: int
    rate_per_s: float
    capacity_per_s: float
    days: float
    episodes: tuple[Episode, ...]
    left_out: int = 0
    today: Choice = _SIMPLE
    observed: Observed = Observed()
    notes: tuple[str, ...] = ()


@frozen
class _Places:
    """Numbers of the processes of an episode; two that are away at once are two."""

    back_ms: dict[tuple[str, int], float] = field(factory=dict)
    numbers: dict[tuple[str, int], int] = field(factory=dict)

    def number(self, process: str, gone_ms: int, back_ms: float) -> int:
        """The number of a process that goes now."""
        twin = 0
        while self.back_ms.get((process, twin), -1) > gone_ms:
            twin += 1
        self.back_ms[process, twin] = back_ms
        return self.numbers.setdefault((process, twin), len(self.numbers) + 1)


def episodes_of(
    absences: Iterable[Seen],
    joins: Mapping[int, int],
    *,
    watched_ms_min: int,
    resolution: float = 0.02,
) -> tuple[tuple[Episode, ...], int]:
    """Put absences that belong together into episodes.

    Args:
        absences: in any order.
        joins: how many members that are no returning ones came, by time.
        watched_ms_min: an absence without an end counts as one for good from so long on; one that
            was watched for less is left out.
        resolution: part to which durations are rounded, so that what is nearly the same is played
            once.

    Returns:
        The episodes in order of time, and how many absences were left out.
    """
    ordered = sorted(absences, key=lambda one: (one.gone_ms, one.process))
    known = [
        one for one in ordered if one.absent_ms is not None or one.watched_ms >= watched_ms_min
    ]
    groups: list[list[Seen]] = []
    open_until_ms = -1
    for one in known:
        back_ms = one.gone_ms + min(one.absent_ms or 0, _RETURN_MS_MAX)
        if not groups or one.gone_ms > open_until_ms:
            groups.append([])
        groups[-1].append(one)
        open_until_ms = max(open_until_ms, back_ms + _QUIET_MS)
    made = [_episode(group, resolution) for group in groups]
    made += [Episode(begin_ms=at_ms, joined=count) for at_ms, count in joins.items()]
    return tuple(sorted(made, key=lambda one: one.begin_ms)), len(ordered) - len(known)


def span_words(days: float) -> str:
    """A length of time as people say it: "14.0 days", "3.5 hours", "12 minutes"."""
    if days >= 1:
        return f"{days:,.1f} days"
    hours = 24 * days
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"


def how_it_ended(one: Seen) -> How:
    """Whether a process left or was killed: the group hears of a death by its silence only."""
    heard_ms = one.noticed_ms - one.gone_ms
    return How.CRASH if 2 * heard_ms >= one.session_timeout_ms else How.CLOSE


def _episode(group: Sequence[Seen], resolution: float) -> Episode:
    begin_ms = group[0].gone_ms
    places = _Places()
    back_ms: dict[int, int] = {}
    absences = []
    for one in group:
        away_ms = float("inf") if one.absent_ms is None else one.absent_ms
        number = places.number(one.process, one.gone_ms, one.gone_ms + away_ms)
        # Begin and length are rounded apart: nobody may leave before it is back for that.
        at_ms = max(_rounded(one.gone_ms - begin_ms, resolution), back_ms.get(number, -1) + 1)
        absent_ms = None if one.absent_ms is None else _rounded(one.absent_ms, resolution)
        back_ms[number] = at_ms + (absent_ms or 0)
        absences.append(
            Absence(at_ms=at_ms, process=number, absent_ms=absent_ms, how=how_it_ended(one))
        )
    # What was put off may have been overtaken.
    return Episode(begin_ms=begin_ms, absences=tuple(sorted(absences, key=lambda one: one.at_ms)))


def _rounded(duration_ms: int, resolution: float) -> int:
    """A duration to a part of itself, in whole steps of 1, 2 or 5 ms, 10 ms and so on."""
    step = 1
    for factor in (1, 10, 100, 1_000, 10_000, 100_000):
        for digit in (1, 2, 5):
            if digit * factor <= resolution * duration_ms:
                step = digit * factor
    return round(duration_ms / step) * step
