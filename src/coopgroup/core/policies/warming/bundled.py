"""A round that is decided for bundles: the memory before it, and the plan and memory after it.

The leader's memory always names all parts, so that bundles can begin and end with any round. Before
a round it is read as the memory of the bundles. Afterwards the facts that follow from claims are
written anew for the parts; everything else that the policy remembers is opened like the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.policies.state import NO_CLAIMS, Claims, Holdings, PolicyState, RunningWarmups
from coopgroup.core.policies.stopping import rightful_resources, stopping_claims
from coopgroup.core.policies.unclaimed import find_unclaimed, remember_round

if TYPE_CHECKING:
    import numpy.typing as npt

    from coopgroup.core.model import ResourceSet, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.base import RoundContext
    from coopgroup.core.policies.warming.bundles import Bundles


def bundled_context(bundles: Bundles, context: RoundContext) -> RoundContext:
    """Return the circumstances of a round for its bundles."""
    state = context.state
    if state is None:
        return context
    known, held = _of(bundles, state.known), _of(bundles, state.holdings.resources)
    group = bundles.group
    warmups, places = _bundled_claims(bundles, state.warmups.pairs)
    memory = attrs.evolve(
        state,
        known=group.resources.take(known),
        granted=group.resources.take(_of(bundles, state.granted) & ~known),
        released=group.resources.take(_of(bundles, state.released) & ~held),
        holdings=_bundled_holdings(bundles, state.holdings),
        lost=_bundled_holdings(bundles, state.lost),
        stopping=_bundled_stopping(bundles, context, state),
        # A group that unites its bundles can be uneven afterwards.
        moves_pending=state.moves_pending or bundles.are_split,
        planned=group.resources.take(_of(bundles, state.planned)),
        promised=_bundled_holdings(bundles, state.promised),
        warmups=RunningWarmups(
            pairs=warmups,
            since_ms=state.warmups.since_ms[places],
            warm=state.warmups.warm[places],
        ),
        receivers=_bundled_holdings(bundles, state.receivers),
        refused=_bundled_claims(bundles, state.refused)[0],
    )
    return attrs.evolve(context, state=memory)


def opened_plan(bundles: Bundles, context: RoundContext, plan: RoundPlan) -> RoundPlan:
    """Return the plan for all parts.

    A part that another member still claims, or may own, waits for the rest of its bundle. If a
    bundle waits for a part, the receiver keeps the parts that it owns already.

    Args:
        bundles: the bundles of the round.
        context: circumstances of the round, for all parts.
        plan: the plan for the bundles.
    """
    group, bundle_of = bundles.whole, bundles.bundle_of
    unclaimed = find_unclaimed(group, context)
    wanted = plan.assigned[bundle_of]
    # A member that hands over may keep its bundle, but gets no part that it does not own.
    free = ~group.claimed() & ~unclaimed.withheld & group.may_hold(wanted)
    assigned = np.where((group.owner == wanted) | free, wanted, NOBODY).astype(np.int32)
    waits = (wanted != NOBODY) & (assigned == NOBODY)
    told = stopping_claims(group, context)
    keeps = plan.waiting[bundle_of] & (wanted == NOBODY) & (bundles.sizes[bundle_of] > 1)
    keeps &= (plan.target[bundle_of] == group.owner) & (group.owner != NOBODY)
    keeps &= ~rightful_resources(group, told)
    assigned[keeps] = group.owner[keeps]
    stops = revoked_claims(group, assigned)
    stopping = stops & told
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
    held = bundles.group.aligned(state.holdings.resources, state.holdings.holder)
    facts = remember_round(
        group, context, find_unclaimed(group, context), plan.assigned, held[bundles.bundle_of]
    )
    warmups, places = _opened_claims(bundles, state.warmups.pairs)
    return attrs.evolve(
        facts,
        losses=state.losses,
        lost=_opened_holdings(bundles, state.lost),
        moves_due_ms=state.moves_due_ms,
        moves_pending=state.moves_pending or bundles.are_split,
        initial_until_ms=state.initial_until_ms,
        next_round_ms=state.next_round_ms,
        planned=_opened(bundles, state.planned),
        blind=state.blind,
        promised=_opened_holdings(bundles, state.promised),
        warmups=RunningWarmups(
            pairs=warmups,
            since_ms=state.warmups.since_ms[places],
            warm=state.warmups.warm[places],
        ),
        receivers=_opened_holdings(bundles, state.receivers),
        refused=_opened_claims(bundles, state.refused)[0],
        memory=state.memory,
    )


def _of(bundles: Bundles, resources: ResourceSet) -> BoolArray:
    """Return which bundles have a part in a set: bool (B,)."""
    return bundles.any_of(bundles.whole.mask_of(resources))


def _bundled_holdings(bundles: Bundles, holdings: Holdings) -> Holdings:
    """Return the holder of each bundle; resources that the group lacks stay as they are."""
    group = bundles.group
    holder = bundles.one_of(bundles.whole.aligned(holdings.resources, holdings.holder))
    held = group.resources.take(holder != NOBODY)
    missing = bundles.whole.resources.positions(holdings.resources) < 0
    if not missing.any():
        return Holdings(resources=held, holder=holder[holder != NOBODY])
    gone = holdings.resources.take(missing)
    resources = held | gone
    holders = np.full(len(resources), NOBODY, dtype=np.int32)
    holders[resources.positions(held)] = holder[holder != NOBODY]
    holders[resources.positions(gone)] = holdings.holder[missing]
    return Holdings(resources=resources, holder=holders)


def _bundled_stopping(bundles: Bundles, context: RoundContext, state: PolicyState) -> Claims:
    """Return the claims to bundles that an earlier round revoked: all claims to their parts."""
    told = stopping_claims(bundles.whole, context)
    if not told.any():
        return NO_CLAIMS
    keys, counts = np.unique(bundles.claim_keys, return_counts=True)
    told_keys, told_counts = np.unique(bundles.claim_keys[told], return_counts=True)
    whole = told_counts == counts[keys.searchsorted(told_keys)]
    number_of = {member: number for number, member in enumerate(state.members)}
    members = np.array([number_of.get(one, NOBODY) for one in bundles.whole.member_ids])
    bundle, member = np.divmod(told_keys[whole], len(members))
    return _claims(bundles.group.resources, bundle, members[member])


def _bundled_claims(bundles: Bundles, claims: Claims) -> tuple[Claims, Int64Array]:
    """Return the pairs of bundles and members, and for each the place of one of its pairs."""
    positions = bundles.whole.resources.positions(claims.resources)[claims.resource]
    there = np.flatnonzero(positions >= 0)
    if not there.size:
        return NO_CLAIMS, there
    many = int(claims.claimant.max()) + 1
    keys = bundles.bundle_of[positions[there]] * many + claims.claimant[there]
    keys, places = np.unique(keys, return_index=True)
    made = _claims(bundles.group.resources, keys // many, keys % many)
    return made, there[places]


def _claims(
    resources: ResourceSet, resource: Int64Array, claimant: npt.NDArray[np.integer]
) -> Claims:
    """Return ascending pairs as `Claims`."""
    used = np.zeros(len(resources), dtype=np.bool_)
    used[resource] = True
    place_of = np.cumsum(used, dtype=np.int32) - 1
    return Claims(
        resources=resources.take(used),
        resource=place_of[resource],
        claimant=claimant.astype(np.int32),
    )


def _opened(bundles: Bundles, resources: ResourceSet) -> ResourceSet:
    return bundles.whole.resources.take(bundles.group.mask_of(resources)[bundles.bundle_of])


def _opened_holdings(bundles: Bundles, holdings: Holdings) -> Holdings:
    holder = bundles.group.aligned(holdings.resources, holdings.holder)[bundles.bundle_of]
    held = holder != NOBODY
    return Holdings(resources=bundles.whole.resources.take(held), holder=holder[held])


def _opened_claims(bundles: Bundles, claims: Claims) -> tuple[Claims, Int64Array]:
    """Return the pairs of parts and members, and for each the place of its bundle's pair."""
    bundle = bundles.group.resources.positions(claims.resources)[claims.resource]
    parts, places = bundles.parts_of(bundle)
    order = np.lexsort((claims.claimant[places], parts))
    parts, places = parts[order], places[order]
    return _claims(bundles.whole.resources, parts, claims.claimant[places]), places


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
