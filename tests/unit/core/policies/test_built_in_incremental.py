"""`IncrementalPolicy`: Design III, moves in batches; everything else is as in Design II."""

from typing import Any

import numpy as np
import pytest

from coopgroup.assignors import LagAwareAssignor
from coopgroup.core.model import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.policies import IncrementalPolicy
from tests.support.memory import planned_in
from tests.support.policy_drill import Drill, steady

NOTHING: dict[str, list[int]] = {}


def _twelve(**options: int) -> Drill:
    policy = IncrementalPolicy(**{"max_moves_per_round": 2, "move_interval_ms": 1_000, **options})
    drill = Drill(policy=policy, existing={"T": range(12)})
    drill.settle(A=range(12))
    return drill


def _revoked(told: dict[str, Any]) -> int:
    return sum(len(indices) for _, revoked in told.values() for indices in (revoked or {}).values())


def test_scale_up_when_rationed_moves_a_few_each_interval() -> None:
    """Design III: "scale up has the added benefit that you get a smoother, incremental move".

    The interval begins with the revoking round. The granting round sends the remaining time.
    """
    drill = _twelve()
    told = drill.join("B").round(10)
    assert (_revoked(told), told["B"], drill.timeout_ms) == (2, (NOTHING, NOTHING), 0)
    assert drill.memory.next_round_ms == 1_010
    told = drill.round(25)
    assert (steady(told), len(drill.owned()["B"]), drill.timeout_ms) == (True, 2, 985)
    assert len(drill.listed("waiting")["T"]) == 4
    assert _revoked(drill.round(1_010)) == 2
    drill.round(1_020)
    assert (len(drill.owned()["B"]), drill.timeout_ms) == (4, 990)
    assert _revoked(drill.round(2_010)) == 2
    told = drill.round(2_020)
    assert (steady(told), len(drill.owned()["B"]), drill.timeout_ms) == (True, 6, 0)
    assert drill.memory.next_round_ms is None


def test_batches_when_there_is_no_interval_follow_in_the_round_that_grants() -> None:
    drill = _twelve(move_interval_ms=0)
    drill.join("B")
    counts = [_revoked(drill.round(now)) for now in range(5)]
    assert counts == [2, 2, 2, 0, 0]
    assert [len(owned) for owned in drill.owned().values()] == [6, 6]


def test_lost_resources_when_the_delay_is_over_are_not_rationed() -> None:
    """Design III: "in that case you really just want to assign everything that was "lost"."""
    drill = Drill(
        policy=IncrementalPolicy(max_moves_per_round=1, scheduled_rebalance_timeout_ms=500),
        existing={"T": range(12)},
    )
    drill.settle(A=range(4), B=range(4, 8), C=range(8, 12))
    drill.leave("C").round(0)
    assert drill.timeout_ms == 500
    told = drill.round(500)
    assert (steady(told), [len(owned) for owned in drill.owned().values()]) == (True, [6, 6])


def test_mandatory_stops_when_there_are_many_are_not_rationed() -> None:
    drill = _twelve()
    drill.join("B", topics=["T"])
    drill.actors["A"].topics = ("U",)
    assert _revoked(drill.round(0)) == 12


# --- continuous lag balance ---------------------------------------------------------------------

HOT = {"T": {0: 500, 1: 500, 2: 10, 3: 10, 4: 20, 5: 20, 6: 15, 7: 15}}


def _hot(**options: int) -> Drill:
    """A has two hot partitions. B, C and D have little lag."""
    policy = IncrementalPolicy(
        **{
            "max_moves_per_round": 2,
            "move_interval_ms": 1_000,
            "lag_check_interval_ms": 1_000,
            "lag_imbalance_min": 100,
            **options,
        }
    )
    drill = Drill(policy=policy, existing={"T": range(8)}, assignor=LagAwareAssignor())
    drill.settle(A=[0, 1], B=[2, 3], C=[4, 5], D=[6, 7])
    drill.lags = HOT
    return drill


def test_balance_exchanges_a_hot_partition_for_a_cold_one() -> None:
    drill = _hot()
    told = drill.round(5_000, balance=True)
    assert (_revoked(told), drill.timeout_ms) == (2, 0)
    assert steady(drill.round(5_010))
    owned = drill.owned()
    assert sorted(map(len, owned.values())) == [2, 2, 2, 2]
    assert [sum(HOT["T"][one] for one in has) > 500 for has in owned.values()].count(True) == 2
    assert (drill.memory.moves_pending, drill.memory.next_round_ms) == (False, None)
    assert not planned_in(drill.memory)


def test_balance_when_a_member_joined_gives_it_its_share_first() -> None:
    drill = _hot()
    told = drill.join("E").round(5_000, balance=True)
    assert _revoked(told) == 1
    drill.round(5_010)
    assert len(drill.owned()["E"]) == 1


class _Exchanging:
    """Wants two exchanges: of a hot partition for a cold one, and of two cold ones."""

    name = "exchanging"
    needs_lags = True

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        return np.array([1, 0, 0, 1, 3, 2, 2, 3], dtype=np.int32)


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_balance_makes_only_moves_that_are_worth_it(delay_ms: int) -> None:
    drill = _hot(scheduled_rebalance_timeout_ms=delay_ms, max_moves_per_round=8)
    drill.assignor = _Exchanging()
    assert _revoked(drill.round(5_000, balance=True)) == 2
    assert steady(drill.round(5_010))
    assert drill.owned() == {"A": [1, 2], "B": [0, 3], "C": [4, 5], "D": [6, 7]}


def test_balance_when_losses_never_wait_moves_only_after_a_lasting_change() -> None:
    """The target of an assignor that reads lags is another one in every round."""
    drill = _hot(scheduled_rebalance_timeout_ms=0)
    assert _revoked(drill.round(5_000)) == 0
    told = drill.leave("D").round(5_010)
    assert _revoked(told) == 1
    assert {6, 7} <= {one for has in drill.owned().values() for one in has}
