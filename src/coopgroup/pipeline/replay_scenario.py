"""An episode of a group as a scenario of the simulator, once for each setting that is tried.

What is played is a group like the one of the history: as many members up to `MEMBERS_MAX`, as many
partitions each, alike in load. Of an episode with more absences than that group has members every
n-th is played and counts n times. The simulator's `restore_ms` is what a move costs; what returning
costs less is given back afterwards (`replay_play`), since a scenario cannot tell the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.policies.registry import create_policy
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
    from coopgroup.pipeline.advice_cost import MoveCost
    from coopgroup.pipeline.advice_history import Absence, Episode, GroupHistory
    from coopgroup.simulator.scenario import Choice, Event

__all__ = ["MEMBERS_MAX", "ReplayedGroup", "played_absences", "scenario_of"]

MEMBERS_MAX: Final = 24
"""Most members of a group that is played: an absence costs the same in a larger one."""

_PARTITIONS_MAX: Final = 50  # a member; what it costs is counted by partition
_MEMBERS: Final = "member"
_SESSION_MS_MIN: Final = 1_000  # brokers take no shorter one than 6 s unless they are told to
_BEGIN_MS: Final = 10_000
_MARGIN_MS: Final = 5_000
_BACK_MS_MAX: Final = 3_600_000
_ROUNDS_MS: Final = 30_000  # what a few rounds take beyond the times that are known


@frozen(kw_only=True)
class ReplayedGroup:
    """The group that is played.

    Attributes:
        members: how many.
        partitions: how many in all.
        is_static: whether members have static ids.
        session_timeout_ms: of its members.
        rate_per_s: records to each partition.
        capacity_per_s: records that a member works off.
        cost: of moves and returns.
        partition_factor: how many partitions of the real group each one stands for.
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
        """A group like that of a history."""
        members = min(MEMBERS_MAX, max(2, history.members))
        each = max(1, round(history.partitions / max(1, history.members)))
        played = min(_PARTITIONS_MAX, each)
        return cls(
            members=members,
            partitions=members * played,
            is_static=history.is_static,
            session_timeout_ms=max(_SESSION_MS_MIN, history.session_timeout_ms),
            rate_per_s=history.rate_per_s,
            # A member here has fewer partitions of the same rate, and works them off as fast.
            capacity_per_s=history.capacity_per_s * played / each,
            cost=cost,
            partition_factor=history.partitions / (max(1, history.members) * played),
        )


def played_absences(group: ReplayedGroup, episode: Episode) -> tuple[tuple[Absence, ...], float]:
    """Absences of an episode that are played, and how many real ones each stands for."""
    processes = sorted({one.process for one in episode.absences})
    # All members may go, but in the simulator one more stays, or there is no group to look at.
    most = group.members - 1
    if len(processes) <= most:
        return episode.absences, 1.0
    places = np.linspace(0, len(processes) - 1, most).round().astype(int)
    kept = {processes[place] for place in places.tolist()}
    chosen = tuple(one for one in episode.absences if one.process in kept)
    return chosen, len(episode.absences) / max(1, len(chosen))


def scenario_of(group: ReplayedGroup, episode: Episode, policy: Choice) -> Scenario:
    """The scenario of an episode under a policy.

    Args:
        group: that is played.
        episode: what happens.
        policy: with its options.
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
            # No member may have a session that outlasts the time that a rebalance may take.
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
        costs=(Cost(restore_ms=Span(group.cost.move_ms, group.cost.move_ms)),),
        events=tuple(events),
    )


def _begin_ms(group: ReplayedGroup) -> int:
    """When an episode begins: all is restored by then, and it is half a heartbeat to the next.

    Members that joined at once send their heartbeats at once. When they hear of a change depends
    on where between two heartbeats it comes: here it is the mean of what it would be.
    """
    heartbeat_ms = _heartbeat_ms(group)
    heartbeats = -(-(_BEGIN_MS + group.cost.move_ms) // heartbeat_ms)
    return heartbeats * heartbeat_ms + heartbeat_ms // 2


def _heartbeat_ms(group: ReplayedGroup) -> int:
    """The usual pace, or a third of a session that is short."""
    return min(Group().heartbeat_interval_ms, group.session_timeout_ms // 3)


def _event(absence: Absence, number: int, at_ms: int) -> Event:
    kind = Crash if absence.how is How.CRASH else Close
    back_ms = None if absence.absent_ms is None else min(absence.absent_ms, _BACK_MS_MAX)
    return kind(at_ms=at_ms, member=f"{_MEMBERS}-{number}", back_after_ms=back_ms)


def _settle_ms(group: ReplayedGroup, policy: Choice) -> int:
    """Time until everything has an owner again that works on it, even if nobody comes back."""
    made = create_policy(policy.name, policy.options)
    waits_ms = getattr(made, "scheduled_rebalance_timeout_ms", 0)
    ration = getattr(made, "ration", None)
    moves_ms = 0
    if ration is not None:
        rounds = -(-group.partitions // ration.moves_max)
        moves_ms = rounds * (ration.interval_ms + group.cost.move_ms)
    known_ms: int = group.session_timeout_ms + waits_ms + moves_ms + 2 * group.cost.move_ms
    return known_ms + _ROUNDS_MS
