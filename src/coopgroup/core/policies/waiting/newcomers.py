"""New members since the last round, and which of them may replace a departed member.

A member with a rightful claim is not new, because it brings its own resources. A member with a
static id never replaces another one. A new member that replaces no departed member is additional,
and the others make room for it immediately.

A leader that did not lead the last round cannot tell which members are new. It uses the heuristic
of Design II: "looking for a member that has no previous assignments (assuming there's enough
members that they should have had an assignment)". These members count as the owners of the
unclaimed resources. A member that knows of a delay was present when the delay was announced, so the
group does not wait for it.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.base import RoundContext

__all__ = ["NewcomerQueue", "Newcomers"]

_DYNAMIC_ID: Final = re.compile(
    r"(?P<client>.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL
)
_ONE_AT_LEAST: Final = 1 - 1e-9  # tolerance, because shares are sums of fractions


@frozen(kw_only=True, eq=False)
class Newcomers:
    """The new members of a group since the last round.

    Attributes:
        anonymous: numbers of new members without a static id, by the class of their subscription;
            classes in the order of their first new member, numbers ascending.
        subscribed: bool (C, names): whether a class subscribes to a name.
        by_instance: members with a static id, by that id.
        others: numbers of new members with a static id that the last round did not have.
        takers: numbers of the members that count as owners of the unclaimed resources, if the
            leader did not lead the last round; ascending.
    """

    anonymous: Mapping[int, tuple[int, ...]]
    subscribed: BoolArray
    by_instance: Mapping[str, int]
    others: tuple[int, ...]
    takers: tuple[int, ...] = ()

    @classmethod
    def of(cls, group: GroupSnapshot, context: RoundContext) -> Newcomers:
        """Find the new members."""
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

    def queue_up(self, group: GroupSnapshot, number: Int32Array, count: int) -> NewcomerQueue:
        """Queue the new members for losses.

        Args:
            group: the group with R resources.
            number: int32 (R,): number of each resource's loss, `NOBODY` for none.
            count: number of losses.
        """
        fits = {}
        of_client: dict[tuple[str, int], deque[int]] = {}
        statics: dict[int, deque[int]] = {}
        for member in self.others:
            statics.setdefault(int(group.class_of[member]), deque()).append(member)
        for key in (*self.anonymous, *(key for key in statics if key not in self.anonymous)):
            unfit = (number != NOBODY) & ~self.subscribed[key][group.resources.name_numbers]
            fits[key] = np.ones(count, dtype=np.bool_)
            fits[key][number[unfit]] = False
        for key, members in self.anonymous.items():
            for member in members:
                client = _client_of(group.members[member].member_id)
                if client is not None:
                    of_client.setdefault((client, key), deque()).append(member)
        queues = {key: deque(members) for key, members in self.anonymous.items()}
        return NewcomerQueue(fits=fits, queues=queues, of_client=of_client, statics=statics)

    def any_but(self, taken: Collection[int]) -> bool:
        """Return whether any new member is additional.

        Args:
            taken: numbers of members that are, or replace, departed members.
        """
        anonymous = (number for numbers in self.anonymous.values() for number in numbers)
        newcomers = (*anonymous, *self.others, *self.takers)
        return any(number not in taken for number in newcomers)

    def share_out(self, group: GroupSnapshot, orphaned: BoolArray) -> Int32Array:
        """Give the takers equal parts of the lost resources to which they subscribe.

        Args:
            group: the group with R resources.
            orphaned: bool (R,): lost by an unknown owner.

        Returns:
            int32 (R,): member that counts as the owner, or `NOBODY`.
        """
        given = np.full(len(group.resources), NOBODY, dtype=np.int32)
        positions = np.flatnonzero(orphaned)
        if not self.takers or not positions.size:
            return given
        takers = np.array(self.takers, dtype=np.int32)
        loads = np.zeros(takers.size, dtype=np.int64)
        names, starts = np.unique(group.resources.name_numbers[positions], return_index=True)
        for name, part in zip(names.tolist(), np.split(positions, starts[1:]), strict=True):
            fit = np.flatnonzero(self.subscribed[group.class_of[takers], name])
            if fit.size:
                line = fit[np.argsort(loads[fit], kind="stable")]
                getters = line[np.arange(part.size) % line.size]
                given[part] = takers[getters]
                loads += np.bincount(getters, minlength=takers.size)
        return given


@define(eq=False)
class NewcomerQueue:
    """A queue of new members; each replaces at most one departed member.

    Attributes:
        fits: by class, bool (L,): losses to which the class fully subscribes.
        queues: by class, numbers of its new members, ascending; some may already be taken.
        of_client: the same by client id and class, for members whose id contains the client id.
        statics: by class, numbers of new members with a static id, ascending.
        taken: members that have left the queue.
    """

    fits: Mapping[int, BoolArray]
    queues: Mapping[int, deque[int]]
    of_client: Mapping[tuple[str, int], deque[int]]
    statics: Mapping[int, deque[int]]
    taken: set[int] = field(factory=set)

    def same_client_for(self, loss: int, owner: str | None) -> int | None:
        """Return the first fitting member with the same client id as a loss's owner, or None.

        Kafka names a dynamic member `<client.id>-<uuid>`, so a restarted process has another member
        id with the same client id.
        """
        client = None if owner is None else _client_of(owner)
        if client is None:
            return None
        return self._first(
            self.of_client.get((client, key)) for key in self.fits if self.fits[key][loss]
        )

    def first_for(self, loss: int, owner: str | None) -> int | None:  # noqa: ARG002 - as above
        """Return the first member that subscribes to everything of a loss, or None."""
        return self._first(self.queues.get(key) for key in self.fits if self.fits[key][loss])

    def first_static_for(self, loss: int, owner: str | None) -> int | None:
        """Return the first fitting member with a static id, for a loss of an unknown owner.

        A killed leader takes the knowledge of the owners with it. If it was a static member that
        now returns, it would otherwise wait for itself.
        """
        if owner is not None:
            return None
        return self._first(self.statics.get(key) for key in self.fits if self.fits[key][loss])

    def take(self, member: int) -> int:
        """Remove a member from the queue, if it is in it."""
        self.taken.add(member)
        return member

    def _first(self, queues: Iterable[deque[int] | None]) -> int | None:
        first = None
        for queue in queues:
            while queue and queue[0] in self.taken:
                queue.popleft()
            if queue and (first is None or queue[0] < first):
                first = queue[0]
        return first


def _client_of(member_id: str) -> str | None:
    match = _DYNAMIC_ID.fullmatch(member_id)
    return None if match is None else match["client"]


def _empty_handed(group: GroupSnapshot) -> BoolArray:
    """Return the members without resources whose fair share is at least one: bool (M,).

    Members that know of a delay are left out. The fair share of a member is the sum, over its
    subscribed names, of resources per subscriber.
    """
    table = group.subscribed_names()
    sizes = np.diff(np.concatenate([[0], np.cumsum(group.assignable)])[group.resources.starts])
    subscribers = np.bincount(group.class_of, minlength=len(table)) @ table
    share = table @ (sizes / np.maximum(subscribers, 1))
    fresh = [member.readable and member.rejoin_in_ms is None for member in group.members]
    found: BoolArray = _holds_nothing(group) & (share >= _ONE_AT_LEAST)[group.class_of]
    found &= np.array(fresh, dtype=np.bool_)
    return found


def _holds_nothing(group: GroupSnapshot) -> BoolArray:
    counts = np.bincount(group.owner + 1, minlength=len(group.members) + 1)
    nothing: BoolArray = counts[1:] == 0
    return nothing
