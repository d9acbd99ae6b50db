"""Co-partitioned topics: partition i of each listed topic is one bundle."""

from typing import Any

import pytest

from coopgroup.core.model import ResourceSet, resolve_claims
from coopgroup.core.policies.bundles import Bundles, bundles_of
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import DeferredPolicy, SimplePolicy, Warmup
from tests.support.groups import claim, group_of
from tests.support.warm_group import WarmGroup

BOTH = ("orders", "payments")
TOGETHER = [("orders", "payments")]


def topics(orders: int, payments: int) -> ResourceSet:
    return ResourceSet({"orders": range(orders), "payments": range(payments)})


def both(*indices: int) -> ResourceSet:
    return ResourceSet(dict.fromkeys(BOTH, indices))


def simple(**options: Any) -> SimplePolicy:  # noqa: ANN401 - options of Warmup
    return SimplePolicy(warmup=Warmup(co_partition=TOGETHER, **options))


def bundles(
    existing: ResourceSet,
    owned: dict[str, ResourceSet],
    *,
    warm: ResourceSet | None = None,
    subscriptions: dict[str, tuple[str, ...]] | None = None,
) -> Bundles | None:
    topics_of = subscriptions or {}
    claims = [
        claim(name, one.to_dict(), topics=topics_of.get(name, BOTH), warm=warm)
        for name, one in owned.items()
    ]
    return bundles_of(resolve_claims(claims, existing), TOGETHER)


# --- the bundles of a group -----------------------------------------------------------------------


def test_partition_i_of_each_topic_is_one_bundle() -> None:
    found = bundles(topics(3, 3), {"a": both(0, 2), "b": both(1)})
    assert found is not None
    assert found.group.resources == ResourceSet({"orders": range(3)})
    assert found.group.owner.tolist() == [0, 1, 0]
    assert found.bundle_of.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.sizes.tolist() == [2, 2, 2]
    assert not found.are_split


@pytest.mark.parametrize("existing", [topics(3, 0), ResourceSet({"x": [0]}), ResourceSet()])
def test_topics_that_do_not_exist_make_no_bundles(existing: ResourceSet) -> None:
    assert bundles(existing, {"a": ResourceSet()}) is None


def test_topics_of_which_a_member_subscribes_to_one_have_no_bundles() -> None:
    owned = {"a": ResourceSet(), "b": ResourceSet()}
    assert bundles(topics(2, 2), owned, subscriptions={"b": ("orders",)}) is None
    assert bundles(topics(2, 2), owned, subscriptions={"b": ("other",)}) is not None


def test_bundle_belongs_to_the_owner_of_most_parts_and_a_tie_to_that_of_the_first() -> None:
    claims = claim("m", {"a": [0]}, topics="abc"), claim("n", {"b": [0], "c": [0]}, topics="abc")
    three = group_of({"a": [0], "b": [0], "c": [0]}, *claims)
    most = bundles_of(three, [tuple("abc")])
    assert most is not None
    assert most.group.owner.tolist() == [1]
    assert most.are_split
    tie = bundles_of(three, [("a", "b")])
    assert tie is not None
    assert tie.group.owner.tolist() == [0, 1]


def test_member_is_warm_for_a_bundle_if_no_part_is_cold() -> None:
    found = bundles(topics(2, 2), {"a": both(0, 1), "b": ResourceSet()}, warm=both(0))
    assert found is not None
    pairs = zip(found.group.warm_resources, found.group.warm_members, strict=True)
    assert [*pairs] == [(0, 1)]
    orders = ResourceSet({"orders": [0, 1]})
    cold = bundles(topics(2, 2), {"a": both(0, 1), "b": ResourceSet()}, warm=orders)
    assert cold is not None
    assert not cold.group.warm_members.size


# --- rounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [simple(), DeferredPolicy(warmup=Warmup(co_partition=TOGETHER))])
def test_bundle_warms_up_and_moves_as_a_whole(policy: Policy) -> None:
    group = WarmGroup(existing=topics(4, 4), policy=policy)
    group.add("a", topics=BOTH).owned = both(0, 1, 2, 3)
    group.round()
    group.add("b", topics=BOTH)
    group.settle()
    told = group.members["b"].warmups
    assert told == both(1, 3), "two bundles of two partitions each, as `per_member` says"
    group.members["b"].warm = ResourceSet({"orders": [1, 3], "payments": [3]})
    group.settle()
    assert group.members["b"].owned == both(3), "payments-1 is cold"
    group.members["b"].warm = told
    group.settle()
    assert group.members["b"].owned == both(1, 3)


def test_part_that_stops_late_holds_back_its_bundle() -> None:
    group = WarmGroup(existing=topics(2, 2), policy=simple())
    group.add("a", topics=BOTH, warm=None).owned = both(0, 1)
    group.round()
    group.add("b", topics=BOTH, warm=None)
    group.round()
    assert group.members["a"].owned == both(0)
    slow = ResourceSet({"payments": [1]})
    group.members["a"].owned |= slow
    decision = group.round()
    assert not group.members["b"].owned
    assert decision.plan.stopping is not None
    assert decision.plan.stopping.sum() == 1
    assert not decision.plan.follow_up, "only the slow member has to rejoin"
    group.round()
    assert group.members["b"].owned == both(1)


def test_bundle_has_the_racks_of_its_first_part() -> None:
    racks = {"orders": {0: ["r1"], 1: ["r2", "r3"]}, "payments": {1: ["r1"], 2: ["r3", "r1"]}}
    group = resolve_claims([claim("a", topics=BOTH)], topics(2, 3), racks)
    found = bundles_of(group, TOGETHER)
    assert found is not None
    kept = found.group.replica_racks
    assert kept is not None
    assert kept.racks == ("r1", "r2", "r3")
    assert kept.starts.tolist() == [0, 1, 3, 5]
    assert kept.numbers.tolist() == [0, 1, 2, 0, 2]


def test_bundles_end_while_a_member_subscribes_to_one_topic_only() -> None:
    group = WarmGroup(existing=topics(2, 2), policy=simple())
    group.add("a", topics=BOTH, warm=None).owned = both(0, 1)
    group.round()
    group.add("b", topics=("orders",), warm=None)
    group.settle()
    assert group.members["b"].owned == ResourceSet({"orders": [0, 1]})
    group.members["b"].topics = BOTH
    group.settle()
    assert {group.members[name].owned for name in "ab"} == {both(0), both(1)}
