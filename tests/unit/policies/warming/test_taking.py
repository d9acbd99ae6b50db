"""Warm members take lost resources: the shares of the owners that return later."""

import pytest

from coopgroup.policies import DeferredPolicy, SimplePolicy, Warmup
from tests.support.warm_group import WarmGroup, partitions


@pytest.mark.parametrize("static", [True, False])
def test_owners_that_return_when_others_kept_a_part_of_their_losses_get_even_shares(
    static: bool,
) -> None:
    """Regression: each got its rest back as if it were a share, and the others kept too much."""
    group = WarmGroup(existing=partitions(*range(9)), policy=DeferredPolicy(warmup=Warmup()))
    group.add("a", 0, 1, 2, warm=[4, 5])
    group.add("c", 3, 4, 5, instance_id="pod-c" if static else None)
    group.add("d", 6, 7, 8, instance_id="pod-d" if static else None)
    group.round()
    for owner in "cd":
        del group.members[owner]
    group.add("b", warm=[3, 6, 7, 8])
    group.deaf = {"b"}
    group.round()
    assert group.owned() == {"a": [0, 1, 2, 4, 5], "b": []}
    assert group.state is not None
    assert [loss.shared for loss in group.state.losses] == [True, True]
    del group.members["b"]
    for owner in "cd":
        group.add(f"{owner}2", instance_id=f"pod-{owner}" if static else None)
    for _ in range(5):
        group.settle()
        for owner in "cd":
            group.warms_up(f"{owner}2")
    assert list(map(len, group.owned().values())) == [3, 3, 3]


def test_resource_whose_next_owner_leaves_meanwhile_goes_to_a_warm_member() -> None:
    """Regression: its last owner was warm for it, and it went to a cold member."""
    policy = SimplePolicy(warmup=Warmup(standbys=1))
    group = WarmGroup(existing=partitions(*range(3)), policy=policy)
    a = group.add("a", 0, 1, 2)
    group.round()
    for newcomer in "bc":
        group.add(newcomer)
    group.round()
    group.warms_up("c")
    group.round()
    (moving,) = (partitions(0, 1, 2) - a.owned).to_dict()["T"]
    a.warm = partitions(moving)
    group.hands_over("c")
    group.round()
    assert moving in group.owned()["a"]
