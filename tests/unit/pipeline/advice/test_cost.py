"""Closed form of the cost: cases, theorems, agreement with the simulator; settings to try."""

from collections.abc import Sequence

import numpy as np
import pytest

from coopgroup.core.policies.built_in import create_policy
from coopgroup.pipeline.advice.cost import MoveCost, deferred, estimated_s, with_rations
from coopgroup.pipeline.advice.history import Absence, Episode
from coopgroup.simulator.scenario import Choice, How
from tests.unit.pipeline.return_times import FAMILIES, Cells, history, on_grid

SESSION_MS = 10_000
STATEFUL = MoveCost(move_ms=30_000)


def cost_s(
    absent_ms: int | None,
    timeout_ms: int,
    cost: MoveCost,
    how: How = How.CLOSE,
    *,
    is_static: bool = False,
) -> float:
    absence = Absence(at_ms=0, process=1, absent_ms=absent_ms, how=how)
    (found,) = estimated_s(
        [Episode(begin_ms=0, absences=(absence,))],
        [timeout_ms],
        cost,
        session_timeout_ms=SESSION_MS,
        is_static=is_static,
    ).tolist()
    return float(found)


@pytest.mark.parametrize(
    ("absent_ms", "timeout_ms", "how", "is_static", "expected_s"),
    [
        (20_000, 30_000, How.CLOSE, False, 20 + 2),  # back in time
        (20_000, 5_000, How.CLOSE, False, 1.5 + 5 + 7 + 7),  # moved away and back
        (None, 5_000, How.CLOSE, False, 1.5 + 5 + 7),  # moved permanently
        (20_000, 5_000, How.CRASH, False, 10 + 5 + 7 + 7),  # the session ends first
        # back, but the old member is still in its session
        (4_000, 5_000, How.CRASH, False, 10 + 2),
        (4_000, 5_000, How.CLOSE, True, 4 + 2),  # resumes as the same static member
        (None, 5_000, How.CLOSE, True, 10 + 5 + 7),  # the session must end first
    ],
)
def test_estimate_follows_the_formula(
    absent_ms: int | None, timeout_ms: int, how: How, *, is_static: bool, expected_s: float
) -> None:
    """The cases are those of the table in the docstring of the module."""
    cost = MoveCost(move_ms=7_000, return_ms=2_000)
    assert cost_s(absent_ms, timeout_ms, cost, how, is_static=is_static) == expected_s


def estimated(
    away: Sequence[int | None],
    timeouts_ms: Sequence[int],
    cost: MoveCost,
    *,
    is_spread: bool = False,
) -> list[float]:
    found = estimated_s(
        history(away).episodes,
        timeouts_ms,
        cost,
        session_timeout_ms=SESSION_MS,
        is_static=False,
        is_spread=is_spread,
    )
    return [float(one) for one in found]


@pytest.mark.parametrize("how", [How.CLOSE, How.CRASH])
@pytest.mark.parametrize("move_ms", [0, 30_000])
def test_simulator_agrees_with_the_estimate(how: How, move_ms: int) -> None:
    cells = Cells(MoveCost(move_ms=move_ms), seed=3)
    partitions = 2
    for absent_ms in (3_000, 40_000, None):
        absence = Absence(at_ms=0, process=1, absent_ms=absent_ms, how=how)
        for timeout_ms in (0, 20_000):
            episode = Episode(begin_ms=0, absences=(absence,))
            played_s = cells.figures(episode, deferred(timeout_ms))[0] / partitions
            estimate_s = cost_s(absent_ms, timeout_ms, MoveCost(move_ms=move_ms, return_ms=0), how)
            assert abs(played_s - estimate_s) < 1, (absent_ms, timeout_ms, played_s, estimate_s)


def test_time_out_above_the_longest_absence_leaves_room_for_longer_ones() -> None:
    away = on_grid(FAMILIES["short"](np.random.default_rng(1), 100), np.geomspace(1, 100, 2_000))
    longest_ms = max(one for one in away if one is not None)
    timeouts_ms = [longest_ms, 2 * longest_ms]
    seen = estimated(away, timeouts_ms, STATEFUL)
    assert seen[0] == seen[1]
    spread = estimated(away, timeouts_ms, STATEFUL, is_spread=True)
    assert spread[0] > spread[1]
    for_good = estimated([None] * 5, [0, 9_000], MoveCost(), is_spread=True)
    assert for_good == [5 * 1.5, 5 * 10.5]


def test_rations_keep_the_time_out_and_are_less_than_the_group() -> None:
    tried = [one.options["max_moves_per_round"] for one in with_rations(deferred(7_000), 16)]
    assert tried == [1, 1, 4, 4]
    for one in with_rations(deferred(7_000), 99):
        create_policy(one.name, one.options)
        assert one.options["scheduled_rebalance_timeout_ms"] == 7_000
    assert with_rations(Choice(name="eager"), 99) == []
