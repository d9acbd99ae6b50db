"""Bundles: resources that belong together have one owner, and move together (`co_partition`).

Partition i of each listed topic is one bundle. A round with bundles is decided for another group,
in which each bundle is one resource: the part that comes first by name. Assignor, policy and
warm-ups run unchanged on this group. Then the plan is opened: each part goes with its bundle.

Rules of this file:

- A bundle belongs to the member that owns most of its parts; the first part decides a tie. All
  members that claim a part claim the bundle, so no part is granted before all are given up.
- The opened plan never gives a part to a member while another member claims it. Such a part waits.
- A bundle has the parts that exist. If topics have different numbers of partitions, the bundles
  at the end have fewer parts. A topic that does not exist has no part.
- A list of topics applies only if each member subscribes to all of its existing topics or none.
  Otherwise these topics have no bundles. So a group whose subscriptions change member by member
  does not move everything to the first member that has changed.
- If the parts of a bundle have different owners, for example when the option is new, the round
  gives all of them to the owner of the bundle: revoke now, assign in the next round. This unites
  the bundles once, and waits neither for a warm-up nor for the ration.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.group import NO_PAIRS, ReplicaRacks
from coopgroup.core.model.lags import Lags
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.model.positions import ABSENT
from coopgroup.core.model.resource_set import distinct
from coopgroup.core.policies.facts import (
    facts_of,
    remember_round,
    rightful_resources,
)
from coopgroup.core.policies.memory import (
    NO_REMEMBERED_PAIRS,
    PairKind,
    Past,
    RememberedPairs,
    RememberedResources,
)
from coopgroup.core.policies.warmth import warmup_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coopgroup.core.model import GroupMember, GroupSnapshot, ResourceSet, RoundPlan
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.memory import PolicyState, Recalled
    from coopgroup.core.policies.policy import Policy, RoundContext, RoundFacts


_INDEX_BITS: Final = 32
_TOPICS_MIN: Final = 2


def bundles_of(group: GroupSnapshot, co_partition: Sequence[Sequence[str]]) -> Bundles | None:
    """Return the bundles of a group; None if each resource is on its own.

    Args:
        group: the group, claims resolved.
        co_partition: topics whose partitions belong together, each topic once.
    """
    label = _labels(group, co_partition)
    if label is None:
        return None
    names = group.resources.name_numbers
    # A deleted resource is on its own: its owner must stop it.
    keys = np.where(group.assignable, label[names], names + label.size).astype(np.int64)
    keys <<= _INDEX_BITS
    keys += group.resources.flat_indices + 1  # the index of a connector is -1
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if first.size == keys.size:
        return None
    place = np.empty(first.size, dtype=np.int64)
    order = first.argsort()
    place[order] = np.arange(first.size)
    return Bundles(whole=group, first=first[order], bundle_of=place[inverse])


def _labels(group: GroupSnapshot, co_partition: Sequence[Sequence[str]]) -> Int64Array | None:
    """Return a number for each name, the same for names that belong together; None for none."""
    number_of = {name: number for number, name in enumerate(group.resources.names)}
    exists = np.zeros(len(number_of), dtype=np.bool_)
    exists[group.resources.name_numbers[group.assignable]] = True
    table = group.subscribed_names()
    label = np.arange(len(number_of), dtype=np.int64)
    for topics in co_partition:
        numbers = sorted(number_of[one] for one in topics if one in number_of)
        numbers = [number for number in numbers if exists[number]]
        if len(numbers) < _TOPICS_MIN:
            continue
        wanted = table[:, numbers]
        if (wanted.all(axis=1) == wanted.any(axis=1)).all():
            label[numbers] = numbers[0]
    return label if (label != np.arange(label.size)).any() else None


@frozen(kw_only=True, eq=False, slots=False)
class Bundles:
    """The bundles of a group with R resources, M members and K claims; B bundles.

    Attributes:
        whole: the group with all parts.
        first: int64 (B,): first part of each bundle, ascending.
        bundle_of: int64 (R,): bundle of each part.
    """

    whole: GroupSnapshot
    first: Int64Array
    bundle_of: Int64Array

    @cached_property
    def group(self) -> GroupSnapshot:
        """Return the group in which each bundle is one resource."""
        whole = self.whole
        owner = self.one_of(whole.owner)
        claims = distinct(np.sort(self.claim_keys, kind="stable"))  # merges a run of each topic
        warm_members, warm_resources = self._warm_pairs(owner)
        is_first = np.zeros(len(whole.resources), dtype=np.bool_)
        is_first[self.first] = True
        racks, arrivals = whole.replica_racks, whole.arrivals_per_s
        return attrs.evolve(
            whole,
            members=tuple(self._member(member) for member in whole.members),
            resources=whole.resources.take(is_first),
            assignable=whole.assignable[self.first],
            owner=owner,
            # A bundle with an owner is not contested: only its contested parts stop.
            contested=self.any_of(whole.contested) & (owner == NOBODY),
            claim_members=(claims % max(len(whole.members), 1)).astype(np.int32),
            claim_resources=(claims // max(len(whole.members), 1)).astype(np.int32),
            replica_racks=None if racks is None else _racks_of(racks, self.first),
            arrivals_per_s=None if arrivals is None else self.sum_of(arrivals),
            weights=None if whole.weights is None else self.sum_of(whole.weights).astype(np.int64),
            warm_members=warm_members,
            warm_resources=warm_resources,
        )

    @cached_property
    def claim_keys(self) -> Int64Array:
        """Return bundle and member of each claim as one number: int64 (K,)."""
        whole = self.whole
        return self.bundle_of[whole.claim_resources] * len(whole.members) + whole.claim_members

    @cached_property
    def sizes(self) -> Int64Array:
        """Return the number of parts of each bundle: int64 (B,)."""
        return np.bincount(self.bundle_of, minlength=self.first.size).astype(np.int64)

    @cached_property
    def are_split(self) -> bool:
        """Return whether two members rightfully own parts of one bundle."""
        owner = self.whole.owner
        return bool(((owner != NOBODY) & (self.group.owner[self.bundle_of] != owner)).any())

    def any_of(self, mask: BoolArray) -> BoolArray:
        """Return which bundles have such a part: bool (B,)."""
        found = np.zeros(self.first.size, dtype=np.bool_)
        found[self.bundle_of[mask]] = True
        return found

    def largest_of(self, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """Return the largest value of each bundle's parts: int8 (B,)."""
        found = values[self.first]
        np.maximum.at(found, self.bundle_of, values)
        return found

    def sum_of(self, values: npt.NDArray[np.number]) -> Float64Array:
        """Return the sum over the parts of each bundle: float64 (B,)."""
        weights: Float64Array = values.astype(np.float64)
        sums = np.bincount(self.bundle_of, weights=weights, minlength=self.first.size)
        return sums.astype(np.float64)

    def one_of(self, holder: Int32Array) -> Int32Array:
        """Return the most frequent holder of each bundle's parts, `NOBODY` without one.

        Args:
            holder: int32 (R,); a tie goes to the holder of the first part.

        Returns:
            int32 (B,).
        """
        made = np.full(self.first.size, NOBODY, dtype=np.int32)
        placed = np.flatnonzero(holder != NOBODY)[::-1]
        bundle, held = self.bundle_of[placed], holder[placed]
        made[bundle] = held  # the first part comes last, and counts
        if (made[bundle] == held).all():
            return made
        many = int(held.max()) + 1
        keys, inverse, counts = np.unique(
            bundle * many + held, return_inverse=True, return_counts=True
        )
        first = np.empty(keys.size, dtype=np.int64)
        first[inverse] = placed
        order = np.lexsort((first, -counts, keys // many))
        begins = np.flatnonzero(np.diff(keys[order] // many, prepend=NOBODY))
        best = keys[order[begins]]
        made[best // many] = (best % many).astype(np.int32)
        return made

    def parts_of(self, bundles: npt.NDArray[np.integer]) -> tuple[Int64Array, Int64Array]:
        """Return the parts of N bundles, and for each part which of the N it belongs to."""
        counts = self.sizes[bundles]
        number = np.arange(bundles.size).repeat(counts)
        place = np.arange(number.size) - (counts.cumsum() - counts)[number]
        return self._ordered[self._starts[bundles][number] + place], number

    @cached_property
    def _ordered(self) -> Int64Array:
        return self.bundle_of.argsort(kind="stable")

    @cached_property
    def _starts(self) -> Int64Array:
        return self.sizes.cumsum() - self.sizes

    def _member(self, member: GroupMember) -> GroupMember:
        """Return a member that declines the whole bundle if it declines a part."""
        if not (member.declined or member.declined_warmups):
            return member
        return attrs.evolve(
            member,
            declined=self._whole_bundles(member.declined),
            declined_warmups=self._whole_bundles(member.declined_warmups),
        )

    def _whole_bundles(self, parts: ResourceSet) -> ResourceSet:
        mask = np.zeros(len(self.whole.resources), dtype=np.bool_)
        mask[self.first[self.any_of(self.whole.mask_of(parts))]] = True
        return self.whole.resources.take(mask)

    def _warm_pairs(self, owner: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Return member and bundle of each warm pair, without pairs of a bundle and its owner.

        A member is warm for a bundle if no part is cold for it.
        """
        whole, members = self.whole, len(self.whole.members)
        if not whole.warm_resources.size:
            return NO_PAIRS, NO_PAIRS
        held = np.flatnonzero(whole.owner != NOBODY)
        keys = np.concatenate(
            [
                self.bundle_of[whole.warm_resources] * members + whole.warm_members,
                self.bundle_of[held] * members + whole.owner[held],
            ]
        )
        keys, counts = np.unique(keys, return_counts=True)
        bundle, member = keys // max(members, 1), keys % max(members, 1)
        warm = (counts == self.sizes[bundle]) & (owner[bundle] != member)
        return member[warm].astype(np.int32), bundle[warm].astype(np.int32)


def _racks_of(racks: ReplicaRacks, chosen: Int64Array) -> ReplicaRacks:
    """Return the racks of some resources."""
    counts = np.diff(racks.starts)[chosen]
    starts = np.zeros(chosen.size + 1, dtype=np.int64)
    counts.cumsum(out=starts[1:])
    number = np.arange(chosen.size).repeat(counts)
    place = np.arange(number.size) - starts[number]
    numbers = racks.numbers[racks.starts[chosen][number] + place]
    return ReplicaRacks(racks=racks.racks, starts=starts, numbers=numbers)


# --- memory and plan ------------------------------------------------------------------------------
# A round that is decided for bundles: the memory before it, and the plan and memory after it.
#
# The leader's memory always names all parts, so that bundles can begin and end with any round.
# Before a round it is read as the memory of the bundles. Afterwards the facts that follow from
# claims are written anew for the parts; everything else that the policy remembers is opened like
# the plan.


def bundled_context(bundles: Bundles, context: RoundContext) -> RoundContext:
    """Return the circumstances of a round for its bundles."""
    context = attrs.evolve(context, state=_bundled_state(bundles, context))
    return attrs.evolve(context, facts=facts_of(bundles.group, context))


def _bundled_state(bundles: Bundles, context: RoundContext) -> PolicyState | None:
    state = context.state
    if state is None:
        return None
    recalled = facts_of(bundles.whole, context).recalled
    gone = bundles.whole.resources.positions(state.resources.names) == ABSENT
    rows = _bundled_rows(bundles, recalled.remembered).over(state.resources.take(gone))
    return attrs.evolve(
        state,
        resources=rows,
        pairs=RememberedPairs.all_of(
            _bundled_told(bundles, context, rows),
            _bundled_pairs(bundles, recalled, rows),
        ),
        # A group that unites its bundles can be uneven afterwards.
        moves_pending=state.moves_pending or bundles.are_split,
    )


def _bundled_rows(bundles: Bundles, rows: RememberedResources) -> RememberedResources:
    """Return what is remembered of the bundles, from what is remembered of their parts."""
    past, holder = bundles.largest_of(rows.past), bundles.one_of(rows.holder)
    past[(past == Past.RELEASED) & (holder != NOBODY)] = Past.OWNED
    return RememberedResources(
        names=bundles.group.resources,
        past=past,
        holder=holder,
        loss=bundles.one_of(rows.loss),
        receiver=bundles.one_of(rows.receiver),
        promised=bundles.any_of(rows.promised),
        planned=bundles.any_of(rows.planned),
    )


def opened_plan(bundles: Bundles, facts: RoundFacts, plan: RoundPlan) -> RoundPlan:
    """Return the plan for all parts.

    A part that another member still claims, or may own, waits for the rest of its bundle. If a
    bundle waits for a part, the receiver keeps the parts that it owns already.

    Args:
        bundles: the bundles of the round.
        facts: facts of the round, for all parts.
        plan: the plan for the bundles.
    """
    group, bundle_of, unclaimed = bundles.whole, bundles.bundle_of, facts.unclaimed
    wanted = plan.assigned[bundle_of]
    # A member that hands over may keep its bundle, but gets no part that it does not own.
    free = ~group.claimed() & ~unclaimed.withheld & group.may_hold(wanted)
    assigned = np.where((group.owner == wanted) | free, wanted, NOBODY).astype(np.int32)
    waits = (wanted != NOBODY) & (assigned == NOBODY)
    keeps = plan.waiting[bundle_of] & (wanted == NOBODY) & (bundles.sizes[bundle_of] > 1)
    keeps &= (plan.target[bundle_of] == group.owner) & (group.owner != NOBODY)
    keeps &= ~rightful_resources(group, facts.told)
    assigned[keeps] = group.owner[keeps]
    stops = revoked_claims(group, assigned)
    stopping = stops & facts.told
    follow_up = plan.follow_up or bool((stops & ~stopping).any())
    follow_up = follow_up or bool((waits & unclaimed.withheld).any())
    is_silent = follow_up or bool(stops.any())
    first_members = plan.waiting_for_members
    members, resources = _opened_warmups(bundles, plan, assigned)
    return attrs.evolve(
        plan,
        target=plan.target[bundle_of],
        assigned=assigned,
        follow_up=follow_up,
        rejoin_in_ms=None if is_silent else plan.rejoin_in_ms,
        loss_ends_in_ms=None if is_silent else plan.loss_ends_in_ms,
        lost=plan.lost[bundle_of],
        created=unclaimed.created & (assigned != NOBODY),
        waiting=(plan.waiting[bundle_of] & ~keeps) | waits,
        waiting_for_members=None if first_members is None else first_members[bundle_of],
        stopping=stopping,
        warmup_members=members,
        warmup_resources=resources,
    )


def opened_state(
    bundles: Bundles, context: RoundContext, plan: RoundPlan, state: PolicyState
) -> PolicyState:
    """Return the memory for all parts.

    Args:
        bundles: the bundles of the round.
        context: circumstances of the round, for all parts.
        plan: the plan for all parts.
        state: the memory of the round for the bundles.
    """
    group = bundles.whole
    unclaimed = facts_of(group, context).unclaimed
    rows, bundle_of = state.resources, bundles.bundle_of
    fresh = remember_round(group, context, unclaimed, plan.assigned, rows.holder[bundle_of])
    return attrs.evolve(
        state,
        members=fresh.members,
        silent=fresh.silent,
        resources=attrs.evolve(
            fresh.resources,
            loss=rows.loss[bundle_of],
            receiver=rows.receiver[bundle_of],
            promised=rows.promised[bundle_of],
            planned=rows.planned[bundle_of],
        ),
        pairs=RememberedPairs.all_of(fresh.pairs, _opened_pairs(bundles, state)),
        moves_pending=state.moves_pending or bundles.are_split,
    )


def _bundled_told(
    bundles: Bundles, context: RoundContext, rows: RememberedResources
) -> RememberedPairs:
    """Return the claims to bundles that an earlier round revoked: all claims to their parts."""
    facts = facts_of(bundles.whole, context)
    if not facts.told.any():
        return NO_REMEMBERED_PAIRS
    keys, counts = np.unique(bundles.claim_keys, return_counts=True)
    told_keys, told_counts = np.unique(bundles.claim_keys[facts.told], return_counts=True)
    whole = told_counts == counts[keys.searchsorted(told_keys)]
    number_of = facts.recalled.number_of
    position_of = np.full(len(bundles.whole.members), NOBODY, dtype=np.int32)
    position_of[number_of[number_of != NOBODY]] = np.flatnonzero(number_of != NOBODY)
    bundle, member = np.divmod(told_keys[whole], max(position_of.size, 1))
    place = rows.names.positions(bundles.group.resources)[bundle]
    return RememberedPairs.of(PairKind.TOLD, place, position_of[member])


def _bundled_pairs(
    bundles: Bundles, recalled: Recalled, rows: RememberedResources
) -> RememberedPairs:
    """Return the warm-ups of bundles, from those of their parts."""
    pairs = recalled.pairs.take(~recalled.pairs.are(PairKind.TOLD))
    part = recalled.place_of[pairs.resource]
    place = rows.names.positions(bundles.group.resources)[bundles.bundle_of[part]]
    return pairs.renumbered(np.where(part == ABSENT, ABSENT, place))


def _opened_pairs(bundles: Bundles, state: PolicyState) -> RememberedPairs:
    """Return the warm-ups of all parts, from those of their bundles."""
    pairs = state.pairs.take(~state.pairs.are(PairKind.TOLD))
    bundle = bundles.group.resources.positions(state.resources.names)[pairs.resource]
    parts, place = bundles.parts_of(bundle)
    return pairs.take(place).renumbered(parts)


def _opened_warmups(
    bundles: Bundles, plan: RoundPlan, assigned: Int32Array
) -> tuple[Int32Array, Int32Array]:
    """Return member and part of each warm-up, without parts that the member owns."""
    parts, places = bundles.parts_of(plan.warmup_resources)
    members = plan.warmup_members[places]
    order = np.lexsort((members, parts))
    parts, members = parts[order], members[order]
    others = assigned[parts] != members
    return members[others], parts[others].astype(np.int32)


# --- the round ------------------------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class BundledRound:
    """The input of a round for its bundles.

    Attributes:
        bundles: the bundles, and the group with all parts.
        whole: circumstances of the round, for all parts.
        context: the same for the bundles.
        lags: the sum over the parts of each bundle.
    """

    bundles: Bundles
    whole: RoundContext
    context: RoundContext
    lags: Lags

    @classmethod
    def of(
        cls, group: GroupSnapshot, context: RoundContext, lags: Lags, policy: Policy
    ) -> BundledRound | None:
        """Return the round for bundles; None if each resource is on its own."""
        option = warmup_of(policy)
        if option is None or not option.co_partition:
            return None
        bundles = bundles_of(group, option.co_partition)
        if bundles is None:
            return None
        arrivals = lags.aligned_arrivals(group.resources)
        summed = Lags(
            resources=bundles.group.resources,
            values=_whole_numbers(bundles, lags.aligned(group.resources)),
            arrivals_per_s=None if arrivals is None else bundles.sum_of(arrivals),
        )
        bundled = bundled_context(bundles, context)
        if context.lags is not None:
            seen = _whole_numbers(bundles, context.lags.aligned(group.resources))
            bundled = attrs.evolve(
                bundled, lags=Lags(resources=bundles.group.resources, values=seen)
            )
        return cls(bundles=bundles, whole=context, context=bundled, lags=summed)

    @property
    def asked(self) -> tuple[GroupSnapshot, RoundContext, Lags]:
        """The input of the decision: each bundle is one resource."""
        return self.bundles.group, self.context, self.lags

    def opened(self, plan: RoundPlan, state: PolicyState) -> tuple[RoundPlan, PolicyState]:
        """Return plan and memory for all parts."""
        opened = opened_plan(self.bundles, facts_of(self.bundles.whole, self.whole), plan)
        return opened, opened_state(self.bundles, self.whole, opened, state)


def _whole_numbers(bundles: Bundles, lags: Int64Array) -> Int64Array:
    sums: Int64Array = bundles.sum_of(lags).astype(np.int64)
    return sums
