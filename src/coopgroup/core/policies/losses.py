"""The losses of a round: who gets the resources of departed members, and how long they wait.

This is Design II. Start with `follow_losses` in the last part. Three parts, in the order of its
steps: the losses of a round and their resources, the new members that may replace departed members,
and the decision about each loss.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import define, field, frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.resource_set import numbers_in
from coopgroup.core.policies.facts import facts_of
from coopgroup.core.policies.memory import Loss
from coopgroup.core.policies.tables import LOSS_ACTIONS, LossAction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.memory import PolicyState, Recalled, RememberedMembers
    from coopgroup.core.policies.policy import RoundContext


# --- the losses of a round ------------------------------------------------------------------------
# Find the losses of a round, and the unclaimed resources of each loss.
#
# A resource is part of at most one loss. A loss keeps its first deadline. A loss is forgotten when
# a member claims its resources, not when they are granted. The leader sees claims only in a round.
# So a member can work on granted resources for a long time before the leader sees its claims. If
# the grant is older than the delay of a loss, the departure of this member is a new loss.
#
# Theory of operation. A leader that led the last round knows each resource's holder. An unclaimed
# resource is treated as follows:
#
#     holder is present      The holder gets its resource back immediately. It missed its SyncGroup.
#                            Or it was fenced, and returned with the same member id. Neither is a
#                            departure (KAFKA-9848).
#     in a known loss        The loss decides, with its deadline. There are two exceptions. A static
#                            holder that returned with another member id gets its resource back:
#                            it does not count as additional, so it would stay without a share.
#                            The part that a departed member was granted may be a new loss: after
#                            an old grant (see above), and in the cases of `_parts_lost_again`.
#                            So may the part of a present member that no longer subscribes to it.
#     holder has departed    A new loss of this holder.
#     holder is unknown      A loss of an unknown owner. A leader that did not lead the last round
#                            knows no other losses.


@frozen(kw_only=True, eq=False)
class LossCases:
    """Losses of a round, in a group with R resources.

    Attributes:
        losses: sorted by deadline and owner.
        number: int32 (R,): number of each unclaimed resource's loss, `NOBODY` for none.
        holder: int32 (R,): holder in the last round that is present, if the resource is unclaimed;
            otherwise `NOBODY`.
        orphaned: bool (R,): lost by an unknown owner.
    """

    losses: tuple[Loss, ...]
    number: Int32Array
    holder: Int32Array
    orphaned: BoolArray


def find_cases(group: GroupSnapshot, context: RoundContext, delay_ms: int) -> LossCases:
    """Find the losses of a round.

    Args:
        group: the group with R resources.
        context: context of the round.
        delay_ms: how long a new loss waits for its owner.
    """
    facts = facts_of(group, context)
    losses: list[Loss] = []
    number = np.full(len(group.resources), NOBODY, dtype=np.int32)
    holder = number
    if context.state is not None:
        losses, number, holder = _of_state(
            group, facts.recalled, context.state, context.now_ms, delay_ms
        )
    orphaned = facts.unclaimed.lost & (number == NOBODY) & (holder == NOBODY)
    if orphaned.any():
        number = np.where(orphaned, len(losses), number)
        losses.append(_loss_of_unknown(group, context, delay_ms))
    order = sorted(
        range(len(losses)),
        key=lambda position: (losses[position].deadline_ms, losses[position].owner or ""),
    )
    rank = np.full(len(losses) + 1, NOBODY, dtype=np.int32)
    rank[order] = np.arange(len(order))
    return LossCases(
        losses=tuple(losses[position] for position in order),
        number=rank[number],
        holder=holder,
        orphaned=orphaned,
    )


def remembered_losses(
    losses: tuple[Loss, ...], number: Int32Array, waits: BoolArray, now_ms: int
) -> tuple[tuple[Loss, ...], Int32Array]:
    """Return the losses that the next round must know, and the number of each resource's loss.

    A part of a loss may be granted while the rest waits. Then the part becomes another loss, with
    its own time of the grant.

    Args:
        losses: L losses.
        number: int32 (R,): number of each resource's loss, `NOBODY` for none.
        waits: bool (R,): whether a resource waits. The other resources were granted.
        now_ms: the leader's clock.
    """
    key_of = np.where(number != NOBODY, 2 * number + waits, NOBODY).astype(np.int32)
    keys = numbers_in(key_of)
    place_of = np.full(2 * len(losses) + 1, NOBODY, dtype=np.int32)
    place_of[keys] = np.arange(keys.size)
    split = tuple(
        attrs.evolve(losses[key // 2], given_ms=None if key % 2 else now_ms)
        for key in keys.tolist()
    )
    return split, place_of[key_of]


def _of_state(
    group: GroupSnapshot, recalled: Recalled, state: PolicyState, now_ms: int, delay_ms: int
) -> tuple[list[Loss], Int32Array, Int32Array]:
    """Return the losses that a leader knows, each resource's loss, and each resource's holder."""
    unclaimed, members = group.assignable & ~group.claimed(), state.members
    then = np.where(unclaimed, recalled.remembered.holder, NOBODY)
    holder = recalled.number_of[then]
    departed = np.where(holder == NOBODY, then, NOBODY)
    number = np.where(unclaimed, recalled.remembered.loss, NOBODY)
    proved = [
        loss.given_ms is not None and now_ms - loss.given_ms >= delay_ms for loss in state.losses
    ]
    number[(departed != NOBODY) & np.array([*proved, False])[number]] = NOBODY
    deadlines = np.full(len(members.ids) + 1, now_ms + delay_ms)
    # Without this, the owner of the old loss would get the part of a present member that no longer
    # subscribes to it.
    gone = np.where(group.may_hold(holder), NOBODY, then)
    whole, parts = _parts_lost_again(state, gone, number)
    departed = np.where(whole | parts, gone, departed)
    known = np.array([*(loss.deadline_ms for loss in state.losses), 0])
    np.minimum.at(deadlines, departed[parts], known[number[parts]])
    number[whole | parts] = NOBODY
    departed[number != NOBODY] = NOBODY
    # A static holder is never additional. It would stay without a share if the loss decided.
    holder = np.where(number != NOBODY, _returned(group, recalled, members)[then], holder)
    owners = numbers_in(departed)
    number_of = np.full(len(members.ids) + 1, NOBODY, dtype=np.int32)
    number_of[owners] = len(state.losses) + np.arange(owners.size)
    fresh = [
        Loss(
            owner=members.ids[owner],
            instance_id=members.instance_ids[owner],
            deadline_ms=int(deadlines[owner]),
        )
        for owner in owners.tolist()
    ]
    number = np.where(departed != NOBODY, number_of[departed], number).astype(np.int32)
    return [*state.losses, *fresh], number, holder


def _returned(group: GroupSnapshot, recalled: Recalled, members: RememberedMembers) -> Int32Array:
    """Return the numbers of the last round's members, and of returned static ones: int32 (N + 1,).

    A static member that was fenced returns under another member id.
    """
    by_instance = {m.instance_id: number for number, m in enumerate(group.members)}
    numbers = recalled.number_of.copy()
    for position in np.flatnonzero(numbers[:-1] == NOBODY).tolist():
        instance_id = members.instance_ids[position]
        if instance_id is not None:
            numbers[position] = by_instance.get(instance_id, NOBODY)
    return numbers


def _parts_lost_again(
    state: PolicyState, departed: Int32Array, number: Int32Array
) -> tuple[BoolArray, BoolArray]:
    """Return the parts of known losses that are new losses of departed members: bool (R,) twice.

    A member was granted a part of a loss in time, and departed before it claimed the part. Usually
    the old loss goes on. In three cases the part is a new loss of this member:

    - The member had other resources beside the part. Its whole share is one new loss, with a new
      deadline. With two losses, two newcomers would replace one departed member, and both would
      keep too little.
    - The owner of the old loss is unknown, and several members with a part departed. As one loss,
      all parts would go to one newcomer.
    - The owner of the old loss was back in that round, and has another part. The owner would get
      this part, too.

    Args:
        state: the leader's memory of a last round with N members.
        departed: int32 (R,): holder of each unclaimed resource that departed, or that can no
            longer have it.
        number: int32 (R,): number of each resource's known loss.

    Returns:
        The parts of the first case, and the parts of the other two cases. The latter keep the
        deadline of the old loss.
    """
    in_time = np.array([*(not loss.given_late for loss in state.losses), False])
    granted = np.array([*(loss.given_ms is not None for loss in state.losses), False])
    part = (departed != NOBODY) & in_time[number]
    beside = np.zeros(len(state.members.ids) + 1, dtype=np.bool_)
    beside[departed[(departed != NOBODY) & (number == NOBODY)]] = True
    whole = part & granted[number] & beside[departed]
    rest = np.flatnonzero(part & ~whole)
    pairs = np.unique(np.stack([number[rest], departed[rest]]), axis=1)
    unknown = np.array([*(loss.owner is None for loss in state.losses), False])
    several = unknown & (np.bincount(pairs[0], minlength=unknown.size) > 1)
    owner = _owners_then(state)[number[rest]]
    parts = np.zeros_like(whole)
    parts[rest] = several[number[rest]] | ((owner != NOBODY) & (owner != departed[rest]))
    return whole, parts


def _owners_then(state: PolicyState) -> Int32Array:
    """Return the number of each loss's owner among the last round's members: int32 (L + 1,)."""
    place_of = {member: place for place, member in enumerate(state.members.ids)}
    place_of_instance = {static: place for place, static in enumerate(state.members.instance_ids)}
    owners = [
        place_of.get(one.owner or "", place_of_instance.get(one.instance_id or "", NOBODY))
        for one in state.losses
    ]
    return np.array([*owners, NOBODY], dtype=np.int32)


def _loss_of_unknown(group: GroupSnapshot, context: RoundContext, delay_ms: int) -> Loss:
    """Return a loss that began before this leader looked, with the delay that members know.

    The rest of a pause between moves does not count: members that know nothing else know of no
    loss, so this loss is new.
    """
    remaining = [m.loss_ends_in_ms for m in group.members if m.loss_ends_in_ms is not None]
    return Loss(
        owner=None,
        instance_id=None,
        deadline_ms=context.now_ms + min([*remaining, delay_ms]),
    )


# --- new members ----------------------------------------------------------------------------------
# The new members since the last round, and the departed members that they may replace.
#
# A member with a rightful claim is not new, because it brings its own resources. A member with a
# static id replaces another member only if the owner of the loss is unknown. A new member that
# replaces no departed member is additional, and the other members make room immediately.
#
# A leader that did not lead the last round cannot tell which members are new. It uses the heuristic
# of Design II: "looking for a member that has no previous assignments (assuming there's enough
# members that they should have had an assignment)". These members count as the owners of the
# unclaimed resources. A member that knows of a delay was present when the delay was announced, so
# the group does not wait for it.


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
                takers=tuple(np.flatnonzero(_empty_handed(group, context)).tolist()),
            )
        members = context.state.members
        seen, instances = set(members.ids), set(members.instance_ids)
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
        """Give the takers equal parts of the lost resources, as far as they subscribe.

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
        fits: by class, bool (L,): whether the class subscribes to all resources of a loss.
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

    def first_for(self, loss: int, owner: str | None) -> int | None:  # noqa: ARG002 - see `_who_returns`
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


def _empty_handed(group: GroupSnapshot, context: RoundContext) -> BoolArray:
    """Return the members without resources whose fair share is at least one: bool (M,).

    Members that know of a delay are left out. The fair share of a member is the sum, over its
    subscribed names, of resources per subscriber. An assignor with limits gives no fair shares. It
    left the members of the newest generation without resources on purpose, so they lost nothing.
    """
    table = group.subscribed_names()
    sizes = np.diff(np.concatenate([[0], np.cumsum(group.assignable)])[group.resources.starts])
    subscribers = np.bincount(group.class_of, minlength=len(table)) @ table
    share = table @ (sizes / np.maximum(subscribers, 1))
    newest = max((member.generation for member in group.members), default=NO_GENERATION)
    fresh = [
        member.readable
        and member.rejoin_in_ms is None
        and (not context.has_limits or member.generation < newest or newest == NO_GENERATION)
        for member in group.members
    ]
    found: BoolArray = _holds_nothing(group) & (share >= _ONE_AT_LEAST)[group.class_of]
    found &= np.array(fresh, dtype=np.bool_)
    return found


def _holds_nothing(group: GroupSnapshot) -> BoolArray:
    counts = np.bincount(group.owner + 1, minlength=len(group.members) + 1)
    nothing: BoolArray = counts[1:] == 0
    return nothing


# --- the decision about each loss -----------------------------------------------------------------
# Decide who gets the resources of departed members, and whether they still wait (Design II).
#
# A loss never waits for a present member. A new member replaces at most one departed member. The
# deadline of a loss always ends its wait. `find_cases` finds the losses and sets their deadlines.


@frozen(kw_only=True, eq=False)
class Losses:
    """The decision about all losses of a round, in a group with R resources.

    Attributes:
        restored_to: int32 (R,): member that gets an unclaimed resource because it is, or counts as,
            its owner; `NOBODY` if the assignor decides.
        waits: bool (R,): waits for its owner and is not placed in this round.
        losses: losses to remember, by deadline and owner.
        number: int32 (R,): number in `losses` of each lost resource, `NOBODY` for the others.
        wait_until_ms: earliest deadline of the waiting losses; None without one.
        joined: whether an additional member joined.
        expired: whether the wait of a loss has ended, so that the assignor decides.
    """

    restored_to: Int32Array
    waits: BoolArray
    losses: tuple[Loss, ...]
    number: Int32Array
    wait_until_ms: int | None
    joined: bool
    expired: bool

    def without(self, group: GroupSnapshot, taken: BoolArray | None, now_ms: int) -> Losses:
        """Return the losses if warm members take some of the resources.

        The loss is still remembered: its deadline counts if the new owner never claims them. The
        group has changed permanently, so moves that level it may begin. An owner that returns later
        can get only the rest, so the loss is marked as shared.

        Args:
            group: the group with R resources.
            taken: bool (R,): which ones; None for none.
            now_ms: the leader's clock.
        """
        if taken is None or not taken.any():
            return self
        waits = self.waits & ~taken
        number = self.number
        urgent = numbers_in(number[waits & group.subscribed()]).tolist()
        waiting = np.array([*(one.given_ms is None for one in self.losses), False])
        shared = numbers_in(number[taken]).tolist()
        known = tuple(
            attrs.evolve(one, shared=one.shared or place in shared)
            for place, one in enumerate(self.losses)
        )
        losses, number = remembered_losses(known, number, waiting[number] & ~taken, now_ms)
        return attrs.evolve(
            self,
            losses=losses,
            number=number,
            restored_to=np.where(taken, NOBODY, self.restored_to).astype(np.int32),
            waits=waits,
            wait_until_ms=min((self.losses[n].deadline_ms for n in urgent), default=None),
            expired=True,
        )


def follow_losses(group: GroupSnapshot, context: RoundContext, delay_ms: int) -> Losses:
    """Decide the losses of a round.

    Args:
        group: the group with R resources.
        context: context of the round.
        delay_ms: how long a loss waits for its owner; 0 for not at all.
    """
    newcomers = Newcomers.of(group, context)
    if not delay_ms:
        return Losses(
            restored_to=np.full(len(group.resources), NOBODY, dtype=np.int32),
            waits=np.zeros(len(group.resources), dtype=np.bool_),
            losses=(),
            number=np.full(len(group.resources), NOBODY, dtype=np.int32),
            wait_until_ms=None,
            joined=newcomers.any_but(()),
            expired=bool(facts_of(group, context).unclaimed.lost.any()),
        )
    cases = find_cases(group, context, delay_ms)
    dealt = newcomers.share_out(group, cases.orphaned)
    open_ = (cases.holder == NOBODY) & (dealt == NOBODY)
    number = np.where(open_, cases.number, NOBODY)
    given, waiting, taken = _decide(group, context, cases, number, newcomers)
    waits = waiting[number]
    # without a subscriber a resource cannot be assigned anyway
    urgent = numbers_in(number[waits & group.subscribed()])
    losses, remembered = remembered_losses(
        cases.losses,
        cases.number,
        waiting[cases.number] & (dealt == NOBODY),
        context.now_ms,
    )
    certain = np.where(dealt == NOBODY, cases.holder, dealt)
    return Losses(
        restored_to=np.where(number == NOBODY, certain, given[number]).astype(np.int32),
        waits=waits,
        losses=losses,
        number=remembered,
        wait_until_ms=min((cases.losses[n].deadline_ms for n in urgent.tolist()), default=None),
        joined=newcomers.any_but(taken.union(numbers_in(dealt).tolist())),
        expired=bool(((number != NOBODY) & ~waits & (given[number] == NOBODY)).any()),
    )


def _decide(
    group: GroupSnapshot,
    context: RoundContext,
    cases: LossCases,
    number: Int32Array,
    newcomers: Newcomers,
) -> tuple[Int32Array, BoolArray, set[int]]:
    """Decide each of L losses with unclaimed resources.

    Resources that were granted after the wait had ended, and are still unclaimed, are free. Other
    members already own the rest of such a loss. If its owner got a remainder back, the owner would
    not count as additional, and would keep too small a share.

    If warm members took a part of a loss, its owner or replacement gets the rest and is additional.

    Returns:
        The receiver of each loss, int32 (L + 1,). Whether the loss waits, bool (L + 1,). The last
        entries mean no loss. Third, the members that are not additional.
    """
    given = np.full(len(cases.losses) + 1, NOBODY, dtype=np.int32)
    waiting = np.zeros(len(cases.losses) + 1, dtype=np.bool_)
    queue = newcomers.queue_up(group, number, len(cases.losses))
    positions = [n for n in numbers_in(number).tolist() if not cases.losses[n].given_late]
    owners, candidates = _who_returns(group, cases, positions, newcomers, queue)
    for position in positions:
        action = LOSS_ACTIONS.decide(
            back=position in owners,
            static=cases.losses[position].instance_id is not None,
            newcomer=position in candidates,
            expired=context.now_ms >= cases.losses[position].deadline_ms,
        )
        waiting[position] = action is LossAction.WAIT
        if action is LossAction.RETURN:
            given[position] = owners[position]
        elif action is LossAction.REPLACE:
            given[position] = candidates[position]
    with_a_rest = {int(given[position]) for position in positions if cases.losses[position].shared}
    return given, waiting, queue.taken - with_a_rest


def _who_returns(
    group: GroupSnapshot,
    cases: LossCases,
    positions: list[int],
    newcomers: Newcomers,
    queue: NewcomerQueue,
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the present owners by loss, and new members that replace owners without a static id.

    New members of the same client come first: each process of a restarting batch gets its own
    resources back. The other new members follow, in the order of losses. New members with a static
    id come last, and only for a loss of an unknown owner.
    """
    owners: dict[int, int] = {}
    for position in positions:
        owner = _present_owner(
            cases.losses[position], group.number_of_member, newcomers.by_instance
        )
        if owner is not None:
            owners[position] = queue.take(owner)
    candidates: dict[int, int] = {}
    for first_for in (queue.same_client_for, queue.first_for, queue.first_static_for):
        for position in positions:
            loss = cases.losses[position]
            if position not in owners and position not in candidates and loss.instance_id is None:
                candidate = first_for(position, loss.owner)
                if candidate is not None:
                    candidates[position] = queue.take(candidate)
    return owners, candidates


def _present_owner(
    loss: Loss, number_of_id: Mapping[str, int], by_instance: Mapping[str, int]
) -> int | None:
    for key, numbers in ((loss.owner, number_of_id), (loss.instance_id, by_instance)):
        if key is not None and key in numbers:
            return numbers[key]
    return None
