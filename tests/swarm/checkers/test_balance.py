"""The checker of balancing rounds."""

import pytest

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.telemetry import BalanceRequested, Envelope, Record
from tests.swarm.checkers.balance import check_balance
from tests.unit.simulator.checkers.rows import T0, T01, envelope, led


def by(member: str, at_ms: int, generation: int, record: Record) -> Envelope:
    return envelope(at_ms, generation, record, member=member)


def asked(resources: ResourceSet = T01) -> BalanceRequested:
    return BalanceRequested(overloaded=("m",), lags=(9,), mean_lag=3, resources=resources)


def messages(*rows: Envelope) -> list[str]:
    """Return the violations, with a pause of 1,000 ms and a ration of two moves."""
    return [one.message for one in check_balance(rows, 1_000, 2)]


def test_balance_when_the_leader_of_a_group_at_rest_asks_is_kept() -> None:
    first = (by("m", 10, 5, led()), by("m", 20, 5, asked()))
    again = (by("m", 30, 7, led()), by("m", 1_020, 7, asked(T0)))
    assert messages(*first, *again) == []


LED, ASKED = by("m", 10, 5, led()), by("m", 20, 5, asked())
THREE = asked(ResourceSet({"T": range(3)}))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ((ASKED,), "in generation 5, which it did not lead"),
        ((by("n", 10, 5, led()), ASKED), "in generation 5, which it did not lead"),
        ((LED, by("m", 20, 6, asked())), "in generation 6, which it did not lead"),
        ((by("m", 10, 5, led(lost=T0)), ASKED), "while generation 5 waits for something"),
        ((by("m", 10, 5, led(follow_up=True)), ASKED), "while generation 5 waits for something"),
        ((LED, by("m", 20, 5, asked(EMPTY))), "by 0 moves"),
        ((LED, by("m", 20, 5, THREE)), "by 3 moves"),
        (
            (LED, ASKED, by("m", 30, 7, led()), by("m", 700, 7, asked())),
            "as at 20, within the pause of 1000 ms",
        ),
    ],
)
def test_balance_when_it_must_not_be_asked_for_is_broken(
    rows: tuple[Envelope, ...], complaint: str
) -> None:
    assert messages(*rows) == [f"a asks to even lags out {complaint}"]
