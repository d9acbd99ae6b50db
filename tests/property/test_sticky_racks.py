"""The sticky assignor on small groups, with and without racks, against all possible targets."""

import itertools

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopgroup.assignors import StickyAssignor
from coopgroup.core.assignors import quotas
from coopgroup.core.model import GroupSnapshot, ResourceSet, resolve_claims
from tests.support.checkers import check_each_resource_once
from tests.support.groups import claim, no_lags

RACKS = ("a", "b", "c")


@st.composite
def groups_of_racks(draw: st.DrawFn, *, racked: bool = True) -> GroupSnapshot:
    """Draw up to four members and seven partitions in up to three topics."""
    names = ("T0", "T1", "T2")[: draw(st.integers(1, 3))]
    count = draw(st.integers(1, 4))
    rack = st.sampled_from((*RACKS, "z", None)) if racked else st.none()
    replicas: dict[str, dict[int, list[str]]] = {name: {} for name in names}
    owned: list[dict[str, list[int]]] = [{} for _ in range(count)]
    for index in range(draw(st.integers(0, 7))):
        name = draw(st.sampled_from(names))
        replicas[name][index] = draw(st.lists(st.sampled_from(RACKS), max_size=2, unique=True))
        owner = draw(st.integers(-1, count - 1))
        if owner >= 0:
            owned[owner].setdefault(name, []).append(index)
    topics = st.just(names) | st.sets(st.sampled_from(names))
    members = [
        claim(f"m{number}", some, topics=draw(topics), rack=draw(rack))
        for number, some in enumerate(owned)
    ]
    return resolve_claims(members, ResourceSet(replicas), replicas if racked else None)


def _merits(group: GroupSnapshot, target: tuple[int, ...]) -> tuple[int, int, int]:
    """Return sum of squares, moves and mismatches: less is better."""
    loads = [target.count(member) for member in range(len(group.members))]
    kept = sum(a == b != -1 for a, b in zip(target, group.owner.tolist(), strict=True))
    mismatches = 0 if group.replica_racks is None else _mismatches(group, target)
    return sum(load**2 for load in loads), -kept, mismatches


def _mismatches(group: GroupSnapshot, target: tuple[int, ...]) -> int:
    table = group.replica_racks
    assert table is not None
    count = 0
    for resource, member in enumerate(target):
        rack = group.members[member].rack
        low, high = table.starts[resource : resource + 2]
        replicas = {table.racks[number] for number in table.numbers[low:high].tolist()}
        count += member != -1 and rack is not None and bool(replicas) and rack not in replicas
    return count


@settings(max_examples=100)
@given(groups_of_racks() | groups_of_racks(racked=False))
def test_target_when_all_are_tried_is_the_best(group: GroupSnapshot) -> None:
    """Balance, then moves, then racks: no target is better in this order."""
    takers = [
        [m for m, one in enumerate(group.class_of) if name in group.subscriptions[one]] or [-1]
        for name, _ in group.resources
    ]
    best = min(_merits(group, target) for target in itertools.product(*takers))
    target = StickyAssignor().assign(group, no_lags(group))
    assert _merits(group, tuple(target.tolist())) == best


@given(groups_of_racks())
def test_target_when_groups_are_too_large_for_the_best_is_valid(group: GroupSnapshot) -> None:
    """Balance and number of moves equal those without racks, and the target is at rest."""
    no_racks = attrs.evolve(group, replica_racks=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotas, "ARCS_MAX", 0)
        target, plain = (StickyAssignor().assign(one, no_lags(one)) for one in (group, no_racks))
    check_each_resource_once(group, target)
    merits, plain_merits = (_merits(no_racks, tuple(one.tolist())) for one in (target, plain))
    assert merits == plain_merits
