"""What must hold of any target and any round, checked on plain Python values.

Rules of this file: nothing of what it checks is called here, arrays become sets and dicts first,
and a check that fails says what it saw. Unit, property and stateful tests share these.
"""

from collections import Counter

from coopgroup.model import GroupSnapshot, RoundPlan
from coopgroup.model.resource_set import Int32Array, Resource


def holders(group: GroupSnapshot, holder: Int32Array) -> dict[Resource, str]:
    """Who holds each resource that has a holder."""
    ids = group.member_ids
    return {
        resource: ids[number]
        for resource, number in zip(group.resources, holder.tolist(), strict=True)
        if number >= 0
    }


def topics_of(group: GroupSnapshot) -> dict[str, frozenset[str]]:
    """What each member subscribes to."""
    return {
        member: frozenset(group.subscriptions[number])
        for member, number in zip(group.member_ids, group.class_of.tolist(), strict=True)
    }


def subscribers_of(group: GroupSnapshot) -> dict[Resource, tuple[str, ...]]:
    """Who may hold each assignable resource that somebody subscribes to."""
    topics = topics_of(group)
    found = {
        resource: tuple(member for member in group.member_ids if resource.name in topics[member])
        for resource, assignable in zip(group.resources, group.assignable.tolist(), strict=True)
        if assignable
    }
    return {resource: members for resource, members in found.items() if members}


def claims_of(group: GroupSnapshot) -> dict[Resource, set[str]]:
    """Who claims each claimed resource, rightfully or not."""
    resources = tuple(group.resources)
    claims: dict[Resource, set[str]] = {}
    for member, place in zip(
        group.claim_members.tolist(), group.claim_resources.tolist(), strict=True
    ):
        claims.setdefault(resources[place], set()).add(group.member_ids[member])
    return claims


def load_of(group: GroupSnapshot, holder: Int32Array) -> dict[str, int]:
    """How many resources each member holds."""
    counts = Counter(holders(group, holder).values())
    return {member: counts[member] for member in group.member_ids}


def check_each_resource_once(group: GroupSnapshot, target: Int32Array) -> None:
    """Every subscribed, assignable resource has one holder that subscribes; no other has one."""
    held = holders(group, target)
    subscribers = subscribers_of(group)
    assert set(held) == set(subscribers)
    strangers = {r: m for r, m in held.items() if m not in subscribers[r]}
    assert strangers == {}


def unfair_holders(group: GroupSnapshot, target: Int32Array) -> dict[Resource, tuple[str, str]]:
    """Who holds a resource that a subscriber with two fewer could take, and who could."""
    loads = load_of(group, target)
    subscribers = subscribers_of(group)
    return {
        resource: (member, other)
        for resource, member in holders(group, target).items()
        for other in subscribers[resource]
        if loads[member] > loads[other] + 1
    }


def check_balanced(group: GroupSnapshot, target: Int32Array) -> None:
    """Nobody holds a resource that a subscriber with two fewer could take."""
    assert unfair_holders(group, target) == {}


def kept_count(group: GroupSnapshot, target: Int32Array) -> int:
    """How many resources stay with their rightful owner."""
    before = holders(group, group.owner)
    return sum(
        before.get(resource) == member for resource, member in holders(group, target).items()
    )


def kept_count_max(group: GroupSnapshot) -> int:
    """How many can stay at best in a balanced target, when everybody subscribes to the same.

    Of the counts that balance allows, the larger ones go to those that own more.
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
    """Who gains a resource in this round gains one that no other member claims.

    A member may go on with what it claims until it has its answer, so a claim and a grant to
    another are two owners. The rightful owner that keeps it gains nothing.
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
    """What is subscribed and not assigned is said to wait or to be lost."""
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
