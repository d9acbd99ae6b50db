"""The application behind a consumer: each resource is stopped and restored separately."""

from collections.abc import Callable

import pytest

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.simulator.checkers import check_instants
from coopgroup.simulator.host.local_state import LocalState
from coopgroup.simulator.scenario import Cost, Span
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.world.costs import Costs
from coopgroup.telemetry import (
    CommitFailed,
    OffsetsCommitted,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
)
from tests.support.group_requests import REBALANCE_MS
from tests.support.reports import reports
from tests.support.simulated import quiet_group

HEAVY = ResourceSet({"T": [1, 3]})


def with_heavy_resources(stop_ms: int = 0, restore_ms: int = 0) -> Simulation:
    """Return a group in which some resources are slow to stop or restore."""
    group = quiet_group()
    slow = Cost(
        resources=HEAVY, stop_ms=Span(stop_ms, stop_ms), restore_ms=Span(restore_ms, restore_ms)
    )
    group.costs = Costs(group.world.dice("costs"), (slow,))
    return group


def stops(group: Simulation) -> list[tuple[int, ResourcesStopped]]:
    found = reports(group.world.telemetry, ResourcesStopped)
    return [(one.at_ms, record) for one, record in found]


def test_light_resources_do_not_wait_for_heavy_ones_to_be_restored() -> None:
    group = with_heavy_resources(restore_ms=300)
    group.start("a", ("T",))
    group.run(1_000)
    (first, light), (second, heavy) = reports(group.world.telemetry, ResourcesStarted)
    assert (light.resources & HEAVY, heavy.resources) == (ResourceSet(), HEAVY)
    assert second.at_ms - first.at_ms == 300


def _is_revoked(group: Simulation) -> None:
    group.start("b", ("T",))


def _is_lost(group: Simulation) -> None:
    group.alive[0].stall()


def _is_closed(group: Simulation) -> None:
    group.alive[0].close()


@pytest.mark.parametrize(
    ("end", "after_ms"), [(_is_revoked, 1_000), (_is_lost, 1), (_is_closed, 1_000)]
)
def test_end_of_work_that_never_began_is_not_told(
    end: Callable[[Simulation], None], after_ms: int
) -> None:
    """As in production. The heavy resources are still being restored."""
    group = with_heavy_resources(restore_ms=100_000)
    process = group.start("a", ("T",))
    group.run(1_000)
    before = process.application.owned
    end(group)
    group.run(after_ms)
    gone = before - process.application.owned
    assert gone & HEAVY
    told = ResourceSet.union_all([record.resources for _, record in stops(group)])
    assert told == gone - HEAVY
    assert list(check_instants(group.world.telemetry, stop_max_ms=REBALANCE_MS)) == []


def test_what_takes_too_long_to_stop_is_lost_and_given_up() -> None:
    """After `max.poll.interval.ms`, as in production. No other resource is lost."""
    group = with_heavy_resources(stop_ms=10 * REBALANCE_MS)
    group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.start("b", ("T",))
    group.start("c", ("T",))
    assert group.run_until_rest(3 * REBALANCE_MS, 200)
    lost = [record for _, record in stops(group) if record.reason is StopReason.LOST]
    assert {record.duration_ms for record in lost} == {REBALANCE_MS}
    assert all(record.resources <= HEAVY for record in lost)
    assert list(check_instants(group.world.telemetry, stop_max_ms=REBALANCE_MS)) == []
    assert sum(len(process.application.working) for process in group.alive) == 4


def test_offsets_are_committed_before_a_resource_is_given_up() -> None:
    group = quiet_group(partitions=2)
    group.commit_interval_ms = 0
    group.start("a", ("T",))
    assert group.run_until_rest(5_000, 500)
    assert group.brokers.coordinator.committed == {}
    group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    (stopped_ms, stopped) = stops(group)[0]
    ((one, committed),) = reports(group.world.telemetry, OffsetsCommitted)
    assert committed.resources == stopped.resources
    assert one.at_ms <= stopped_ms
    began_ms = stopped_ms - stopped.duration_ms
    assert committed.offsets[0] >= began_ms * 50 // 1_000 - 1


def test_late_commit_of_a_resource_that_another_member_owns_is_refused() -> None:
    group = quiet_group()
    group.run_settings.late_commit_ms = 300
    group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.run(300)
    ((_, stop),) = stops(group)
    ((_, failed),) = reports(group.world.telemetry, CommitFailed)
    assert (failed.resources, failed.error) == (stop.resources, "ILLEGAL_GENERATION")
    assert list(check_instants(group.world.telemetry, stop_max_ms=REBALANCE_MS)) == []


def test_rate_when_there_is_always_more_to_do_is_the_capacity() -> None:
    group = quiet_group()
    slow = group.start("a", ("T",), capacity_per_s=5)
    quick = group.start("b", ("T",), capacity_per_s=1_000_000)
    group.set_rate("T", tuple(range(4)), 100)
    group.run(20_000)
    assert (slow.application.rate_per_s, quick.application.rate_per_s) == (5, None)
    slow.application.settle()
    slow.application.capacity_per_s = 15
    group.run(10_000)
    assert 10 < (slow.application.rate_per_s or 0) < 12
    group.start("c", ("T",))
    group.run(3_000)
    told = [one.session.member.next_join.consumption_rate_per_s for one in (slow, quick)]
    assert (10 < (told[0] or 0) < 13, told[1]) == (True, None)


# --- the state that an application keeps: restored, being restored, and deleted -------------------


def some(*indices: int) -> ResourceSet:
    return ResourceSet({"T": indices})


def test_end_of_a_cancelled_warm_up_finishes_no_later_one() -> None:
    state = LocalState(is_kept=True)
    state.begin(some(0, 1), 30)
    state.drop(some(0))
    state.begin(some(0), 50)
    assert state.finish(some(0, 1), 30) == some(1)
    assert state.finish(some(0), 50) == some(0)


def test_assigned_resource_ends_its_warm_up_and_says_when_it_would_have_ended() -> None:
    state = LocalState(is_kept=True)
    state.begin(some(0), 30)
    state.begin(some(1), 40)
    assert state.take_restoring(some(0, 2)) == {30: some(0)}
    assert state.finish(some(0), 30) == EMPTY
    assert state.is_restoring
