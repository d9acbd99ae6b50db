"""Warm-ups of named resources: callbacks that the test blocks, and a group that only listens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coopgroup.member.effects import (
    BeginWarmups,
    CancelWarmups,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.member.events import RevocationCompleted, WarmedUp, WarmupFailed
from coopgroup.telemetry import WorkFailed
from tests.support.waiting import wait_for
from tests.unit.groups.test_work import BOTH, HEAVY, LIGHT, ONLY_HEAVY, ONLY_LIGHT, Bench

BEGIN, CANCEL = BeginWarmups(resources=ONLY_HEAVY), CancelWarmups(resources=ONLY_HEAVY)
GRANT = GrantResources(resources=ONLY_HEAVY)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Create a bench, and release all its callbacks at the end."""
    made = Bench()
    yield made
    for gate in made.gates.values():
        gate.set()
    made.pool.close()


def calls(bench: Bench) -> list[str]:
    return [action for action, resource in bench.calls if resource == HEAVY]


def is_idle(bench: Bench) -> bool:
    return not bench.work._warmth.is_busy(HEAVY)  # noqa: SLF001  (nothing else shows it)


def test_group_learns_that_a_resource_is_warm_when_its_callback_returns(bench: Bench) -> None:
    gate = bench.hold("warm", HEAVY)
    bench.work.put(BeginWarmups(resources=BOTH))
    wait_for(lambda: bench.posted == [WarmedUp(resources=ONLY_LIGHT)], "the light one is warm")
    gate.set()
    wait_for(lambda: WarmedUp(resources=ONLY_HEAVY) in bench.posted, "both are warm")
    assert not bench.work.held()


def test_cancelled_warm_up_cools_after_its_callback_has_returned(bench: Bench) -> None:
    gate = bench.hold("warm", HEAVY)
    bench.work.put(BEGIN)
    bench.work.put(CANCEL)
    assert "cool" not in calls(bench)
    gate.set()
    wait_for(lambda: calls(bench) == ["warm", "cool"], "it is cool")
    assert bench.posted == []


def test_warm_up_that_is_wanted_again_is_warm_without_a_second_callback(bench: Bench) -> None:
    gate = bench.hold("warm", HEAVY)
    for notice in (BEGIN, CANCEL, BEGIN):
        bench.work.put(notice)
    gate.set()
    wait_for(lambda: bench.posted == [WarmedUp(resources=ONLY_HEAVY)], "it is warm")
    assert calls(bench) == ["warm"]


def test_warm_up_that_is_wanted_again_while_it_cools_begins_anew(bench: Bench) -> None:
    bench.work.put(BEGIN)
    wait_for(lambda: len(bench.posted) == 1, "it is warm")
    gate = bench.hold("cool", HEAVY)
    bench.work.put(CANCEL)
    wait_for(lambda: calls(bench) == ["warm", "cool"], "it cools")
    bench.work.put(BEGIN)
    gate.set()
    wait_for(lambda: len(bench.posted) == 2, "it is warm again")
    assert calls(bench) == ["warm", "cool", "warm"]


def test_state_that_was_found_and_is_not_wanted_cools(bench: Bench) -> None:
    bench.work.put(CANCEL)
    wait_for(lambda: calls(bench) == ["cool"], "it is cool")
    wait_for(lambda: is_idle(bench), "the callback has returned")
    bench.work.put(CANCEL)
    wait_for(lambda: calls(bench) == ["cool", "cool"], "nothing was remembered")


def test_assigned_resource_starts_when_its_warm_up_has_returned(bench: Bench) -> None:
    gate = bench.hold("warm", HEAVY)
    bench.work.put(BEGIN)
    bench.work.put(GrantResources(resources=BOTH))
    wait_for(lambda: bench.started() == {LIGHT}, "the light one runs")
    assert calls(bench) == ["warm"]
    gate.set()
    wait_for(lambda: bench.started() == {LIGHT, HEAVY}, "both run")
    assert calls(bench) == ["warm", "start"]


def test_assigned_warm_resource_starts_without_cooling(bench: Bench) -> None:
    bench.work.put(BEGIN)
    wait_for(lambda: len(bench.posted) == 1, "it is warm")
    bench.grant(ONLY_HEAVY)
    assert calls(bench) == ["warm", "start"]


def test_resource_that_is_assigned_and_taken_away_during_its_warm_up_never_starts(
    bench: Bench,
) -> None:
    gate = bench.hold("warm", HEAVY)
    bench.work.put(BEGIN)
    bench.work.put(GRANT)
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    wait_for(lambda: RevocationCompleted(resources=ONLY_HEAVY) in bench.posted, "it is given up")
    gate.set()
    wait_for(lambda: is_idle(bench), "the callback has returned")
    assert calls(bench) == ["warm"]


def test_resource_that_is_kept_after_its_stop_warms_up_again(bench: Bench) -> None:
    bench.grant(ONLY_HEAVY)
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    wait_for(lambda: bench.given_up() == [HEAVY], "it has stopped")
    bench.work.put(BEGIN)
    wait_for(lambda: calls(bench) == ["start", "stop", "warm"], "its state is kept")


def test_warm_up_that_raises_is_reported_and_not_repeated(bench: Bench) -> None:
    bench.failures["warm", HEAVY] = [OSError("disk full")]
    bench.work.put(BEGIN)
    failed = WarmupFailed(resources=ONLY_HEAVY, error="OSError: disk full")
    wait_for(lambda: bench.posted == [failed], "the failure is told")
    wait_for(lambda: len(bench.reported) == 1, "the failure is reported")
    (failure,) = bench.reported
    assert (failure.resource, failure.action, str(failure.error)) == (HEAVY, "warm", "disk full")
    record = WorkFailed(resources=ONLY_HEAVY, action="warm", error=failed.error, attempts=1)
    wait_for(lambda: record in bench.written, "telemetry has it")
    bench.work.wake()
    assert calls(bench) == ["warm"]
    bench.work.put(GRANT)  # cold
    wait_for(lambda: bench.started() == {HEAVY}, "it runs")


def test_cooling_that_raises_is_reported_and_not_repeated(bench: Bench) -> None:
    bench.failures["cool", HEAVY] = [OSError("busy")]
    bench.work.put(CANCEL)
    wait_for(lambda: len(bench.reported) == 1, "the failure is reported")
    wait_for(lambda: is_idle(bench), "the callback has returned")
    assert (bench.reported[0].action, calls(bench)) == ("cool", ["cool"])
    assert bench.posted == []


def test_loss_does_not_end_warm_ups(bench: Bench) -> None:
    gate = bench.hold("warm", HEAVY)
    bench.grant(ONLY_LIGHT)
    bench.work.put(BEGIN)
    bench.work.put(LoseResources(resources=ONLY_LIGHT, cause="lease expired"))
    gate.set()
    wait_for(lambda: WarmedUp(resources=ONLY_HEAVY) in bench.posted, "it is warm")


def test_closing_process_begins_no_warm_up(bench: Bench) -> None:
    assert bench.work.close(1.0)
    bench.work.put(BEGIN)
    assert is_idle(bench)
    assert calls(bench) == []


def test_overdue_stop_leaves_no_state_to_keep() -> None:
    bench = Bench(stop_s=0.05)
    gate = bench.hold("stop", HEAVY)
    bench.grant(ONLY_HEAVY)
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    bench.wake_until(lambda: bench.given_up() == [HEAVY], "it is given up")
    assert bench.posted[0] == WarmupFailed(resources=ONLY_HEAVY, error="not stopped in time")
    gate.set()
    bench.pool.close()
