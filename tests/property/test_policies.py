"""The simple policy on any group: every round is safe, and rounds end."""

from hypothesis import given
from hypothesis import strategies as st

from coopgroup.assignors import StickyAssignor
from coopgroup.model import GroupSnapshot, MemberClaim, ResourceSet, RoundPlan, resolve_claims
from coopgroup.policies import PolicyState, RoundContext, SimplePolicy, check_target, violations
from coopgroup.policies.state import state_from_json, state_to_json
from tests.support.checkers import (
    check_nothing_dropped,
    check_one_owner_in_force,
    holders,
    subscribers_of,
)
from tests.support.groups import no_lags, unreadable
from tests.support.strategies import claims, indices_by_name, mixed_groups, mixed_topics

ROUNDS_MAX = 3


def _lead(
    group: GroupSnapshot, state: PolicyState | None, generation: int
) -> tuple[RoundPlan, PolicyState]:
    """Return one round as the leader runs it, each result checked twice."""
    context = RoundContext(leader_id="m0", generation=generation, now_ms=0, state=state)
    target = StickyAssignor().assign(group, no_lags(group))
    check_target(group, target)
    staged = SimplePolicy().stage(group, target, context, SimplePolicy().offer(group, context))
    assert violations(group, staged.plan) == ()
    check_one_owner_in_force(group, staged.plan)
    check_nothing_dropped(group, staged.plan)
    assert staged.state is not None
    return staged.plan, state_from_json(state_to_json(staged.state)) or staged.state


def _obeyed(group: GroupSnapshot, plan: RoundPlan, generation: int) -> GroupSnapshot:
    """Return the group in the next round, after all members have obeyed."""
    members = [
        MemberClaim(
            member_id=member.member_id,
            topics=group.subscriptions[number],
            owned=held,
            generation=generation,
            readable=member.readable,
        )
        for member, number, held in zip(
            group.members, group.class_of.tolist(), group.by_member(plan.assigned), strict=True
        )
    ]
    return resolve_claims(members, group.resources.take(group.assignable))


@given(members=claims(mixed_topics), existing=indices_by_name, unreadable_count=st.integers(0, 2))
def test_rounds_when_everybody_obeys_end_with_everything_assigned(
    members: list[MemberClaim], existing: dict[str, list[int]], unreadable_count: int
) -> None:
    """At most three rounds, each safe; the last one assigns all, and no other round follows."""
    strangers = [unreadable(f"x{number}") for number in range(unreadable_count)]
    group = resolve_claims([*members, *strangers], ResourceSet(existing))
    plan, state = _lead(group, None, 4)
    for generation in range(5, 4 + ROUNDS_MAX):
        if plan.follow_up:
            group = _obeyed(group, plan, generation)
            plan, state = _lead(group, state, generation)
    assert plan.follow_up is False
    assert set(holders(group, plan.assigned)) == set(subscribers_of(group))


@given(mixed_groups())
def test_retained_resources_when_others_move_stay_with_their_owner(group: GroupSnapshot) -> None:
    """A rightful owner that is also the target keeps the resource in any case."""
    target = StickyAssignor().assign(group, no_lags(group))
    plan, _ = _lead(group, None, 1)
    owners = holders(group, group.owner)
    retained = {r: m for r, m in holders(group, target).items() if owners.get(r) == m}
    assert retained.items() <= holders(group, plan.assigned).items()
