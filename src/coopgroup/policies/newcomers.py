"""Members that were not there in the last round: who may be taken for a departed one.

Rules of this file: a member that rightfully claims anything is no newcomer, for it brings along
what it had; a member with a static id is never taken for another one; and a newcomer that is taken
for nobody is an additional member, for which the others make room at once.

A leader that did not lead the last round cannot tell who is new. It goes by the heuristic of
Design II: "looking for a member that has no previous assignments (assuming there's enough members
that they should have had an assignment)". Those are taken for the ones that had what nobody
claims. A member that knows of a delay was there when that was announced: it is not waited for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, frozen

from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.policies.base import RoundContext

__all__ = ["Line", "Newcomers"]

_ONE_AT_LEAST: Final = 1 - 1e-9  # shares are sums of fractions


@frozen(kw_only=True, eq=False)
class Newcomers:
    """Who came to a group since the last round.

    Attributes:
        anonymous: numbers of newcomers without a static id, by the class of their subscription,
            classes in the order of their first newcomer, numbers ascending.
        subscribed: bool (C, names): which class subscribes to which name.
        by_instance: members that have a static id, by that id.
        others: numbers of newcomers with a static id that the last round did not have.
        takers: numbers of those that are taken for the ones that had what nobody claims, where
            the leader knows no more than that; ascending.
    """

    anonymous: Mapping[int, tuple[int, ...]]
    subscribed: BoolArray
    by_instance: Mapping[str, int]
    others: tuple[int, ...]
    takers: tuple[int, ...] = ()

    @classmethod
    def of(cls, group: GroupSnapshot, context: RoundContext) -> Newcomers:
        """Find the newcomers."""
        empty = _holds_nothing(group)
        by_instance = {
            member.instance_id: number
            for number, member in enumerate(group.members)
            if member.instance_id is not None and member.readable
        }
        if context.state is None:
            return cls(
                anonymous={},
                subscribed=group.subscribed_names(),
                by_instance=by_instance,
                others=(),
                takers=tuple(np.flatnonzero(_empty_handed(group)).tolist()),
            )
        seen, instances = set(context.state.members), {i for _, i in context.state.instance_ids}
        new = [
            number
            for number, member in enumerate(group.members)
            if empty[number] and member.readable and member.member_id not in seen
        ]
        anonymous: dict[int, list[int]] = {}
        for number in new:
            if group.members[number].instance_id is None:
                anonymous.setdefault(int(group.class_of[number]), []).append(number)
        return cls(
            anonymous={key: tuple(numbers) for key, numbers in anonymous.items()},
            subscribed=group.subscribed_names(),
            by_instance=by_instance,
            others=tuple(
                number
                for number in new
                if group.members[number].instance_id not in {None, *instances}
            ),
        )

    def line_up(self, number: Int32Array, name_numbers: Int64Array, count: int) -> Line:
        """Let those without a static id stand in line for losses.

        Args:
            number: int32 (R,): which loss each resource is part of, NOBODY for none.
            name_numbers: int64 (R,): number of each resource's name.
            count: how many losses there are.
        """
        fits = {}
        for key in self.anonymous:
            unfit = (number != NOBODY) & ~self.subscribed[key][name_numbers]
            fits[key] = np.ones(count, dtype=np.bool_)
            fits[key][number[unfit]] = False
        queues = {key: deque(numbers) for key, numbers in self.anonymous.items()}
        return Line(fits=fits, queues=queues)

    def any_but(self, taken: Collection[int]) -> bool:
        """Whether any newcomer is an additional member.

        Args:
            taken: numbers of members that are, or are taken for, others.
        """
        anonymous = (number for numbers in self.anonymous.values() for number in numbers)
        newcomers = (*anonymous, *self.others, *self.takers)
        return any(number not in taken for number in newcomers)

    def share_out(self, group: GroupSnapshot, orphaned: BoolArray) -> Int32Array:
        """Give the takers equal parts of what is lost, as far as they subscribe to it.

        Args:
            group: the group with R resources.
            orphaned: bool (R,): lost, and nobody knows by whom.

        Returns:
            int32 (R,): who is taken for the one that had it, NOBODY for nobody.
        """
        given = np.full(len(group.resources), NOBODY, dtype=np.int32)
        places = np.flatnonzero(orphaned)
        if not self.takers or not places.size:
            return given
        takers = np.array(self.takers, dtype=np.int32)
        loads = np.zeros(takers.size, dtype=np.int64)
        names, starts = np.unique(group.resources.name_numbers[places], return_index=True)
        for name, part in zip(names.tolist(), np.split(places, starts[1:]), strict=True):
            fit = np.flatnonzero(self.subscribed[group.class_of[takers], name])
            if fit.size:
                line = fit[np.argsort(loads[fit], kind="stable")]
                getters = line[np.arange(part.size) % line.size]
                given[part] = takers[getters]
                loads += np.bincount(getters, minlength=takers.size)
        return given


@define(eq=False)
class Line:
    """Newcomers in line, each to be taken for one departed member at most.

    Attributes:
        fits: by class, bool (L,): which losses it subscribes to all of.
        queues: by class, numbers of those not yet taken, ascending.
    """

    fits: Mapping[int, BoolArray]
    queues: Mapping[int, deque[int]]

    def first_for(self, loss: int) -> int | None:
        """First in line that subscribes to all of a loss, None if there is none."""
        return min(
            (queue[0] for key, queue in self.queues.items() if queue and self.fits[key][loss]),
            default=None,
        )

    def take(self, member: int) -> int:
        """Take a member that is first in line for something out of the line."""
        for queue in self.queues.values():
            if queue and queue[0] == member:
                queue.popleft()
        return member


def _empty_handed(group: GroupSnapshot) -> BoolArray:
    """Which members have nothing though their fair share is one at least: bool (M,).

    Those that know of a delay are left out. The fair share of a member is the sum, over the names
    that it subscribes to, of how many resources there are for each subscriber.
    """
    table = group.subscribed_names()
    sizes = np.diff(np.concatenate([[0], np.cumsum(group.assignable)])[group.resources.starts])
    subscribers = np.bincount(group.class_of, minlength=len(table)) @ table
    share = table @ (sizes / np.maximum(subscribers, 1))
    fresh = [member.readable and member.remaining_delay_ms is None for member in group.members]
    found: BoolArray = _holds_nothing(group) & (share >= _ONE_AT_LEAST)[group.class_of]
    found &= np.array(fresh, dtype=np.bool_)
    return found


def _holds_nothing(group: GroupSnapshot) -> BoolArray:
    counts = np.bincount(group.owner + 1, minlength=len(group.members) + 1)
    nothing: BoolArray = counts[1:] == 0
    return nothing
