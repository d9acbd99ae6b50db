"""Which members become standbys, where slots and subscriptions are few."""

import pytest

from coopgroup.model import ResourceSet
from coopgroup.policies import SimplePolicy, Warmup
from tests.support.warm_group import WarmGroup, partitions


def test_new_standbys_end_with_the_slots_of_the_group() -> None:
    policy = SimplePolicy(warmup=Warmup(standbys=1, max_concurrent=1))
    group = WarmGroup(existing=partitions(*range(4)), policy=policy)
    group.add("a", 0, 2)
    group.add("b", 1, 3)
    group.round()
    assert group.warmups() == {"b": [0]}
    group.warms_up("b")
    group.round()
    assert group.warmups() == {"a": [1], "b": [0]}


def test_standbys_subscribe_to_the_resource() -> None:
    policy = SimplePolicy(warmup=Warmup(standbys=2))
    group = WarmGroup(existing=ResourceSet({"T": [0], "U": [0], "V": [0]}), policy=policy)
    group.add("a", 0, topics=("T", "U", "V"))
    group.add("b", topics=("T", "U", "V"))
    group.add("c", topics=("U",))
    for _ in range(5):
        group.settle()
        for member in "abc":
            group.warms_up(member)
    standbys = {
        name: {member for member, one in group.members.items() if name in one.warmups.names}
        for name in "TUV"
    }
    owners = {
        name: {member for member, one in group.members.items() if name in one.owned.names}
        for name in "TUV"
    }
    assert {name: standbys[name] | owners[name] for name in "TUV"} == {
        "T": {"a", "b"},
        "U": {"a", "b", "c"},
        "V": {"a", "b"},
    }
    assert all(standbys[name].isdisjoint(owners[name]) for name in "TUV")


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
def test_warm_ups_of_deleted_resources_end(*, is_warm: bool, forgets: bool) -> None:
    """Such a round was refused while an owner still claimed the resource."""
    policy = SimplePolicy(warmup=Warmup(standbys=1, per_member=4))
    group = WarmGroup(existing=partitions(*range(4)), policy=policy)
    group.add("a", *range(4))
    group.add("b")
    group.round()
    assert len(group.warmups()["b"]) == 4
    if is_warm:
        group.warms_up("b")
    if forgets:
        group.state = None
    group.existing = partitions(0)
    decision = group.round()
    assert set(group.warmups().get("b", [])) <= {0}
    assert decision.group.claimed().sum() == 4


@pytest.mark.parametrize(
    "places",
    [
        {"a": ("r1", None), "b": ("r1", None), "c": ("r2", None)},
        {"a": ("r1", "h1"), "b": ("r1", "h1"), "c": ("r1", "h2")},
        {"a": (None, "h1"), "b": (None, "h1"), "c": (None, "h2")},
    ],
    ids=["racks", "hosts within a rack", "hosts without racks"],
)
def test_standbys_are_elsewhere_first_and_even(
    places: dict[str, tuple[str | None, str | None]],
) -> None:
    policy = SimplePolicy(warmup=Warmup(standbys=1, max_concurrent=9, per_member=9))
    group = WarmGroup(existing=partitions(*range(6)), policy=policy)
    for number, (member, (rack, host)) in enumerate(places.items()):
        group.add(member, *range(number, 6, 3), rack=rack).host = host
    group.round()
    assert group.warmups() == {"a": [2], "b": [5], "c": [0, 1, 3, 4]}


def test_another_rack_counts_more_than_another_host() -> None:
    group = WarmGroup(existing=partitions(0), policy=SimplePolicy(warmup=Warmup(standbys=1)))
    for member, rack, host in (("a", "r1", "h1"), ("b", "r1", "h2"), ("c", "r2", "h1")):
        one = group.add(member, *([0] if member == "a" else []), rack=rack)
        one.host = host
    group.round()
    assert group.warmups() == {"c": [0]}


def test_declined_standby_is_given_to_another_member_at_once() -> None:
    group = WarmGroup(existing=partitions(0), policy=SimplePolicy(warmup=Warmup(standbys=1)))
    group.add("a", 0)
    for member in "bc":
        group.add(member)
    group.round()
    assert group.warmups() == {"b": [0]}
    group.declines("b", 0)
    group.round()
    assert group.warmups() == {"c": [0]}
    group.round()
    assert group.warmups() == {"c": [0]}, "the refusal is remembered"
