"""`coopgroup plan`: what a member knows of a loss beside the pause between moves."""

import json
from typing import Any

import pytest

from coopgroup.cli.plan_input import Defaults, read_line
from coopgroup.errors import ConfigurationError
from coopgroup.leader import decide_round, member_assignments

DEFAULTS = Defaults(assignor="sticky", policy="simple")


def _line(**known: object) -> dict[str, Any]:
    """A paced scale-up whose leader, with 0 to 5, has died; the new one knows nothing."""
    return {
        "topics": {"T": 14},
        "members": {
            "B": {"topics": ["T"], "owned": {"T": [6, 7, 8, 9, 10, 11]}, "generation": 5} | known,
            "C": {"topics": ["T"], "owned": {"T": [12, 13]}, "generation": 5} | known,
        },
        "policy": {"name": "incremental", "max_moves_per_round": 1, "move_interval_ms": 1_000},
        "generation": 5,
    }


@pytest.mark.parametrize(
    ("known", "waits", "due_ms", "loss_ms"),
    [
        ({}, True, 60_000, None),
        ({"remaining_delay_ms": 0}, False, 0, None),
        ({"remaining_delay_ms": 0, "remaining_loss_ms": None}, False, 0, None),
        ({"remaining_delay_ms": 0, "remaining_loss_ms": -1}, True, 60_000, None),
        ({"remaining_delay_ms": 0, "remaining_loss_ms": 7_000}, True, 7_000, None),
    ],
)
def test_loss_waits_for_what_members_know_of_losses(
    known: dict[str, int | None], waits: bool, due_ms: int, loss_ms: int | None
) -> None:
    """The finding, with the field that tells the two apart; without it all is as before."""
    line = read_line(_line(**known), DEFAULTS)
    decided = decide_round(
        line.claims,
        line.metadata,
        line.lags,
        assignor=line.assignor,
        policy=line.policy,
        context=line.context,
    )
    assert bool(decided.plan.lost.any()) is waits
    if waits:
        (told,) = {
            (answer.scheduled_rebalance_timeout_ms, answer.loss_timeout_ms)
            for answer in member_assignments(decided)
        }
        assert told == (due_ms, loss_ms)


@pytest.mark.parametrize("value", [-2, 2**31, "1", True])
def test_remaining_loss_when_it_is_none_is_refused(value: object) -> None:
    """One line that names the member and the field."""
    with pytest.raises(ConfigurationError, match=r"^members\.B\.remaining_loss_ms: got "):
        read_line(json.loads(json.dumps(_line(remaining_loss_ms=value))), DEFAULTS)
