"""A move ends where it was to go, and no resource is taken from one owner again and again."""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from coopgroup.core.model import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.policies.memory import PairKind
from coopgroup.policies import DeferredPolicy
from tests.support.memory import resources_in
from tests.support.warm_group import WarmGroup, partitions


@attrs.define
class Scripted:
    """Its answers are given: the numbers of the members of all partitions."""

    answers: Iterator[Sequence[int]]
    has_limits: bool = False
    name = "scripted"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        return np.array(next(self.answers), dtype=np.int32)


def group_of(*answers: Sequence[int], members: str = "abc", has_limits: bool = False) -> WarmGroup:
    """Return a group whose first round follows the first answer."""
    group = WarmGroup(
        existing=partitions(0, 1),
        policy=DeferredPolicy(scheduled_rebalance_timeout_ms=1_000),
        assignor=Scripted(iter(answers), has_limits=has_limits),
    )
    for name in members:
        group.add(name, warm=None)
    group.round()
    return group


def joined(group: WarmGroup) -> None:
    """Let a member join, so that moves may begin."""
    group.add("z", warm=None)
    group.round()


def test_stopped_resource_goes_to_the_member_for_which_it_was_stopped() -> None:
    group = group_of([0, 1], [2, 1], [1, 1], [2, 1])
    joined(group)
    assert group.owned() == {"a": [], "b": [1], "c": [], "z": []}
    group.round()
    assert group.owned() == {"a": [], "b": [1], "c": [0], "z": []}


def test_stopped_resource_goes_elsewhere_if_a_member_joined_since() -> None:
    group = group_of([0, 1], [2, 1], [3, 1])
    joined(group)
    group.add("y", warm=None)
    group.round()
    assert group.owned()["y"] == [0]


def test_stopped_resource_goes_elsewhere_if_its_receiver_declines_it() -> None:
    group = group_of([0, 1], [2, 1], [1, 1])
    joined(group)
    group.members["c"].declined = partitions(0)
    group.round()
    assert group.owned()["b"] == [0, 1]


def test_stopped_resource_goes_where_an_assignor_with_limits_has_a_place() -> None:
    group = group_of([0, 1], [2, 1], [1, 1], has_limits=True)
    joined(group)
    group.round()
    assert group.owned()["b"] == [0, 1]


def test_owner_keeps_what_its_receiver_declines() -> None:
    group = group_of([0, 1], [2, 1], [2, 1])
    group.members["c"].declined = partitions(0)
    joined(group)
    assert group.decision is not None
    assert not group.decision.plan.follow_up
    assert not group.decision.state.moves_pending
    assert group.owned()["a"] == [0]


def test_resource_is_taken_once_from_each_owner() -> None:
    """Each answer contradicts the one before, so the target is never reached."""
    here, there = [0, 1], [1, 1]
    group = group_of(here, there, here, here, there, there, there)
    group.add("z", warm=None)
    taken = []
    for _ in range(6):
        before = group.owned()
        group.round()
        taken += [name for name, owned in before.items() if set(owned) - set(group.owned()[name])]
    assert taken == ["a", "b"]
    assert group.decision is not None
    assert not group.decision.plan.follow_up


def test_resource_may_be_taken_again_after_a_member_joined_or_left() -> None:
    """Otherwise shares could stay uneven: a receiver left, and the owner got the resource back."""
    group = group_of([0, 1], [2, 1], [0, 1], [1, 1], [1, 1])
    joined(group)
    assert group.state is not None
    assert resources_in(group.state, PairKind.TAKEN) == partitions(0)
    del group.members["c"]
    group.round()
    assert group.owned()["a"] == [0]
    group.add("y", warm=None)
    group.round()
    assert group.owned()["a"] == []


def test_resource_is_not_taken_if_the_leader_missed_its_own_round() -> None:
    group = group_of([0, 1], [2, 1], [2, 1], [2, 1])
    group.add("z", warm=None)
    group.deaf = {"a"}
    group.round()
    assert group.owned()["a"] == [0]
    group.round()
    assert group.owned()["a"] == []
    group.round()
    assert group.owned()["c"] == [0]


def test_pairs_are_forgotten_when_the_target_is_reached() -> None:
    group = group_of([0, 1], [2, 1], [2, 1])
    joined(group)
    group.round()
    assert group.state is not None
    assert not resources_in(group.state, PairKind.TAKEN)
    assert not group.state.moves_pending
