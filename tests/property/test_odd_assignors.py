"""Moves end with any assignor, even if it answers at random on each call.

Until the group changes again, each resource is taken from each owner at most once. A stopped
resource goes to the member for which it was stopped. So the group comes to rest.
"""

import random
from collections import Counter

import attrs
import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.core.leader import RoundDecision
from coopgroup.core.model import NOBODY, GroupSnapshot, Resource
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy
from tests.property.test_declines import COUNT, NAMES, DecliningGroup, steps
from tests.support.warm_group import partitions

DELAY_MS = 1_000
ROUNDS_MAX = 2 * COUNT * len(NAMES) + 10
"""Each move takes two rounds at most."""

policies = st.one_of(
    st.builds(SimplePolicy),
    st.builds(DeferredPolicy, scheduled_rebalance_timeout_ms=st.sampled_from((0, DELAY_MS))),
    st.builds(
        IncrementalPolicy,
        scheduled_rebalance_timeout_ms=st.sampled_from((0, DELAY_MS)),
        max_moves_per_round=st.integers(1, 2),
        move_interval_ms=st.sampled_from((0, DELAY_MS // 2)),
    ),
)


@attrs.define
class Odd:
    """It forgets its last answer. With limits it knows who declines, as it must."""

    seed: int
    has_limits: bool
    name = "odd"
    needs_lags = False
    chance: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        for number, resource in enumerate(group.resources):
            able = [one for one in range(len(group.members)) if self.takes(group, one, resource)]
            if group.assignable[number]:
                target[number] = self.chance.choice(able or [0])
        return target

    def takes(self, group: GroupSnapshot, member: int, resource: Resource) -> bool:
        return not self.has_limits or resource not in group.members[member].declined


@attrs.define
class OddGroup(DecliningGroup):
    """It counts moves.

    Attributes:
        taken: by resource and owner, how often the owner had to stop it since the last change.
    """

    taken: Counter[tuple[int, str]] = attrs.field(factory=Counter)

    def obey(self, decision: RoundDecision) -> None:
        before = self.owned()
        super().obey(decision)
        for name, owned in self.owned().items():
            self.taken.update((number, name) for number in set(before[name]) - set(owned))

    def come_to_rest(self) -> None:
        self.taken.clear()
        for _ in range(ROUNDS_MAX):
            # A member gives up by itself what it declines.
            for name, declined in self.declined.items():
                self.members[name].owned -= declined
            decision = self.round(after_ms=DELAY_MS + 1)
            refuses = any(self.members[one].owned & some for one, some in self.declined.items())
            if not (decision.plan.follow_up or decision.plan.rejoin_in_ms or refuses):
                return
        raise AssertionError(self.taken)


@given(
    policy=policies,
    seed=st.integers(0, 1_000_000),
    has_limits=st.booleans(),
    story=st.lists(steps, min_size=1, max_size=8),
)
def test_group_with_an_odd_assignor_comes_to_rest(
    policy: Policy, seed: int, has_limits: bool, story: list[tuple[str, str]]
) -> None:
    group = OddGroup(
        existing=partitions(*range(COUNT)), policy=policy, assignor=Odd(seed, has_limits)
    )
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
                group.declined[name] = group.members[name].owned
            case "forget":
                group.declined.pop(name, None)
                if name in group.members:
                    group.members[name].declined = partitions()
            case _:
                continue
        group.come_to_rest()
        assert not [one for one, count in group.taken.items() if count > 1], group.taken
        for one, member in group.members.items():
            assert not member.owned & group.declined.get(one, partitions())
