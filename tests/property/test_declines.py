"""A declined resource goes to a member that does not decline it, under every policy.

Each round is read, decided and written as a leader of named resources does it. At rest, a resource
has exactly one owner, which does not decline it. If all members decline it, it has none, and it
gets one when a member has forgotten.
"""

import pytest
from attrs import define, field
from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.assignors import (
    GroupMember,
    PlacementAssignor,
    StickyAssignor,
    WeightedAssignor,
)
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import NO_LAGS, RoundDecision, lead
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.policies.policy import Policy
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.lookup import CatalogueLookup
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, RoundContext, SimplePolicy
from coopgroup.telemetry import WithoutRoom
from tests.property.test_no_room import DELAY_MS, policies
from tests.support.warm_group import WarmGroup, partitions

ROUNDS_MAX = 40
NAMES = "abcd"
COUNT = 5

steps = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(NAMES)),
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("decline"), st.sampled_from(NAMES)),
    st.tuples(st.just("forget"), st.sampled_from(NAMES)),
)


class OnePlace(PlacementAssignor):
    """Each member has one place."""

    def places(self, member: GroupMember) -> int:
        return 1


assignors = st.sampled_from([WeightedAssignor(), StickyAssignor(), PlacementAssignor(), OnePlace()])


@define
class DecliningGroup(WarmGroup):
    """A group of named resources.

    Attributes:
        declined: by member, what its application declines to start.
    """

    declined: dict[str, ResourceSet] = field(factory=dict)

    def decide(self, members: object = None) -> RoundDecision:
        assert self.leader is not None
        for name, member in self.members.items():
            member.declined |= self.declined.get(name, EMPTY)
        joined = [
            JoinedMember(member_id=name, group_instance_id=None, metadata=self._subscription(one))
            for name, one in self.members.items()
        ]
        lookup = CatalogueLookup(
            source=lambda _: Catalogue.of(self.existing),
            timeout_ms=0,
            warn=lambda *_, **__: None,
        )
        request = lookup.read(joined)
        return lead(
            request,
            lookup.metadata(request.topics),
            NO_LAGS,
            assignor=self.assignor,
            policy=self.policy,
            context=RoundContext(
                leader_id=self.leader,
                generation=self.completed,
                now_ms=self.now_ms,
                state=self.state,
            ),
        )

    def come_to_rest(self) -> None:
        before = None
        for number in range(ROUNDS_MAX):
            decision = self.round(after_ms=DELAY_MS + 1)
            owned = [one.owned for one in self.members.values()]
            assert sum(map(len, owned)) == len(ResourceSet.union_all(owned))
            if owned == before and not decision.plan.follow_up and number > 3:
                return
            before = owned
        raise AssertionError(self.members)


@given(
    policy=policies,
    assignor=assignors,
    story=st.lists(steps, min_size=1, max_size=8),
    which=st.integers(0, COUNT - 1),
)
def test_declined_resource_goes_to_a_member_that_does_not_decline_it(
    policy: Policy, assignor: Assignor, story: list[tuple[str, str]], which: int
) -> None:
    group = DecliningGroup(existing=partitions(*range(COUNT)), policy=policy, assignor=assignor)
    group.add("a", warm=None)
    group.come_to_rest()
    for action, name in story:
        note(f"{action} {name} {group.members} {group.declined}")
        match action:
            case "join" if name not in group.members:
                group.add(name, warm=None)
            case "leave" if len(group.members) > 1:
                group.members.pop(name, None)
                group.declined.pop(name, None)
            case "decline" if name in group.members and group.members[name].owned:
                owned = list(group.members[name].owned)
                more = ResourceSet.from_pairs([owned[which % len(owned)]])
                group.declined[name] = group.declined.get(name, EMPTY) | more
            case "forget":
                group.declined.pop(name, None)
                if name in group.members:
                    group.members[name].declined = EMPTY
            case _:
                continue
        group.come_to_rest()
        check(group, is_full=not isinstance(assignor, OnePlace))


@pytest.mark.parametrize(
    "policy", [SimplePolicy(), DeferredPolicy(), IncrementalPolicy(max_moves_per_round=1)]
)
@pytest.mark.parametrize("assignor", [WeightedAssignor(), PlacementAssignor()])
def test_decline_at_rest_needs_no_other_change(policy: Policy, assignor: Assignor) -> None:
    """The waiting policies would keep a resource with its owner until a member comes or goes."""
    group = DecliningGroup(existing=partitions(*range(COUNT)), policy=policy, assignor=assignor)
    for name in ("a", "b"):
        group.add(name, warm=None)
        group.come_to_rest()
    before = group.owned()
    first = before["a"][0]
    group.declined["a"] = partitions(first)
    rounds = [group.round(), group.round()]
    assert [one.plan.follow_up for one in rounds] == [True, False]
    assert first in group.owned()["b"]
    assert set(before["b"]) < set(group.owned()["b"])


def check(group: DecliningGroup, *, is_full: bool) -> None:
    """Fail if a resource has the wrong owner, or none for no reason."""
    for resource in group.existing:
        owners = [name for name, one in group.members.items() if resource in one.owned]
        able = [one for one in group.members if resource not in group.declined.get(one, EMPTY)]
        assert set(owners) <= set(able), f"{resource} is with {owners}, only {able} take it"
        if is_full:
            assert bool(owners) == bool(able), f"{resource} has no owner, {able} take it"
    assert group.decision is not None
    told = [one for one in group.decision.records if isinstance(one, WithoutRoom)]
    held = sum(len(one.owned) for one in group.members.values())
    assert sum(len(one.resources) for one in told) == COUNT - held
