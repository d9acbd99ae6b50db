"""The sticky assignor on small groups with racks, against all possible targets."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopgroup.assignors import StickyAssignor, quotas
from coopgroup.model import GroupSnapshot, MemberClaim, ResourceSet, resolve_claims
from tests.support.checkers import check_each_resource_once
from tests.support.groups import no_lags

RACKS = ("a", "b", "c")


@st.composite
def racked_groups(draw: st.DrawFn) -> GroupSnapshot:
    """Draw up to four members and seven partitions in one or two topics."""
    names = ("T0", "T1")[: draw(st.integers(1, 2))]
    count = draw(st.integers(1, 4))
    replicas = {
        name: {
            index: draw(st.lists(st.sampled_from(RACKS), max_size=2, unique=True))
            for index in range(draw(st.integers(0, 4 if name == "T0" else 3)))
        }
        for name in names
    }
    owned: list[dict[str, list[int]]] = [{} for _ in range(count)]
    for name, indices in replicas.items():
        for index in indices:
            owner = draw(st.integers(-1, count - 1))
            if owner >= 0:
                owned[owner].setdefault(name, []).append(index)
    members = [
        MemberClaim(
            member_id=f"m{number}",
            topics=draw(st.sampled_from([names, names[:1]])),
            owned=ResourceSet(some),
            generation=1,
            rack=draw(st.sampled_from((*RACKS, "z", None))),
        )
        for number, some in enumerate(owned)
    ]
    return resolve_claims(members, ResourceSet(replicas), replicas)


def _merits(group: GroupSnapshot, target: tuple[int, ...]) -> tuple[int, int, int]:
    """Return sum of squares, moves and mismatches: less is better."""
    loads = [target.count(member) for member in range(len(group.members))]
    kept = sum(a == b != -1 for a, b in zip(target, group.owner.tolist(), strict=True))
    return sum(load**2 for load in loads), -kept, _mismatches(group, target)


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


@settings(max_examples=60)
@given(racked_groups())
def test_target_when_all_are_tried_is_the_best(group: GroupSnapshot) -> None:
    """Balance, then moves, then racks: no target is better in this order."""
    takers = [
        [m for m, one in enumerate(group.class_of) if name in group.subscriptions[one]] or [-1]
        for name, _ in group.resources
    ]
    best = min(_merits(group, target) for target in itertools.product(*takers))
    target = StickyAssignor().assign(group, no_lags(group))
    assert _merits(group, tuple(target.tolist())) == best


@given(racked_groups())
def test_target_when_groups_are_too_large_for_the_best_is_valid(group: GroupSnapshot) -> None:
    """Balance and number of moves equal those without racks, and the target is at rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotas, "ARCS_MAX", 0)
        target = StickyAssignor().assign(group, no_lags(group))
    check_each_resource_once(group, target)
    balance, moves, _ = _merits(group, tuple(target.tolist()))
    no_racks = resolve_claims(
        [
            MemberClaim(
                member_id=member, topics=group.subscriptions[one], owned=owned, generation=1
            )
            for member, one, owned in zip(
                group.member_ids,
                group.class_of.tolist(),
                group.by_member(group.owner),
                strict=True,
            )
        ],
        group.resources,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotas, "ARCS_MAX", 0)
        plain = StickyAssignor().assign(no_racks, no_lags(no_racks))
    loads = [plain.tolist().count(member) for member in range(len(group.members))]
    assert balance == sum(load**2 for load in loads)
    kept = sum(a == b != -1 for a, b in zip(plain.tolist(), group.owner.tolist(), strict=True))
    assert moves == -kept
