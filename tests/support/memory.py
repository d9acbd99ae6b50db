"""A leader's memory in tests: written from sets of resources, and read as such sets."""

from collections.abc import Mapping, Sequence

import numpy as np

from coopgroup.core.model import EMPTY, NOBODY, ResourceSet
from coopgroup.core.policies.memory import (
    PairKind,
    Past,
    PolicyState,
    RememberedMembers,
    RememberedResources,
)


def remembered(
    *members: str,
    generation: int,
    owned: ResourceSet = EMPTY,
    granted: ResourceSet = EMPTY,
    released: ResourceSet = EMPTY,
    silent: Sequence[str] = (),
    holder: Mapping[tuple[str, int], int] | None = None,
) -> PolicyState:
    """Return a memory of these members.

    Args:
        members: ids, ascending.
        generation: generation of the round.
        owned: resources that had an owner before.
        granted: resources that the round granted for the first time.
        released: resources that the round left without an owner.
        silent: ids of members that could not be read.
        holder: position in `members` of the holder of each resource.
    """
    names = ResourceSet.union_all([owned, granted, released, ResourceSet.from_pairs(holder or ())])
    rows = RememberedResources.unknown(names)
    past, holders = rows.past.copy(), rows.holder.copy()
    for kind, resources in (
        (Past.OWNED, owned),
        (Past.FIRST_GRANT, granted),
        (Past.RELEASED, released),
    ):
        past[names.positions(resources)] = kind
    for pair, number in (holder or {}).items():
        holders[names.positions(ResourceSet.from_pairs([pair]))] = number
    return PolicyState(
        generation=generation,
        members=RememberedMembers(ids=members),
        resources=RememberedResources(
            names=names,
            past=past,
            holder=holders,
            loss=rows.loss,
            receiver=rows.receiver,
            promised=rows.promised,
            planned=rows.planned,
        ),
        silent=tuple(silent),
    )


def resources_in(state: PolicyState, kind: PairKind) -> ResourceSet:
    """Return the resources of the pairs of a kind."""
    mask = np.zeros(len(state.resources.names), dtype=np.bool_)
    mask[state.pairs.resource[state.pairs.are(kind)]] = True
    return state.resources.names.take(mask)


def planned_in(state: PolicyState) -> ResourceSet:
    """Return the resources to take later."""
    return state.resources.names.take(state.resources.planned)


def holders_in(state: PolicyState) -> dict[tuple[str, int], int]:
    """Return the position of each resource's holder, without resources that have none."""
    rows = zip(state.resources.names, state.resources.holder.tolist(), strict=True)
    return {(one.name, one.index): number for one, number in rows if number != NOBODY}
