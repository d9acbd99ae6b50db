"""The parts of a member as values. Tests of whole members show when they change."""

from typing import Any

import attrs
import pytest

from coopgroup.member.parts import NO_LEASE, Delay, Lease
from coopgroup.model import EMPTY, NO_LOSS
from coopgroup.protocol import Assignment

DELAYED = Delay(rejoin_at_ms=500, loss_until_ms=900)


@pytest.mark.parametrize("proof", ["until_ms", "settled_at_ms", "round_open_at_ms"])
def test_proof_that_is_older_than_another_changes_nothing(proof: str) -> None:
    """Answers may arrive in another order than their requests were sent."""
    times_ms = {"until_ms": 0, proof: 700}
    lease = NO_LEASE.proven(**times_ms)
    proven: dict[str, Any] = {proof: 700}
    assert lease == attrs.evolve(NO_LEASE, **proven)
    assert lease.proven(**(times_ms | {proof: 600})) == lease


def test_round_of_a_waiting_join_ended_after_the_last_proof() -> None:
    lease = Lease(settled_at_ms=100, joining_since_ms=300, round_open_at_ms=200)
    assert lease.round_ended_after_ms == 300
    assert attrs.evolve(lease, joining_since_ms=None).round_ended_after_ms == 200


@pytest.mark.parametrize(
    ("timeout_ms", "loss_ms", "expected"),
    [
        (50, None, Delay(rejoin_at_ms=650, loss_until_ms=650)),
        (50, 80, Delay(rejoin_at_ms=650, loss_until_ms=680)),
        (50, NO_LOSS, Delay(rejoin_at_ms=650)),
        (0, None, Delay()),
    ],
    ids=["of the loss", "before the loss ends", "without a loss", "none"],
)
def test_delay_of_a_final_round_replaces_the_last_one(
    timeout_ms: int, loss_ms: int | None, expected: Delay
) -> None:
    assignment = Assignment(
        assigned=EMPTY, scheduled_rebalance_timeout_ms=timeout_ms, loss_timeout_ms=loss_ms
    )
    assert DELAYED.after(assignment, joined_at_ms=400, now_ms=600) == expected


@pytest.mark.parametrize(
    ("joined_at_ms", "expected"),
    [
        (400, DELAYED),
        (500, Delay(rejoin_at_ms=900, loss_until_ms=900)),
        (900, Delay()),
    ],
    ids=["runs", "the pause is over", "is over"],
)
def test_delay_in_a_round_with_a_follow_up_goes_on(joined_at_ms: int, expected: Delay) -> None:
    assignment = Assignment(assigned=EMPTY, revoked=EMPTY)
    assert DELAYED.after(assignment, joined_at_ms=joined_at_ms, now_ms=950) == expected
