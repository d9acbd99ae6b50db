"""Warm-ups of named resources, turned by hand, with a group that only listens."""

from __future__ import annotations

import pytest

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    GrantResources,
)
from coopgroup.core.member.events import RevocationCompleted, WarmedUp, WarmupFailed
from coopgroup.telemetry import WorkFailed
from tests.unit.groups.test_work import (
    HEAVY,
    ONLY_HEAVY,
    REVOKE_HEAVY,
    STOP_S,
    Bench,
    bench,
)

__all__ = ["bench"]

BEGIN, CANCEL = BeginWarmups(resources=ONLY_HEAVY), CancelWarmups(resources=ONLY_HEAVY)
GRANT = GrantResources(resources=ONLY_HEAVY)
WARM = WarmedUp(resources=ONLY_HEAVY)


def test_cancelled_warm_up_cools_after_its_callback_has_returned(bench: Bench) -> None:
    def while_it_warms() -> None:
        bench.put(CANCEL)
        assert bench.actions() == ["warm"]

    bench.during["warm", HEAVY] = while_it_warms
    bench.put(BEGIN)
    assert bench.actions() == ["warm", "cool"]
    assert bench.posted == []


@pytest.mark.parametrize(
    ("notices", "actions"),
    [
        ([BEGIN, GRANT], ["warm", "start"]),
        ([GRANT, REVOKE_HEAVY, BEGIN], ["start", "stop", "warm"]),
        ([CANCEL, CANCEL], ["cool", "cool"]),  # nothing is remembered
    ],
    ids=["assigned while warm", "kept after its stop", "found and not wanted"],
)
def test_callbacks_of_a_resource(bench: Bench, notices: list[object], actions: list[str]) -> None:
    for notice in notices:
        bench.put(notice)
    assert bench.actions() == actions


def test_warm_up_that_is_wanted_again_while_it_cools_begins_anew(bench: Bench) -> None:
    bench.during["cool", HEAVY] = lambda: bench.put(BEGIN)
    bench.put(BEGIN)
    bench.put(CANCEL)
    assert bench.posted == [WARM, WARM]
    assert bench.actions() == ["warm", "cool", "warm"]


def test_resource_that_comes_and_goes_during_its_warm_up_never_starts(bench: Bench) -> None:
    def while_it_warms() -> None:
        bench.put(GRANT)
        bench.put(REVOKE_HEAVY)
        assert bench.posted == [RevocationCompleted(resources=ONLY_HEAVY)]

    bench.during["warm", HEAVY] = while_it_warms
    bench.put(BEGIN)
    assert bench.actions() == ["warm"]


def test_warm_up_that_raises_is_reported_and_not_repeated(bench: Bench) -> None:
    bench.failures["warm", HEAVY] = [OSError("disk full")]
    bench.put(BEGIN)
    failed = WarmupFailed(resources=ONLY_HEAVY, error="OSError: disk full")
    assert bench.posted == [failed]
    (failure,) = bench.reported
    assert (failure.resource, failure.action, str(failure.error)) == (HEAVY, "warm", "disk full")
    record = WorkFailed(resources=ONLY_HEAVY, action="warm", error=failed.error, attempts=1)
    assert bench.written == [record]
    bench.work.wake()
    bench.put(GRANT)  # cold
    assert bench.actions() == ["warm", "start"]


def test_closing_process_begins_no_warm_up(bench: Bench) -> None:
    assert bench.work.close(STOP_S)
    bench.put(BEGIN)
    assert bench.actions() == []


def test_overdue_stop_leaves_no_state_to_keep(bench: Bench) -> None:
    def while_it_stops() -> None:
        bench.advance(STOP_S)
        assert bench.given_up() == [HEAVY]
        assert bench.posted[0] == WarmupFailed(resources=ONLY_HEAVY, error="not stopped in time")

    bench.during["stop", HEAVY] = while_it_stops
    bench.put(GRANT)
    bench.put(REVOKE_HEAVY)
