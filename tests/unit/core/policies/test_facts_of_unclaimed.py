"""Unclaimed resources: every row of the table, and the leader's memory of them."""

import itertools
from functools import partial

import attrs
import numpy as np
import pytest

from coopgroup.core.model import EMPTY, GroupSnapshot, ResourceSet
from coopgroup.core.policies.memory import PairKind, Past, recall
from coopgroup.policies import NOBODY, PolicyState, RoundContext, find_unclaimed, remember_round
from tests.support.groups import claim, group_of, holder_of, unreadable
from tests.support.memory import remembered, resources_in

Kinds = dict[str, dict[str, list[int]]]


def _context(state: PolicyState | None, generation: int = 5) -> RoundContext:
    return RoundContext(leader_id="A", generation=generation, now_ms=0, state=state)


def _kinds(group: GroupSnapshot, state: PolicyState | None) -> Kinds:
    found = find_unclaimed(group, _context(state))
    masks = {
        "created": found.created,
        "lost": found.lost,
        "released": found.released,
        "withheld": found.withheld,
    }
    kinds = {kind: group.resources.take(mask).to_dict() for kind, mask in masks.items()}
    return {kind: resources for kind, resources in kinds.items() if resources}


_state = partial(remembered, generation=4)


def test_topic_when_nobody_claims_any_of_it_is_created() -> None:
    """Design II: "If a topic is completely missing from previous assignments, assume" it is new."""
    group = group_of({"T": [0, 1], "U": [0]}, claim("A", {"T": [0, 1]}, topics=["T", "U"]))
    assert _kinds(group, None) == {"created": {"U": [0]}}


def test_name_of_a_catalogue_is_lost_if_another_one_is_claimed() -> None:
    """There a name often has one resource only: an owner that departs leaves no part of it."""
    group = group_of({"T": [0, 1], "U": [0]}, claim("A", {"T": [0, 1]}, topics=["T", "U"]))
    group = attrs.evolve(group, weights=np.ones(3, dtype=np.int64))
    assert _kinds(group, None) == {"lost": {"U": [0]}}
    first = group_of({"T": [0, 1], "U": [0]}, claim("A", topics=["T", "U"]))
    first = attrs.evolve(first, weights=np.ones(3, dtype=np.int64))
    assert _kinds(first, None) == {"created": {"T": [0, 1], "U": [0]}}


def test_part_of_a_topic_after_the_broker_has_assigned_is_created() -> None:
    """Its owner spoke KIP-848: if it returns, the broker assigns again, so nothing waits for it."""
    group = group_of({"T": [0, 1]}, claim("A", {"T": [0]}))
    context = attrs.evolve(_context(None), after_broker=True)
    found = find_unclaimed(group, context)
    assert found.created.tolist() == [False, True]
    assert not found.lost.any()


def test_part_of_a_topic_when_nobody_claims_it_is_lost() -> None:
    """Design II: "If we didn't detect a new subscription, assume" that a member left the group."""
    group = group_of({"T": [0, 1], "U": [0]}, claim("A", {"T": [0]}, topics=["T"]))
    assert _kinds(group, None) == {"lost": {"T": [1]}}


def test_grants_when_a_member_missed_its_sync_were_never_owned() -> None:
    """All members are back without claims on them: no departed member owned them (KAFKA-9848)."""
    group = group_of({"T": [0, 1]}, claim("A", {"T": [0]}), claim("B"))
    state = _state("A", "B", granted=ResourceSet({"T": [0, 1]}))
    assert _kinds(group, state) == {"created": {"T": [1]}}


def test_leader_without_memory_misses_no_member() -> None:
    assert not recall(group_of({"T": [0]}, claim("A")), None).has_departed


@pytest.mark.parametrize(
    ("state", "withheld"),
    [
        (None, {"T": [1]}),
        (_state("A", "X"), {"T": [1]}),
        (_state("A", "X", silent=["X"]), None),
        (_state("A", "Y", silent=["Y"]), {"T": [1]}),
    ],
    ids=["no state", "first seen", "told already", "another was told"],
)
def test_unclaimed_when_a_member_is_unreadable_is_withheld_until_it_was_told(
    state: PolicyState | None, withheld: dict[str, list[int]] | None
) -> None:
    group = group_of({"T": [0, 1]}, claim("A", {"T": [0]}), unreadable("X"))
    assert _kinds(group, state).get("withheld") == withheld


def test_kinds_when_every_state_is_tried_are_exactly_one() -> None:
    resources = ResourceSet({"T": [0, 1]})
    one = ResourceSet({"T": [1]})
    pasts = ("owned", "granted", "released", None)
    for past, (departed, claimed, with_state) in itertools.product(
        pasts, itertools.product((False, True), repeat=3)
    ):
        group = group_of(resources.to_dict(), claim("A", {"T": [0]} if claimed else None))
        state = _state(
            *(("A", "B") if departed else ("A",)),
            owned=one if past == "owned" else EMPTY,
            granted=one if past == "granted" else EMPTY,
            released=one if past == "released" else EMPTY,
        )
        found = find_unclaimed(group, _context(state if with_state else None))
        kinds = found.created.astype(int) + found.lost + found.released
        assert kinds.tolist() == [int(not claimed), 1]
        assert not found.withheld.any()


def test_memory_keeps_no_array_that_a_policy_may_change() -> None:
    group = group_of({"T": [0, 1]}, claim("A"))
    context, assigned = _context(None), np.array([0, NOBODY], dtype=np.int32)
    state = remember_round(group, context, find_unclaimed(group, context), assigned)
    assigned[:] = NOBODY
    assert state.resources.holder.tolist() == [0, NOBODY]


def test_memory_when_a_round_ends_holds_what_the_next_one_needs() -> None:
    group = group_of(
        {"T": range(4), "U": [0, 1]},
        claim("A", {"T": [0, 1], "gone": [0]}, topics=["T", "U"]),
        claim("B", topics=["T", "U"]),
        unreadable("X"),
    )
    context = _context(None)
    assigned = holder_of(group, {"A": {"T": [0]}, "B": {"T": [2], "U": [0]}})
    state = remember_round(group, context, find_unclaimed(group, context), assigned)
    assert (state.generation, state.silent) == (5, ("X",))
    members = state.members
    assert (members.ids, members.instance_ids) == (("A", "B", "X"), (None, None, None))
    assert (members.subscriptions, members.class_of) == ((("T", "U"), ()), (0, 0, 1))
    assert {
        f"{one.name}-{one.index}": (Past(past).name, holder)
        for one, past, holder in zip(
            state.resources.names,
            state.resources.past.tolist(),
            state.resources.holder.tolist(),
            strict=True,
        )
    } == {
        "T-0": ("OWNED", 0),
        "T-1": ("RELEASED", NOBODY),
        "T-2": ("OWNED", 1),
        "T-3": ("OWNED", NOBODY),
        "U-0": ("FIRST_GRANT", 1),
        "U-1": ("NEVER_OWNED", NOBODY),
        "gone-0": ("NEVER_OWNED", NOBODY),
    }
    assert resources_in(state, PairKind.TOLD) == ResourceSet({"T": [1], "gone": [0]})
    assert state.pairs.member.tolist() == [0, 0]
