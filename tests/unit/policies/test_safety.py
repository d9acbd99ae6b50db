"""The leader's two checks: for each rule, a plan or target that breaks only that rule."""

from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.errors import AssignorError
from coopgroup.model import NO_LOSS, GroupSnapshot, RoundPlan
from coopgroup.model.resource_set import BoolArray, Int32Array
from coopgroup.policies import check_target, violations
from tests.support.groups import Indices, claim, group_of, holder_of, unreadable


def _group() -> GroupSnapshot:
    """A and B own two each, of generation 2. C is new. U has no subscriber."""
    return group_of(
        {"T": range(4), "U": [0]},
        claim("A", {"T": [0, 1]}, generation=2),
        claim("B", {"T": [2, 3]}, generation=2),
        claim("C"),
    )


def _plan(
    group: GroupSnapshot,
    held: dict[str, Indices],
    *,
    waiting: Indices | None = None,
    follow_up: bool = True,
    timeout_ms: int = 0,
) -> RoundPlan:
    """Return a plan that assigns `held` and is otherwise correct."""
    assigned = holder_of(group, held)
    nothing = np.zeros(len(group.resources), dtype=np.bool_)
    return RoundPlan(
        target=assigned,
        assigned=assigned,
        follow_up=follow_up,
        scheduled_rebalance_timeout_ms=timeout_ms,
        lost=nothing,
        created=nothing,
        waiting=_mask(group, waiting or {}),
    )


def _changed(plan: RoundPlan, changes: dict[str, Any]) -> RoundPlan:
    return attrs.evolve(plan, **changes)


def _mask(group: GroupSnapshot, indices: Indices) -> BoolArray:
    pairs = {(name, index) for name, some in indices.items() for index in some}
    return np.array([resource in pairs for resource in group.resources], dtype=np.bool_)


STEADY: dict[str, Indices] = {"A": {"T": [0, 1]}, "B": {"T": [2, 3]}}
MOVING: dict[str, Indices] = {"A": {"T": [0, 1]}, "B": {"T": [2]}}


def test_plan_when_safe_breaks_no_rule() -> None:
    group = _group()
    assert violations(group, _plan(group, STEADY, follow_up=False)) == ()
    assert violations(group, _plan(group, MOVING, waiting={"T": [3]})) == ()


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        (
            {"assigned": np.zeros(4, dtype=np.int32)},
            ("assigned is int32 of shape (4,), expected int32 of shape (5,)",),
        ),
        (
            {"target": np.zeros(5, dtype=np.int64)},
            ("target is int64 of shape (5,), expected int32 of shape (5,)",),
        ),
        (
            {"target": [0, 0, 0, 0, 0]},
            ("target is a list, expected an array, int32 of shape (5,)",),
        ),
        (
            {"assigned": np.array([0, 0, 1, 3, -1], dtype=np.int32)},
            ("assigned names member 3 of a group of 3",),
        ),
        (
            {"assigned": np.array([0, 0, 1, 1, -2], dtype=np.int32)},
            ("assigned names member -2 of a group of 3",),
        ),
        (
            {"lost": np.zeros(5, dtype=np.int8), "created": np.zeros(1, dtype=np.bool_)},
            (
                "lost is int8 of shape (5,), expected bool of shape (5,)",
                "created is bool of shape (1,), expected bool of shape (5,)",
            ),
        ),
    ],
)
def test_arrays_when_malformed_are_all_that_is_said(
    changes: dict[str, Any], broken: tuple[str, ...]
) -> None:
    """Rule (a): shape, type and range of every array."""
    group = _group()
    assert violations(group, _changed(_plan(group, STEADY), changes)) == broken


def test_grant_when_another_member_still_claims_it_is_a_violation() -> None:
    """Rule (b): a claim is ownership until it is given up."""
    group = _group()
    plan = _plan(group, {**MOVING, "C": {"T": [3]}})
    assert violations(group, plan) == ("granted while another member still claims it: T-3",)


def test_grant_when_a_stale_claim_is_left_is_a_violation() -> None:
    """Rule (b): a stale claim counts too, but the rightful owner may keep the resource."""
    group = group_of(
        {"T": [0]},
        claim("A", {"T": [0]}, generation=2),
        claim("B", {"T": [0]}, generation=1),
    )
    assert violations(group, _plan(group, {"A": {"T": [0]}})) == ()
    assert violations(group, _plan(group, {"B": {"T": [0]}})) == (
        "granted while another member still claims it: T-0",
    )


def test_assignment_when_resource_does_not_exist_is_a_violation() -> None:
    """Rule (c)."""
    group = group_of({"T": [0]}, claim("A", {"T": [0, 9]}))
    assert violations(group, _plan(group, {"A": {"T": [0, 9]}})) == (
        "assigned though it is not assignable: T-9",
    )


def test_assignment_when_holder_does_not_subscribe_is_a_violation() -> None:
    """Rule (c): not even an owner may keep a resource that it no longer subscribes to."""
    group = group_of({"T": [0, 1]}, claim("A", {"T": [0, 1]}, topics=["U"]), claim("B"))
    assert violations(group, _plan(group, {"A": {"T": [0, 1]}})) == (
        "assigned to a member that does not subscribe to it: T-0 and 1 more",
    )


def test_resource_when_neither_assigned_nor_explained_is_a_violation() -> None:
    """Rule (d): no subscribed resource is silently dropped."""
    group = _group()
    assert violations(group, _plan(group, MOVING)) == (
        "dropped: neither assigned nor waiting nor lost: T-3",
    )


def test_resource_when_lost_contested_or_perhaps_owned_is_explained() -> None:
    """Rule (d): these are valid reasons for no holder."""
    lost = group_of({"T": [0, 1]}, claim("A", {"T": [0]}))
    keeping = _plan(lost, {"A": {"T": [0]}}, follow_up=False)
    delayed = attrs.evolve(keeping, lost=_mask(lost, {"T": [1]}), scheduled_rebalance_timeout_ms=50)
    contested = group_of({"T": [0]}, claim("A", {"T": [0]}), claim("B", {"T": [0]}))
    withheld = group_of({"T": [0]}, claim("A"), unreadable("X"))
    assert violations(lost, delayed) == ()
    assert violations(contested, _plan(contested, {})) == ()
    assert violations(withheld, _plan(withheld, {})) == ()


@pytest.mark.parametrize(
    ("held", "field", "marked", "broken"),
    [
        (STEADY, "lost", {"T": [0]}, {"called lost though it is assigned: T-0"}),
        (MOVING, "lost", {"T": [3]}, {"called lost though it is claimed: T-3"}),
        (STEADY, "created", {"T": [1]}, {"called created though it is claimed: T-1"}),
        (MOVING, "created", {"U": [0]}, {"called created though it is not granted: U-0"}),
    ],
)
def test_report_when_untrue_is_a_violation(
    held: dict[str, Indices], field: str, marked: Indices, broken: set[str]
) -> None:
    """Rule (d): lost is unclaimed and unassigned; created is granted now."""
    group = _group()
    plan = _plan(group, held, waiting={"T": [3]} if held is MOVING else None)
    found = violations(group, _changed(plan, {field: _mask(group, marked)}))
    assert broken <= set(found)


def test_timeout_when_somebody_revokes_is_a_violation() -> None:
    """Rule (e): a delay is sent only in a round without revocations."""
    group = _group()
    plan = _plan(group, MOVING, waiting={"T": [3]}, timeout_ms=50, follow_up=False)
    assert violations(group, plan) == (
        "revoked under a scheduled rebalance timeout: T-3",
        "revoked without a follow-up round: T-3",
    )


def test_timeout_when_a_follow_up_round_comes_is_a_violation() -> None:
    """Rule (e): with a delay, the list of revocations is null for all members."""
    group = _group()
    plan = _plan(group, STEADY, timeout_ms=50)
    assert violations(group, plan) == (
        "scheduled rebalance timeout of 50 ms though a follow-up round comes",
    )
    assert violations(group, attrs.evolve(plan, follow_up=False)) == ()


@pytest.mark.parametrize("timeout_ms", [-1, 2**31])
def test_timeout_when_it_does_not_fit_the_wire_is_a_violation(timeout_ms: int) -> None:
    """Rule (e): it is an int32 on the wire, and no delay is negative."""
    group = _group()
    plan = _plan(group, STEADY, timeout_ms=timeout_ms, follow_up=False)
    assert violations(group, plan) == (
        f"scheduled rebalance timeout of {timeout_ms} ms, expected 0 to 2147483647",
    )


@pytest.mark.parametrize("loss_ms", [-2, 2**31])
def test_loss_timeout_when_it_does_not_fit_the_wire_is_a_violation(loss_ms: int) -> None:
    """Rule (e): -1 says that nothing waits."""
    group = _group()
    plan = _plan(group, STEADY, timeout_ms=900, follow_up=False)
    assert violations(group, attrs.evolve(plan, loss_timeout_ms=NO_LOSS)) == ()
    assert violations(group, attrs.evolve(plan, loss_timeout_ms=loss_ms)) == (
        f"loss timeout of {loss_ms} ms, expected -1 to 2147483647",
    )


def test_revocation_when_no_follow_up_round_comes_is_a_violation() -> None:
    """Rule (f): a member that stops something rejoins, and so do all others."""
    group = _group()
    plan = _plan(group, MOVING, waiting={"T": [3]}, follow_up=False)
    assert violations(group, plan) == ("revoked without a follow-up round: T-3",)


def test_contested_resource_when_granted_is_a_violation() -> None:
    """Rule (g): claimed twice in one generation, it is granted to no member, claimants included."""
    group = group_of({"T": [0, 1]}, claim("A", {"T": [0, 1]}), claim("B", {"T": [0, 1]}))
    plan = _plan(group, {"A": {"T": [0]}, "B": {"T": [1]}})
    assert violations(group, plan) == (
        "granted though two members claim it in one generation: T-0 and 1 more",
    )


def test_stop_when_told_again_needs_no_follow_up_round() -> None:
    """Rule (f): its claimant rejoins after the stop. The other members need not."""
    group = _group()
    again = group.claim_resources == 3
    plan = _plan(group, MOVING, waiting={"T": [3]}, follow_up=False)
    assert violations(group, attrs.evolve(plan, stopping=again)) == ()
    assert violations(group, attrs.evolve(plan, stopping=again, follow_up=True)) == ()
    delayed = attrs.evolve(plan, stopping=again, scheduled_rebalance_timeout_ms=5)
    assert violations(group, delayed) == ("revoked under a scheduled rebalance timeout: T-3",)


def test_stop_when_only_some_are_told_again_needs_a_follow_up_round() -> None:
    """Rule (f): one new revocation is enough."""
    group = _group()
    plan = _plan(group, {"A": {"T": [0, 1]}}, waiting={"T": [2, 3]}, follow_up=False)
    plan = attrs.evolve(plan, stopping=group.claim_resources == 3)
    assert violations(group, plan) == ("revoked without a follow-up round: T-2",)


def test_stop_when_its_claimant_keeps_it_is_no_stop() -> None:
    """Rule (f): the revocations must match the claims."""
    group = _group()
    plan = _plan(group, STEADY, follow_up=False)
    plan = attrs.evolve(plan, stopping=group.claim_resources == 1)
    assert violations(group, plan) == ("called stopping though its claimant keeps it: T-1",)


def test_resource_when_held_back_is_explained_if_a_round_comes() -> None:
    """Rules (d) and (h): the first members of a group may wait, but not without end."""
    group = group_of({"T": [0, 1]}, claim("A"))
    waiting = _mask(group, {"T": [0, 1]})
    plan = attrs.evolve(_plan(group, {}, follow_up=False), waiting_for_members=waiting)
    assert violations(group, plan) == ("put off though no round comes: T-0 and 1 more",)
    assert violations(group, attrs.evolve(plan, scheduled_rebalance_timeout_ms=9)) == ()
    assert violations(group, attrs.evolve(plan, follow_up=True)) == ()


@pytest.mark.parametrize(
    ("held", "changes", "broken"),
    [
        (
            STEADY,
            {"waiting_for_members": [0]},
            "called waiting for members though it is assigned: T-0",
        ),
        (MOVING, {"waiting_for_members": [3]}, "called waiting for members though claimed: T-3"),
        (
            MOVING,
            {"waiting_for_members": [3], "lost": [3]},
            "called both lost and waiting for members: T-3",
        ),
    ],
)
def test_held_back_when_untrue_is_a_violation(
    held: dict[str, Indices], changes: dict[str, list[int]], broken: str
) -> None:
    group = _group()
    plan = _plan(group, held, waiting={"T": [3]} if held is MOVING else None)
    masks = {field: _mask(group, {"T": places}) for field, places in changes.items()}
    assert broken in violations(group, _changed(plan, masks))


def test_lost_resource_when_no_round_comes_is_a_violation() -> None:
    """Rule (h): a member has to rejoin for it, or a delay has to end."""
    group = group_of({"T": [0, 1]}, claim("A", {"T": [0]}))
    plan = _plan(group, {"A": {"T": [0]}}, follow_up=False)
    plan = attrs.evolve(plan, lost=_mask(group, {"T": [1]}))
    assert violations(group, plan) == ("put off though no round comes: T-1",)


@pytest.mark.parametrize(
    ("field", "size", "right"),
    [("waiting_for_members", 4, 5), ("stopping", 5, 4), ("stopping", 0, 4)],
)
def test_masks_when_they_are_there_have_the_right_size(field: str, size: int, right: int) -> None:
    """Rule (a): one entry for each resource, or for each claim."""
    group = _group()
    plan = _changed(_plan(group, STEADY), {field: np.zeros(size, dtype=np.bool_)})
    assert violations(group, plan) == (
        f"{field} is bool of shape ({size},), expected bool of shape ({right},)",
    )


def test_target_when_right_is_taken() -> None:
    group = _group()
    check_target(group, holder_of(group, {"A": {"T": [0, 1]}, "C": {"T": [2, 3]}}))
    check_target(group_of({}), np.empty(0, dtype=np.int32))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (None, "target is a NoneType, expected an array, int32 of shape (3,)"),
        (
            np.zeros(2, dtype=np.int32),
            "target is int32 of shape (2,), expected int32 of shape (3,)",
        ),
        (np.zeros(3), "target is float64 of shape (3,), expected int32 of shape (3,)"),
        (np.array([0, 2, -1], dtype=np.int32), "target names member 2 of a group of 2"),
        (np.array([0, 0, 0], dtype=np.int32), "target places what is not assignable: T-9"),
        (
            np.array([0, 1, -1], dtype=np.int32),
            "target names a holder that does not subscribe: T-1",
        ),
        (
            np.array([-1, 0, -1], dtype=np.int32),
            "target leaves out what is assignable and has a subscriber: T-0",
        ),
    ],
)
def test_target_when_wrong_is_refused_with_the_reason(target: Int32Array, reason: str) -> None:
    group = group_of({"T": [0, 1]}, claim("A", {"T": [9]}), claim("B", topics=[]))
    with pytest.raises(AssignorError) as caught:
        check_target(group, target)
    assert str(caught.value) == reason
