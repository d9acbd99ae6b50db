"""Members that become standbys, take lost resources, or decline warm-ups."""

import pytest

from coopgroup.assignors import GroupMember, PlacementAssignor, ResourceToPlace, StickyAssignor
from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import DeferredPolicy, SimplePolicy, Warmup
from tests.support.warm_group import WarmGroup, partitions


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
    for name, expected in (("T", "ab"), ("U", "abc"), ("V", "ab")):
        members = group.members.items()
        standbys = {member for member, one in members if name in one.warmups.names}
        owners = {member for member, one in members if name in one.owned.names}
        assert (standbys | owners, standbys & owners) == (set(expected), set())


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


class Tagged(PlacementAssignor):
    """Every second resource needs a tag, and each member has the places that it told."""

    name = "tagged"

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
        return resource.index % 2 == 0 or "big" in member.traits["tags"]

    def places(self, member: GroupMember) -> int:
        return int(member.traits["places"])


def tagged_group(standbys: int = 1) -> WarmGroup:
    """Return a group whose member b fits resource 0 only, and whose member d has no places."""
    policy = SimplePolicy(warmup=Warmup(standbys=standbys, max_concurrent=9, per_member=9))
    group = WarmGroup(existing=partitions(0, 1), policy=policy, assignor=Tagged())
    for name, owned, tags, places in (
        ("a", (0, 1), ["big"], 9),
        ("b", (), [], 1),
        ("c", (), ["big"], 1),
        ("d", (), ["big"], 0),
    ):
        group.add(name, *owned, traits={"tags": tags, "places": places})
    return group


def test_standby_is_only_where_the_resource_fits() -> None:
    group = tagged_group(standbys=9)
    group.members["b"].warm = partitions(0, 1)
    group.members["d"].warm = partitions(0)
    group.settle()
    assert group.warmups() == {"b": [0], "c": [0, 1]}


def test_member_that_declines_a_start_is_no_standby() -> None:
    """It would not start the resource that it is warm for."""
    policy = SimplePolicy(warmup=Warmup(standbys=1))
    group = WarmGroup(existing=partitions(0), policy=policy, assignor=StickyAssignor())
    group.add("a", 0)
    group.add("b", warm=[0])
    group.add("c")
    group.round()
    assert group.warmups() == {"b": [0]}
    group.members["b"].declined = partitions(0)
    group.round()
    assert group.warmups() == {"c": [0]}


def test_free_resource_does_not_go_to_a_warm_member_that_declines_its_start() -> None:
    policy = SimplePolicy(warmup=Warmup(standbys=1))
    group = WarmGroup(existing=partitions(0), policy=policy, assignor=StickyAssignor())
    group.add("b", warm=[0]).declined = partitions(0)
    group.add("c")
    group.round()
    assert group.owned() == {"b": [], "c": [0]}


def test_declined_warm_up_does_not_forbid_the_start() -> None:
    policy = SimplePolicy(warmup=Warmup(standbys=1))
    group = WarmGroup(existing=partitions(0), policy=policy, assignor=StickyAssignor())
    group.add("b").declined_warmups = partitions(0)
    group.round()
    assert group.owned() == {"b": [0]}


# --- warm members take lost resources ------------------------------------------------------------


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
    state = group.round().state
    assert group.owned() == {"a": [0, 1, 2, 4, 5], "b": []}
    assert [loss.shared for loss in state.losses] == [True, True]
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


# --- warm-ups that members decline: another choice is made at once, without the time-out ----------


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


def test_declined_warm_up_is_exchanged_for_another_resource_of_the_owner() -> None:
    group = moving()
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
