"""Input of advice: the absences of a group's members, and the properties of the group.

Rules of this file: frozen values and pure functions. `from_tables` reads them with Spark; this
file does not use Spark. Times are ms since 1970, or since the begin of an episode if stated.

An **episode** is the unit of a replay. Its absences belong together, because each one begins
before the group has settled after the previous ones. A deployment is one episode with many
absences. A crash is an episode with a single absence. New members form an episode, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from coopgroup.report.wording import counted
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
    "span_words",
]

_SIMPLE: Final = Choice(name="simple")
_QUIET_MS: Final = 30_000
_RETURN_MS_MAX: Final = 600_000  # a longer absence does not keep its episode open


@frozen(kw_only=True)
class Seen:
    """An absence as the tables report it.

    Attributes:
        process: identity of the process: its static id, or client id and host.
        gone_ms: time of its departure.
        absent_ms: length of the absence; `None` if the process has not returned.
        watched_ms: length of the history after the departure.
        how: whether the process left or was killed.
    """

    process: str
    gone_ms: int
    absent_ms: int | None
    watched_ms: int
    how: How


@frozen(kw_only=True)
class Absence:
    """One process that departs within an episode.

    Attributes:
        at_ms: time since the begin of the episode.
        process: number of the process within the episode, counted from 1.
        absent_ms: length of the absence; `None` if permanent.
        how: whether the process left or was killed.
    """

    at_ms: int
    process: int
    absent_ms: int | None
    how: How


@frozen(kw_only=True)
class Episode:
    """Events that belong together.

    Attributes:
        begin_ms: begin of the episode.
        absences: absences in order of time; empty if the episode has only new members.
        joined: number of new members, at the begin.
    """

    begin_ms: int
    absences: tuple[Absence, ...] = ()
    joined: int = 0

    @property
    def shape(self) -> Episode:
        """The episode without its date, which does not influence its cost."""
        return evolve(self, begin_ms=0)


@frozen(kw_only=True)
class Observed:
    """Cost of the group per day as the history itself shows it; `None` if unknown.

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
    """A group, and the facts of its past that advice needs.

    Attributes:
        group: its name.
        members: usual number of members.
        partitions: number of its partitions.
        is_static: whether its members have static ids.
        session_timeout_ms: session time-out of its members.
        rate_per_s: records produced per second and partition, on average.
        days: length of the history.
        as_of_ms: end of the history, in ms since 1970; `None` if unknown.
        episodes: episodes in order of time.
        left_out: absences without an end, too close to the end of the history to count.
        absent: number of absences in the tables.
        proven: number of absences that ended with a proven return.
        likely: number of absences that ended with a likely return.
        uses_likely: whether likely returns count as returns. Otherwise such an absence is
            permanent, and the newcomer is a new member.
        today: policy that matches the group's present behaviour.
        observed: cost that the history itself shows.
        notes: remarks on how the figures were obtained.
    """

    group: str
    members: int
    partitions: int
    is_static: bool
    session_timeout_ms: int
    rate_per_s: float
    days: float
    episodes: tuple[Episode, ...]
    as_of_ms: int | None = None
    left_out: int = 0
    absent: int = 0
    proven: int = 0
    likely: int = 0
    uses_likely: bool = False
    today: Choice = _SIMPLE
    observed: Observed = Observed()
    notes: tuple[str, ...] = ()


def episodes_of(
    absences: Iterable[Seen],
    joins: Mapping[int, int],
    *,
    watched_ms_min: int,
    resolution: float = 0.02,
) -> tuple[tuple[Episode, ...], int]:
    """Group absences that belong together into episodes.

    Args:
        absences: absences in any order.
        joins: number of new members (not returning ones), by time.
        watched_ms_min: an absence without an end counts as permanent if it was watched for at
            least this time; a shorter one is left out.
        resolution: relative precision of durations, so that nearly equal episodes are played once.

    Returns:
        The episodes in order of time, and the number of absences that were left out.
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
    """Return a length of time in a fitting unit: "14.0 days", "3.5 hours", "12 minutes"."""
    if days >= 1:
        return f"{days:,.1f} days"
    hours = 24 * days
    return f"{hours:.1f} hours" if hours >= 1 else counted(round(60 * hours), "minute")


def _episode(group: Sequence[Seen], resolution: float) -> Episode:
    begin_ms = group[0].gone_ms
    numbers: dict[tuple[str, int], int] = {}
    gone_until_ms: dict[tuple[str, int], float] = {}
    back_ms: dict[int, int] = {}
    absences = []
    for one in group:
        # Two processes that look alike and are away together are twins: each has its number.
        twin = 0
        while gone_until_ms.get((one.process, twin), -1) > one.gone_ms:
            twin += 1
        away_ms = inf if one.absent_ms is None else one.absent_ms
        gone_until_ms[one.process, twin] = one.gone_ms + away_ms
        number = numbers.setdefault((one.process, twin), len(numbers) + 1)
        # Begin and length are rounded separately. Without the maximum, a process could leave before
        # it is back.
        at_ms = max(_rounded(one.gone_ms - begin_ms, resolution), back_ms.get(number, -1) + 1)
        absent_ms = None if one.absent_ms is None else _rounded(one.absent_ms, resolution)
        back_ms[number] = at_ms + (absent_ms or 0)
        absences.append(Absence(at_ms=at_ms, process=number, absent_ms=absent_ms, how=one.how))
    # A delayed departure may now come after a later one.
    return Episode(begin_ms=begin_ms, absences=tuple(sorted(absences, key=lambda one: one.at_ms)))


def _rounded(duration_ms: int, resolution: float) -> int:
    """Round a duration to a part of itself, in whole steps of 1, 2 or 5 ms, 10 ms and so on."""
    steps = (digit * 10**power for power in range(6) for digit in (1, 2, 5))
    step = max((one for one in steps if one <= resolution * duration_ms), default=1)
    return round(duration_ms / step) * step
