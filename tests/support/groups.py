"""Builders of groups for tests: a group in the words of the documents, on a few lines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from coopgroup.assignors import Assignor, Placement
from coopgroup.core.leader.lag_checks import context_of
from coopgroup.core.model import GroupSnapshot, MemberClaim, ResourceSet, resolve_claims
from coopgroup.core.model.plan import RoundPlan, revoked_by_member
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.session import LeaderContext
from coopgroup.policies import find_unclaimed, remember_round

Indices = Mapping[str, Iterable[int]]


def indices_of_t(*indices: int) -> dict[str, list[int]]:
    """Return resources of the topic T, without the topic if there are none."""
    return {"T": list(indices)} if indices else {}


def claim(
    member_id: str,
    owned: Indices | None = None,
    *,
    topics: Iterable[str] = ("T",),
    generation: int = 1,
    **more: Any,  # noqa: ANN401 - any other field of a claim
) -> MemberClaim:
    """Return a member that subscribes to `topics` and claims `owned`."""
    return MemberClaim(
        member_id=member_id,
        topics=tuple(sorted(set(topics))),
        owned=ResourceSet(owned),
        generation=generation,
        **more,
    )


def unreadable(member_id: str) -> MemberClaim:
    return MemberClaim(member_id=member_id, topics=(), readable=False)


def group_of(existing: Indices, *claims: MemberClaim) -> GroupSnapshot:
    return resolve_claims(claims, ResourceSet(existing))


def at_rest(group: GroupSnapshot, now_ms: int = 0) -> LeaderContext:
    """Return the circumstances of a balancing round, if the last round changed nothing."""
    known = LeaderContext(leader_id="A", generation=1, now_ms=now_ms, state=None)
    past = context_of(known)
    state = remember_round(group, past, find_unclaimed(group, past), group.owner)
    return attrs.evolve(known, generation=2, state=state, balance=True)


def target_of(assignor: Assignor, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
    """Return the target of an assignor that finds room for all."""
    target = assignor.assign(group, lags)
    assert not isinstance(target, Placement)
    return target


def no_lags(group: GroupSnapshot) -> Int64Array:
    return np.zeros(len(group.resources), dtype=np.int64)


def lags_of(group: GroupSnapshot, lags: Mapping[str, Sequence[int]]) -> Int64Array:
    """Return lags by name, in the order of the name's indices; 0 for the rest."""
    array = no_lags(group)
    for name, values in lags.items():
        places = group.resources.positions(group.resources.restrict_names([name]))
        array[places[: len(values)]] = values
    return array


def holder_of(group: GroupSnapshot, held: Mapping[str, Indices]) -> Int32Array:
    """Return an array of member numbers from resources by member id."""
    holder = np.full(len(group.resources), -1, dtype=np.int32)
    for number, member_id in enumerate(group.member_ids):
        holder[group.resources.positions(ResourceSet(held.get(member_id)))] = number
    return holder


def by_member(group: GroupSnapshot, holder: Int32Array) -> dict[str, dict[str, list[int]]]:
    """Return resources by member id from an array of member numbers."""
    sets = group.by_member(holder)
    return {member: held.to_dict() for member, held in zip(group.member_ids, sets, strict=True)}


Told = tuple[dict[str, list[int]], dict[str, list[int]] | None]


def told(group: GroupSnapshot, plan: RoundPlan) -> dict[str, Told]:
    """Return each member's assigned and revoked resources; revoked is None without a follow-up."""
    revoked = revoked_by_member(group, plan.assigned)
    return {
        member: (held, stop.to_dict() if plan.follow_up else None)
        for (member, held), stop in zip(
            by_member(group, plan.assigned).items(), revoked, strict=True
        )
    }


def in_words(told: Mapping[str, Told]) -> str:
    """Return what members are told in the documents' notation: "A(T1,revoked:T4) B(revoked:)"."""
    return " ".join(f"{member}({_words(*its)})" for member, its in told.items())


def _words(held: Indices, revoked: Indices | None) -> str:
    def listed(some: Indices) -> str:
        return ",".join(f"{name}{index}" for name, indices in some.items() for index in indices)

    stops = [] if revoked is None else [f"revoked:{listed(revoked)}"]
    return ",".join([*filter(None, [listed(held)]), *stops])
