"""`LagAwareAssignor` on owned partitions: retained partitions, and when a move is worth it."""

from collections.abc import Sequence

import pytest

from coopgroup.assignors import LagAwareAssignor
from coopgroup.core.assignors import move_budget
from coopgroup.core.model import GroupSnapshot
from tests.support.checkers import check_balanced, kept_count
from tests.support.groups import by_member, claim, group_of, lags_of

Held = dict[str, list[int]]


def _group(size: int, owned: Held) -> GroupSnapshot:
    """Return one topic "t" to which all members subscribe."""
    members = [claim(member, {"t": some}, topics=["t"]) for member, some in owned.items()]
    return group_of({"t": range(size)}, *members)


def _placed(assignor: LagAwareAssignor, owned: Held, lags: Sequence[int]) -> Held:
    group = _group(len(lags), owned)
    held = by_member(group, assignor.assign(group, lags_of(group, {"t": lags})))
    return {member: some.get("t", []) for member, some in held.items()}


PROPOSAL = [100_000, 60_000, 50_000]


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        ({"C0": [0], "C1": [1, 2]}, {"C0": [0], "C1": [1, 2]}),
        ({"C0": [1, 2], "C1": [0]}, {"C0": [1, 2], "C1": [0]}),
        ({"C0": [0, 1], "C1": [2]}, {"C0": [0], "C1": [1, 2]}),
        ({"C0": [0, 1, 2], "C1": []}, {"C0": [1, 2], "C1": [0]}),
    ],
    ids=["the proposal's result", "the same loads", "RangeAssignor's result", "one newcomer"],
)
def test_proposal_example_when_owned_reaches_its_loads_by_the_fewest_moves(
    owned: Held, expected: Held
) -> None:
    """KAFKA-5337, "Example": 100,000 and 110,000, on either member."""
    assert _placed(LagAwareAssignor(), owned, PROPOSAL) == expected


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([60, 60, 40, 40], {"A": [1, 2], "B": [0, 3]}),
        ([55, 55, 45, 45], {"A": [0, 1], "B": [2, 3]}),
    ],
)
def test_moves_when_they_gain_too_little_are_not_made(lags: list[int], expected: Held) -> None:
    """One swap is two moves. Each must gain more than a twentieth of the mean of 100: 10, and 5."""
    assert _placed(LagAwareAssignor(), {"A": [0, 1], "B": [2, 3]}, lags) == expected


@pytest.mark.parametrize(("budget", "moved"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (None, 4)])
def test_moves_when_rationed_stay_within_the_budget(budget: int | None, moved: int) -> None:
    """Two hot pairs need a swap each, two moves a swap. Half a swap would unbalance the counts."""
    owned = {"A": [0, 1], "B": [2, 3], "C": [4, 5], "D": [6, 7]}
    group = _group(8, owned)
    lags = lags_of(group, {"t": [100, 100, 1, 1, 100, 100, 1, 1]})
    target = LagAwareAssignor(moves_max=budget).assign(group, lags)
    assert 8 - kept_count(group, target) == moved


def test_mixed_subscriptions_when_scope_is_group_swap_within_topics() -> None:
    """Counts stay the same. A's hot partition is swapped for one of B of the same topic."""
    group = group_of(
        {"a": [0], "both": range(4), "b": [0]},
        claim("A", {"a": [0], "both": [0, 1]}, topics=["a", "both"]),
        claim("B", {"b": [0], "both": [2, 3]}, topics=["b", "both"]),
    )
    lags = lags_of(group, {"a": [50], "both": [60, 20, 10, 10], "b": [10]})
    target = LagAwareAssignor(scope="group").assign(group, lags)
    check_balanced(group, target)
    assert by_member(group, target) == {
        "A": {"a": [0], "both": [1, 2]},
        "B": {"b": [0], "both": [0, 3]},
    }


def test_looks_when_they_run_out_leave_balanced_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of lag balancing are bounded. The next round continues."""
    monkeypatch.setattr(move_budget, "_LOOKS_MAX", 0)
    owned = {"A": [0, 1], "B": [2, 3]}
    assert _placed(LagAwareAssignor(), owned, [100, 100, 1, 1]) == owned
    monkeypatch.undo()
    assert _placed(LagAwareAssignor(), owned, [100, 100, 1, 1]) != owned
