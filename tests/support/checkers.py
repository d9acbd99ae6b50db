"""Rules for any target and any round, checked on plain Python values.

The checks call none of the code that they check. They turn arrays into sets and dicts first, and a
failing check shows the evidence. Unit, property and stateful tests share them.
"""

from collections import Counter

from coopgroup.core.model import GroupSnapshot, RoundPlan
from coopgroup.core.model.resource_set import Int32Array, Resource


def holders(group: GroupSnapshot, holder: Int32Array) -> dict[Resource, str]:
    """Return the holder of each resource that has a holder."""
    ids = group.member_ids
    return {
        resource: ids[number]
        for resource, number in zip(group.resources, holder.tolist(), strict=True)
        if number >= 0
    }


def topics_of(group: GroupSnapshot) -> dict[str, frozenset[str]]:
    return {
        member: frozenset(group.subscriptions[number])
        for member, number in zip(group.member_ids, group.class_of.tolist(), strict=True)
    }


def subscribers_of(group: GroupSnapshot) -> dict[Resource, tuple[str, ...]]:
    """Return the possible holders of each assignable, subscribed resource."""
    topics = topics_of(group)
    found = {
        resource: tuple(member for member in group.member_ids if resource.name in topics[member])
        for resource, assignable in zip(group.resources, group.assignable.tolist(), strict=True)
        if assignable
    }
    return {resource: members for resource, members in found.items() if members}


def claims_of(group: GroupSnapshot) -> dict[Resource, set[str]]:
    """Return the members that claim each resource, rightfully or not."""
    resources = tuple(group.resources)
    claims: dict[Resource, set[str]] = {}
    for member, place in zip(
        group.claim_members.tolist(), group.claim_resources.tolist(), strict=True
    ):
        claims.setdefault(resources[place], set()).add(group.member_ids[member])
    return claims


def load_of(group: GroupSnapshot, holder: Int32Array) -> dict[str, int]:
    counts = Counter(holders(group, holder).values())
    return {member: counts[member] for member in group.member_ids}


def check_each_resource_once(group: GroupSnapshot, target: Int32Array) -> None:
    """Subscribed, assignable resources have one subscribed holder; others have none."""
    held = holders(group, target)
    subscribers = subscribers_of(group)
    assert set(held) == set(subscribers)
    strangers = {r: m for r, m in held.items() if m not in subscribers[r]}
    assert strangers == {}


def unfair_holders(group: GroupSnapshot, target: Int32Array) -> dict[Resource, tuple[str, str]]:
    """Return (holder, other) pairs of a resource that the other, with two fewer, could take."""
    loads = load_of(group, target)
    subscribers = subscribers_of(group)
    return {
        resource: (member, other)
        for resource, member in holders(group, target).items()
        for other in subscribers[resource]
        if loads[member] > loads[other] + 1
    }


def check_balanced(group: GroupSnapshot, target: Int32Array) -> None:
    """No member holds a resource that a subscriber with two fewer could take."""
    assert unfair_holders(group, target) == {}


def kept_count(group: GroupSnapshot, target: Int32Array) -> int:
    """Return how many resources stay with their rightful owner."""
    before = holders(group, group.owner)
    return sum(
        before.get(resource) == member for resource, member in holders(group, target).items()
    )


def kept_count_max(group: GroupSnapshot) -> int:
    """Return how many can stay in a balanced target, if all members subscribe to the same topics.

    The larger counts go to the members that own more.
    """
    subscribers = subscribers_of(group)
    members = next(iter(subscribers.values()), ())
    if not members:
        return 0
    before = holders(group, group.owner)
    owned = Counter(before[resource] for resource in subscribers if resource in before)
    quota, larger = divmod(len(subscribers), len(members))
    most_first = sorted((owned[member] for member in members), reverse=True)
    return sum(min(count, quota + (place < larger)) for place, count in enumerate(most_first))


def check_one_owner_in_force(group: GroupSnapshot, plan: RoundPlan) -> None:
    """No member gains a resource in this round that another member claims.

    A member may continue with its claims until its answer comes, so a claim and a grant to another
    member are two owners. A rightful owner that keeps its resource gains none.
    """
    claims = claims_of(group)
    rightful = holders(group, group.owner)
    shared = {
        resource: member
        for resource, member in holders(group, plan.assigned).items()
        if rightful.get(resource) != member and claims.get(resource, set()) - {member}
    }
    assert shared == {}


def check_nothing_dropped(group: GroupSnapshot, plan: RoundPlan) -> None:
    """Every subscribed, unassigned resource is listed as waiting or lost."""
    silent = {
        resource
        for resource, holder, waiting, lost in zip(
            group.resources,
            plan.assigned.tolist(),
            plan.waiting.tolist(),
            plan.lost.tolist(),
            strict=True,
        )
        if holder < 0 and not waiting and not lost
    }
    assert silent & set(subscribers_of(group)) == set()
