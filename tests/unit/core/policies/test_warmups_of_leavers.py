"""Members that hand over work until their next owners are warm."""

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy, Warmup
from tests.support.warm_group import WarmGroup, partitions

POLICIES = [
    SimplePolicy(warmup=Warmup(per_member=9)),
    DeferredPolicy(warmup=Warmup(per_member=9)),
    IncrementalPolicy(warmup=Warmup(per_member=9), max_moves_per_round=2, move_interval_ms=0),
]


BOTH = ("T", "U")


def both_of(*indices: int) -> ResourceSet:
    return ResourceSet(dict.fromkeys(BOTH, indices))


def settled(policy: Policy) -> WarmGroup:
    group = WarmGroup(existing=partitions(*range(6)), policy=policy)
    for number, member in enumerate("abc"):
        group.add(member, *range(number, 6, 3))
    group.settle()
    assert group.owned() == {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    return group


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_leaving_member_works_until_its_next_owners_are_warm(
    policy: Policy, *, forgets: bool
) -> None:
    group = settled(policy)
    group.hands_over("c")
    if forgets:
        group.state = None
    decision = group.round()
    assert group.owned()["c"] == [2, 5]
    assert not decision.plan.follow_up
    assert {member: len(warmups) for member, warmups in group.warmups().items()} == {"a": 1, "b": 1}
    (index,) = group.warmups()["a"]
    group.warms_up("a")
    group.settle()
    assert group.owned()["a"] == sorted([0, 3, index])
    assert len(group.owned()["c"]) == 1
    group.warms_up("b")
    group.settle()
    assert group.owned()["c"] == []
    del group.members["c"]
    group.settle()
    assert sorted(map(len, group.owned().values())) == [3, 3]


@pytest.mark.parametrize("declines", [False, True])
def test_leaving_member_does_not_wait_for_ever(*, declines: bool) -> None:
    group = settled(SimplePolicy(warmup=Warmup(timeout_ms=100, per_member=9)))
    group.hands_over("c")
    group.round()
    for member in "ab" if declines else "":
        group.declines(member, *range(6))
    group.round(after_ms=1 if declines else 100)
    group.settle()
    assert group.owned()["c"] == []


def test_bundles_of_a_leaving_member_move_as_a_whole() -> None:
    existing = both_of(0, 1)
    group = WarmGroup(existing=existing, policy=SimplePolicy(warmup=Warmup(co_partition=[BOTH])))
    group.add("a", topics=BOTH).owned = both_of(0)
    group.add("b", topics=BOTH).owned = both_of(1)
    group.settle()
    group.hands_over("b")
    group.round()
    assert group.members["b"].owned == both_of(1)
    group.members["a"].warm = ResourceSet({"T": [1]})
    group.settle()
    assert len(group.members["b"].owned) == 2
    group.members["a"].warm = both_of(1)
    group.settle()
    assert group.members["a"].owned == existing


def test_ready_resources_of_a_leaving_member_are_not_rationed() -> None:
    """The ration spares owners that could keep; this one cannot."""
    policy = IncrementalPolicy(warmup=Warmup(per_member=9), max_moves_per_round=1)
    group = WarmGroup(existing=partitions(*range(8)), policy=policy)
    group.add("a", 0, 2)
    group.add("b", 1, 3)
    group.add("c", 4, 5, 6, 7)
    group.settle()
    group.hands_over("c")
    group.round()
    assert group.warmups() == {"a": [5, 7], "b": [4, 6]}
    group.warms_up("a")
    group.round()
    assert group.owned()["c"] == [4, 6]
    group.settle()
    assert group.owned() == {"a": [0, 2, 5, 7], "b": [1, 3], "c": [4, 6]}
