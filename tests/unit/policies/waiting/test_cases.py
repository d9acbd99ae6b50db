"""Losses found by a leader without memory: it knows only the delays that members report.

The pause between two moves is announced in the same field as the wait for a lost owner. A new
leader must tell them apart. Otherwise it would give lost resources away immediately.
"""

import pytest

from coopgroup.model import NO_LOSS, MemberClaim, ResourceSet, resolve_claims
from coopgroup.policies import IncrementalPolicy
from coopgroup.policies.base import RoundContext
from coopgroup.policies.unclaimed import find_unclaimed
from coopgroup.policies.waiting.cases import find_cases
from tests.support.policy_drill import Drill, steady

DELAY_MS = 60_000
PAUSE_MS = 1_000
PACED = IncrementalPolicy(
    max_moves_per_round=1, move_interval_ms=PAUSE_MS, scheduled_rebalance_timeout_ms=DELAY_MS
)


def _scale_up() -> Drill:
    """A and B have six partitions each. C has joined and was granted its first one."""
    drill = Drill(policy=PACED, existing={"T": range(12)})
    drill.settle(A=range(6), B=range(6, 12))
    drill.join("C", instance_id="pod-C")
    assert not steady(drill.round(0))
    assert steady(drill.round(10))
    assert (drill.timeout_ms, len(drill.owned()["C"])) == (PAUSE_MS - 10, 1)
    return drill


@pytest.mark.parametrize("dies_ms", [10, PAUSE_MS - 1, PAUSE_MS, PAUSE_MS + 40])
def test_leader_when_it_dies_between_paced_moves_is_waited_for_in_full(dies_ms: int) -> None:
    """Regression: the end of the pause was taken for the end of the delay."""
    drill = _scale_up()
    lost = drill.actors["A"].owned
    drill.leave("A").round(dies_ms)
    assert drill.listed("lost") == lost.to_dict()
    assert drill.state is not None
    assert [loss.deadline_ms for loss in drill.state.losses] == [dies_ms + DELAY_MS]
    drill.round(dies_ms + DELAY_MS - 1)
    assert drill.listed("lost") == lost.to_dict()
    drill.round(dies_ms + DELAY_MS)
    assert drill.listed("lost") == {}


def _until_announced(drill: Drill, now_ms: int, leader: str | None = None) -> int:
    """Play rounds until one announces the next round. Return the time at which that is due."""
    for later_ms in range(now_ms, now_ms + 50, 10):
        drill.round(later_ms, leader=leader)
        if drill.timeout_ms:
            return later_ms
    raise AssertionError(drill.decided)


def test_loss_when_moves_go_on_beside_it_keeps_its_deadline_through_leader_changes() -> None:
    drill = _scale_up()
    lost = drill.actors["B"].owned
    drill.actors["B"].instance_id = "pod-B"
    drill.round(20)
    drill.leave("B")
    drill.join("D", instance_id="pod-D")
    now_ms = _until_announced(drill, 30)
    now_ms = _until_announced(drill, now_ms + drill.timeout_ms)
    assert drill.owned()["D"]  # without resources it would be taken for the returning owner
    assert (drill.listed("lost"), drill.timeout_ms < DELAY_MS // 2) == (lost.to_dict(), True)
    for leader in ("C", "A", "D", "C"):
        now_ms = _until_announced(drill, now_ms + PAUSE_MS, leader)
        assert drill.listed("lost") == lost.to_dict()
        assert drill.state is not None
        assert [loss.deadline_ms for loss in drill.state.losses] == [30 + DELAY_MS]
    drill.round(30 + DELAY_MS, leader="A")
    assert drill.listed("lost") == {}


@pytest.mark.parametrize(
    ("known", "expected_ms"),
    [
        ([(None, None), (None, None)], DELAY_MS),
        ([(0, None), (None, None)], 0),
        ([(400, None), (700, None)], 400),
        ([(0, NO_LOSS), (0, NO_LOSS)], DELAY_MS),
        ([(0, 5_000), (0, NO_LOSS)], 5_000),
        ([(100, 5_000), (4_000, None)], 4_000),
        ([(None, 5_000), (None, None)], 5_000),
        ([(0, 0), (900, 70_000)], 0),
        ([(0, NO_LOSS), (0, 70_000)], DELAY_MS),
    ],
)
def test_loss_of_a_stranger_waits_for_what_members_know_of_losses(
    known: list[tuple[int | None, int | None]], expected_ms: int
) -> None:
    claims = [
        MemberClaim(
            member_id=f"m{number}",
            topics=("T",),
            owned=ResourceSet({"T": [number]}),
            generation=3,
            remaining_delay_ms=delay_ms,
            remaining_loss_ms=loss_ms,
        )
        for number, (delay_ms, loss_ms) in enumerate(known)
    ]
    group = resolve_claims(claims, ResourceSet({"T": range(5)}))
    context = RoundContext(leader_id="m0", generation=3, now_ms=1_000, state=None)
    cases = find_cases(group, context, find_unclaimed(group, context), DELAY_MS)
    assert [loss.deadline_ms for loss in cases.losses] == [1_000 + expected_ms]
