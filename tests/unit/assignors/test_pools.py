"""Pools: resources grouped by their subscribers."""

from coopgroup.assignors.pools import subscriber_pools
from coopgroup.model import GroupSnapshot
from tests.support.groups import claim, group_of


def _pools(group: GroupSnapshot) -> list[tuple[list[str], list[str]]]:
    resources = [f"{name}-{index}" for name, index in group.resources]
    return [
        (
            [group.member_ids[number] for number in pool.subscribers.tolist()],
            [resources[number] for number in pool.resources.tolist()],
        )
        for pool in subscriber_pools(group)
    ]


def test_pools_when_subscriptions_differ_only_in_what_does_not_exist_are_one() -> None:
    group = group_of({"a": [0]}, claim("A", topics=["a", "x"]), claim("B", topics=["a", "y"]))
    assert _pools(group) == [(["A", "B"], ["a-0"])]


def test_pools_when_subscriptions_are_mixed_come_smallest_first() -> None:
    group = group_of(
        {"a": [0], "b": [0], "c": [0], "d": [0], "e": [0]},
        claim("A", topics=["a", "b", "c", "e"]),
        claim("B", topics=["a", "c", "e"]),
        claim("C", topics=["a", "d"]),
        claim("D", topics=[]),
    )
    assert _pools(group) == [
        (["A"], ["b-0"]),
        (["C"], ["d-0"]),
        (["A", "B"], ["c-0", "e-0"]),
        (["A", "B", "C"], ["a-0"]),
    ]
