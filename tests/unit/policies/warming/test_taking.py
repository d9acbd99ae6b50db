"""Warm members take lost resources: the shares of the owners that return later."""

from coopgroup.policies import DeferredPolicy, Warmup
from tests.support.warm_group import WarmGroup, partitions


def test_owners_that_return_when_a_warm_member_kept_a_part_of_their_losses_get_even_shares() -> (
    None
):
    """Regression: each got its rest back as if it were a share, and the others kept too much."""
    group = WarmGroup(existing=partitions(*range(9)), policy=DeferredPolicy(warmup=Warmup()))
    group.add("a", 0, 1, 2, warm=[4, 5])
    group.add("c", 3, 4, 5)
    group.add("d", 6, 7, 8)
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
        group.add(owner)
    for _ in range(5):
        group.settle()
        group.warms_up("c")
    assert list(map(len, group.owned().values())) == [3, 3, 3]
