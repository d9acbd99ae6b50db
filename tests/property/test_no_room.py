"""A group whose members have few places and different tags comes to rest, and is full.

The leader leaves out resources for which no member has room. All others have one owner, under every
policy, with and without warm-ups, and a resource gets an owner as soon as a member has room. No
member ever runs more than it has places for, or a resource without its tag.
"""

from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, GroupMember, PlacementAssignor, ResourceToPlace
from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy, Warmup
from coopgroup.telemetry import WithoutRoom
from tests.support.warm_group import WarmGroup, WarmMember

ROUNDS_MAX = 40
DELAY_MS = 1_000

warmups = st.none() | st.builds(Warmup, standbys=st.integers(0, 1))
policies = st.one_of(
    st.builds(SimplePolicy, warmup=warmups),
    st.builds(DeferredPolicy, warmup=warmups, scheduled_rebalance_timeout_ms=st.just(DELAY_MS)),
    st.builds(
        IncrementalPolicy,
        warmup=warmups,
        scheduled_rebalance_timeout_ms=st.just(DELAY_MS),
        max_moves_per_round=st.integers(1, 2),
    ),
)
steps = st.one_of(
    st.tuples(
        st.just("join"), st.sampled_from("abcd"), st.integers(0, 3), st.sets(st.sampled_from("xy"))
    ),
    st.tuples(st.just("leave"), st.sampled_from("abcd")),
    st.tuples(st.just("count"), st.integers(0, 9)),
)


class Tagged(PlacementAssignor):
    """Members have places and tags; every third resource runs anywhere."""

    name = "tagged"

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
        return resource.index % 3 == 0 or "xy"[resource.index % 2] in member.traits["tags"]

    def places(self, member: GroupMember) -> int:
        return int(member.traits["places"])


class Lasting(Tagged):
    """The same without moves that only even out."""

    evens_out = False


def fits(index: int, member: WarmMember) -> bool:
    return Tagged().fits(
        GroupMember(member_id="", traits=member.traits), ResourceToPlace("T", index)
    )


def come_to_rest(group: WarmGroup) -> None:
    before = None
    for number in range(ROUNDS_MAX):
        running = {name: one.owned for name, one in group.members.items()}
        decision = group.round(after_ms=DELAY_MS + 1)
        for name, member in group.members.items():
            # Also while it stops something: a place is taken until its resource has stopped.
            assert len(running[name] | member.owned) <= member.traits["places"]
            assert all(fits(index, member) for _, index in member.owned)
            if member.warm is not None:
                group.warms_up(name)
        owned = [one.owned for one in group.members.values()]
        assert sum(map(len, owned)) == len(ResourceSet.union_all(owned))
        if owned == before and not decision.plan.follow_up and number > 3:
            return
        before = owned
    raise AssertionError(group.members)


@given(
    policy=policies,
    assignor=st.sampled_from([Tagged(), Lasting()]),
    places=st.integers(0, 3),
    takes_part=st.booleans(),
    story=st.lists(steps, min_size=1, max_size=6),
)
def test_group_without_room_for_all_is_full_and_comes_to_rest(
    policy: Policy,
    assignor: Assignor,
    places: int,
    takes_part: bool,
    story: list[tuple[object, ...]],
) -> None:
    group = WarmGroup(policy=policy, assignor=assignor)
    warm = () if takes_part else None
    group.add("a", warm=warm, traits={"places": places, "tags": ["x", "y"]})
    for step in story:
        note(f"{step} {group.members}")
        match step:
            case ("join", str() as name, int() as count, set() as tags):
                if name not in group.members:
                    traits = {"places": count, "tags": sorted(map(str, tags))}
                    group.add(name, warm=warm, traits=traits)
            case ("leave", str() as name) if len(group.members) > 1:
                group.members.pop(name, None)
            case ("count", int() as count):
                group.existing = ResourceSet({"T": range(count)})
            case _:
                pass
        come_to_rest(group)
        members = group.members.values()
        left = group.existing - ResourceSet.union_all([one.owned for one in members])
        for _, index in left:
            for member in members:
                full = len(member.owned) == member.traits["places"]
                assert full or not fits(index, member)
        assert group.decision is not None
        told = [one.resources for one in group.decision.records if isinstance(one, WithoutRoom)]
        assert ResourceSet.union_all(told) == left
