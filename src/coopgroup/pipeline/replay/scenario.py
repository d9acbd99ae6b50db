"""An episode of a group as a scenario of the simulator, for each setting.

The played group is like the real one: as many members up to `MEMBERS_MAX`, as many partitions per
member, equal load. If an episode has more absences than that group has members, every n-th absence
is played and counts n times. The simulator's `restore_ms` is the cost of a move, and `return_ms`
that of a return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.policies.registry import create_policy
from coopgroup.policies.warming.option import warmup_of
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
    from coopgroup.pipeline.advice.cost import MoveCost
    from coopgroup.pipeline.advice.history import Absence, Episode, GroupHistory
    from coopgroup.simulator.scenario import Choice, Event

__all__ = ["MEMBERS_MAX", "ReplayedGroup", "played_absences", "scenario_of"]

MEMBERS_MAX: Final = 24
"""Limit of members in a played group: an absence costs the same in a larger one."""

_PARTITIONS_MAX: Final = 50  # per member; costs are counted per partition
_MEMBERS: Final = "member"
_SESSION_MS_MIN: Final = 1_000  # brokers accept no session below 6 s by default
_BEGIN_MS: Final = 10_000
_MARGIN_MS: Final = 5_000
_BACK_MS_MAX: Final = 3_600_000
_ROUNDS_MS: Final = 30_000  # time for some rounds, in addition to the known times


@frozen(kw_only=True)
class ReplayedGroup:
    """The group to play.

    Attributes:
        members: number of members.
        partitions: total number of partitions.
        is_static: whether members have static ids.
        session_timeout_ms: session time-out of its members.
        rate_per_s: records per second and partition.
        capacity_per_s: records that a member can process per second.
        cost: cost of moves and returns.
        partition_factor: number of real partitions that each played one represents.
    """

    members: int
    partitions: int
    is_static: bool
    session_timeout_ms: int
    rate_per_s: float
    capacity_per_s: float
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
            # A member has fewer partitions of the same rate here, and processes each as fast.
            capacity_per_s=history.capacity_per_s * played / each,
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
                capacity_per_s=group.capacity_per_s,
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
