"""Range and round-robin on any group with racks and static members, against plain loops.

The loops below repeat Kafka's assignors of these names (kafka-clients 4.3.0), member by member and
partition by partition, without arrays.
"""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, RangeAssignor, RoundRobinAssignor
from coopgroup.core.model import MemberClaim, Resource, ResourceSet, resolve_claims
from tests.support.checkers import holders
from tests.support.groups import claim, no_lags, target_of

NAMES = ("T0", "T1", "T2")
RACKS = ("a", "b", "c")

Replicas = dict[str, dict[int, list[str]]]
Placed = dict[Resource, MemberClaim]


@st.composite
def racked_groups(draw: st.DrawFn) -> tuple[list[MemberClaim], Replicas]:
    """Draw members, some static, some in racks; topics of few sizes, so that some are cut alike."""
    sizes = [draw(st.sampled_from((0, 1, 3, 5, 5))) for _ in NAMES]
    replicas = {
        name: {index: draw(st.lists(st.sampled_from(RACKS), unique=True)) for index in range(size)}
        for name, size in zip(NAMES, sizes, strict=True)
    }
    instances: list[str] = draw(st.permutations(["i1", "i2", "i3", "i4", "i5"]))
    mixed = st.sets(st.sampled_from(NAMES))
    topics = mixed if draw(st.booleans()) else st.just(set(NAMES))
    members = [
        claim(
            f"m{number}",
            topics=draw(topics),
            instance_id=instances.pop() if draw(st.booleans()) else None,
            rack=draw(st.sampled_from((*RACKS, "z", "", None))),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return members, replicas


def _in_order(members: Iterable[MemberClaim]) -> list[MemberClaim]:
    static = sorted((one.instance_id, one.member_id) for one in members if one.instance_id)
    order = [member_id for _, member_id in static]
    order += sorted(one.member_id for one in members if not one.instance_id)
    return sorted(members, key=lambda one: order.index(one.member_id))


class _Counts:
    """How many partitions of a topic each member may still take."""

    def __init__(self, partitions: int, members: list[MemberClaim]) -> None:
        self.quota, self.extras = divmod(partitions, len(members))
        self.held = {member.member_id: 0 for member in members}

    def room(self, member: MemberClaim) -> int:
        return max(0, self.quota + (self.extras > 0) - self.held[member.member_id])

    def take(self, member: MemberClaim, count: int) -> None:
        self.held[member.member_id] += count
        self.extras -= self.held[member.member_id] > self.quota


class _RangeReference:
    """Kafka's range assignment, one partition at a time."""

    def __init__(self, members: list[MemberClaim], replicas: Replicas) -> None:
        takers = {
            name: [one for one in _in_order(members) if name in one.topics]
            for name in NAMES
            if replicas[name]
        }
        self.takers = {name: those for name, those in takers.items() if those}
        self.replicas = replicas
        self.counts = {
            name: _Counts(len(replicas[name]), those) for name, those in self.takers.items()
        }
        self.placed: Placed = {}

    def placement(self) -> Placed:
        if any(self.needs_racks(name) for name in self.takers):
            for name in self.takers:
                alike = self.cut_alike(name)
                if alike == [name] and self.needs_racks(name):
                    self.cut(name, self.suits)
                if len(alike) > 1 and alike[0] == name:
                    self.match(alike)
        for name in self.takers:
            self.cut(name, lambda *_: True)
        return self.placed

    def needs_racks(self, name: str) -> bool:
        each = [frozenset(racks) for racks in self.replicas[name].values()]
        everywhere = frozenset().union(*each)
        racks = {one.rack for one in self.takers[name] if one.rack}
        return bool(racks & everywhere) and any(one != everywhere for one in each)

    def cut_alike(self, name: str) -> list[str]:
        return [
            other
            for other in self.takers
            if self.takers[other] == self.takers[name]
            and len(self.replicas[other]) == len(self.replicas[name])
        ]

    def suits(self, member: MemberClaim, name: str, index: int) -> bool:
        return not member.rack or member.rack in self.replicas[name][index]

    def cut(self, name: str, may: Callable[[MemberClaim, str, int], bool]) -> None:
        for member in self.takers[name]:
            free = [i for i in self.replicas[name] if Resource(name, i) not in self.placed]
            some = [index for index in free if may(member, name, index)]
            some = some[: self.counts[name].room(member)]
            self.placed.update({Resource(name, index): member for index in some})
            if some:
                self.counts[name].take(member, len(some))

    def match(self, alike: list[str]) -> None:
        first = alike[0]
        for index in self.replicas[first]:
            for member in self.takers[first]:
                in_rack = all(self.suits(member, name, index) for name in alike)
                if in_rack and self.counts[first].room(member):
                    for name in alike:
                        self.placed[Resource(name, index)] = member
                        self.counts[name].take(member, 1)
                    break


def _round_robin_reference(members: list[MemberClaim], replicas: Replicas) -> Placed:
    circle = _in_order(members)
    placed: Placed = {}
    turn = 0
    for name in NAMES:
        for index in replicas[name]:
            if not any(name in member.topics for member in members):
                continue
            while name not in circle[turn % len(circle)].topics:
                turn += 1
            placed[Resource(name, index)] = circle[turn % len(circle)]
            turn += 1
    return placed


def _range_reference(members: list[MemberClaim], replicas: Replicas) -> Placed:
    return _RangeReference(members, replicas).placement()


@pytest.mark.parametrize(
    ("assignor", "reference"),
    [(RangeAssignor(), _range_reference), (RoundRobinAssignor(), _round_robin_reference)],
)
@given(drawn=racked_groups())
def test_target_when_group_is_anything_equals_that_of_the_plain_loop(
    assignor: Assignor,
    reference: Callable[[list[MemberClaim], Replicas], Placed],
    drawn: tuple[list[MemberClaim], Replicas],
) -> None:
    members, replicas = drawn
    group = resolve_claims(members, ResourceSet(replicas), replicas)
    target = holders(group, target_of(assignor, group, no_lags(group)))
    assert target == {one: member.member_id for one, member in reference(*drawn).items()}
