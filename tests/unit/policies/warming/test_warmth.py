"""Warm-ups that members decline: another choice is made at once, without the time-out."""

import pytest

from coopgroup.policies import SimplePolicy, Warmup
from coopgroup.policies.base import Policy
from tests.support.warm_group import WarmGroup, partitions


def moving(policy: Policy | None = None, **options: object) -> WarmGroup:
    """Return a group in which `b` is to get two of four partitions of `a`."""
    warmup = Warmup(**options)  # type: ignore[arg-type] # the validators check the types
    group = WarmGroup(existing=partitions(*range(4)), policy=policy or SimplePolicy(warmup=warmup))
    group.add("a", 0, 1, 2, 3)
    group.round()
    group.add("b")
    group.round()
    assert group.warmups() == {"b": [1, 3]}
    return group


@pytest.mark.parametrize("way", ["move", "cancel"])
def test_declined_warm_up_is_exchanged_for_another_resource_of_the_owner(way: str) -> None:
    group = moving(on_timeout=way)
    group.declines("b", 3)
    group.round()
    assert group.warmups() == {"b": [0, 1]}
    group.warms_up("b")
    group.settle()
    assert group.owned() == {"a": [2, 3], "b": [0, 1]}


@pytest.mark.parametrize("forgets", [False, True])
def test_member_that_declines_everything_gets_its_share_cold(*, forgets: bool) -> None:
    """Otherwise the group would stay uneven until the time-out, and nothing would run meanwhile."""
    group = moving(per_member=9)
    for number in range(5):
        group.declines("b", *range(4))
        if forgets and number == 1:
            group.state = None
        group.settle()
    assert sorted(map(len, group.owned().values())) == [2, 2]


def test_member_that_declines_everything_gets_nothing_if_the_option_says_cancel() -> None:
    group = moving(per_member=9, on_timeout="cancel")
    for _ in range(5):
        group.declines("b", *range(4))
        group.round()
    assert group.owned() == {"a": [0, 1, 2, 3], "b": []}
    assert group.warmups() == {}


def test_member_that_became_warm_for_what_it_declined_gets_it() -> None:
    group = moving()
    group.members["b"].warm = partitions(1, 3)
    group.members["b"].declined = partitions(1, 3)
    group.settle()
    assert group.owned() == {"a": [0, 2], "b": [1, 3]}
