"""A group whose members have few places comes to rest, and is full where it can be.

The leader leaves out resources for which no member has room. All others have one owner, under every
policy, with and without warm-ups, and a resource gets an owner as soon as a member has room.
"""

from attrs import frozen
from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.assignors import NOBODY, GroupSnapshot, Int64Array, Placement
from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy, Warmup
from coopgroup.telemetry import WithoutRoom
from tests.support.warm_group import WarmGroup

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
    st.tuples(st.just("join"), st.sampled_from("abcd")),
    st.tuples(st.just("leave"), st.sampled_from("abcd")),
    st.tuples(st.just("count"), st.integers(0, 9)),
)


@frozen(kw_only=True)
class PlacesAssignor:
    """Each member has some places; owners keep theirs, and the rest goes to the emptiest member."""

    places: int

    name = "places"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Placement:
        target = group.owner.copy()
        loads = [0] * len(group.members)
        left: list[int] = []
        for number in range(len(group.resources)):
            owner = int(target[number])
            target[number] = NOBODY
            if not group.assignable[number]:
                continue
            if owner != NOBODY and loads[owner] < self.places:
                target[number], loads[owner] = owner, loads[owner] + 1
            else:
                left.append(number)
        no_room = {}
        names = list(group.resources)
        for number in left:
            emptiest = min(range(len(loads)), key=loads.__getitem__)
            if loads[emptiest] < self.places:
                target[number], loads[emptiest] = emptiest, loads[emptiest] + 1
            else:
                no_room[names[number]] = f"all {self.places} places are taken"
        return Placement(target=target, no_room=no_room)


def come_to_rest(group: WarmGroup) -> None:
    before = None
    for number in range(ROUNDS_MAX):
        decision = group.round(after_ms=DELAY_MS + 1)
        for name, member in group.members.items():
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
    places=st.integers(0, 3),
    takes_part=st.booleans(),
    story=st.lists(steps, min_size=1, max_size=6),
)
def test_group_without_room_for_all_is_full_and_comes_to_rest(
    policy: Policy, places: int, takes_part: bool, story: list[tuple[str, object]]
) -> None:
    group = WarmGroup(policy=policy, assignor=PlacesAssignor(places=places))
    group.add("a", warm=() if takes_part else None)
    for step in story:
        note(f"{step} {group.members}")
        match step:
            case ("join", str() as name) if name not in group.members:
                group.add(name, warm=() if takes_part else None)
            case ("leave", str() as name) if len(group.members) > 1:
                group.members.pop(name, None)
            case ("count", int() as count):
                group.existing = ResourceSet({"T": range(count)})
            case _:
                pass
        come_to_rest(group)
        owned = [len(one.owned) for one in group.members.values()]
        assert max(owned) <= places
        assert sum(owned) == min(len(group.existing), places * len(owned))
        assert group.decision is not None
        told = [one for one in group.decision.records if isinstance(one, WithoutRoom)]
        assert sum(len(one.resources) for one in told) == len(group.existing) - sum(owned)
