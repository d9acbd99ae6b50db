"""The probe reads a member without waiting for it."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define, evolve, field

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health import probe as probe_module
from coopgroup.kafka.health.probe import MemberProbe, WorkSample
from coopgroup.kafka.health.progress import PartitionSample
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.leader import Lags
from coopgroup.member.events import LeaveRequested, SubscriptionChanged
from coopgroup.member.parts import LastAssignment
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import HeartbeatRequest
from tests.support.waiting import wait_for
from tests.unit.kafka.one_member_group import ORDERS, WAIT_S, OneMemberGroup, running, subscribe

KEY = ("orders", 0)


@define(eq=False)
class GivenWork:
    """The work that a test gives."""

    sample: WorkSample = field(factory=WorkSample)
    looked_up: list[list[tuple[str, int]]] = field(factory=list)

    def read(self) -> WorkSample:
        return self.sample

    def look_up_ends(self, quiet: list[tuple[str, int]]) -> None:
        self.looked_up.append(quiet)

    def commit_meter(self) -> CommitMeter | None:
        return None


@contextmanager
def _probed(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[MemberProbe, GivenWork, OneMemberGroup]]:
    with running(monkeypatch) as (driver, group):
        work = GivenWork()
        yield MemberProbe(driver, work), work, group


def test_member_before_it_subscribes_is_neither_joined_nor_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _probed(monkeypatch) as (probe, _, _):
        health = probe.read()
        assert (health.group_id, health.client_id, health.state) == (
            "g",
            "coopgroup",
            "unsubscribed",
        )
        assert (health.is_joined, health.is_ready, health.problems()) == (False, False, ())
        assert health.coordinator_silent_s == math.inf


def test_member_in_its_group_is_joined_and_has_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with _probed(monkeypatch) as (probe, work, _):
        subscribe(probe.driver)
        work.sample = WorkSample(owned=ORDERS)
        health = probe.read()
        assert (health.is_joined, health.leads, health.generation) == (True, True, 1)
        assert (health.owned, health.member_id) == (ORDERS, "m")
        assert 0 < health.lease_s <= 0.6
        assert health.coordinator_silent_s < 5
        assert health.problems() == ()


def test_application_that_does_not_poll_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with _probed(monkeypatch) as (probe, _, _):
        subscribe(probe.driver)
        probe.driver.polled_at_s = now_s() - 3
        wait_for(lambda: probe.driver.member.state.value == "losing")
        assert "poll was not called for 3" in probe.read().problems()[0]


def test_member_that_left_is_no_longer_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    with _probed(monkeypatch) as (probe, _, _):
        subscribe(probe.driver)
        probe.driver.post(LeaveRequested(reason="test", for_good=True))
        wait_for(lambda: probe.read().state == "unsubscribed")
        assert not probe.read().is_joined


def test_rebalance_counts_until_the_member_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    with _probed(monkeypatch) as (probe, _, group):
        now = 100.0
        monkeypatch.setattr(probe_module, "now_s", lambda: now)
        group.failure = OSError("no broker")
        probe.driver.post(SubscriptionChanged(topics=("orders",)))
        wait_for(lambda: probe.driver.member.state.value == "joining")
        assert probe.read().rebalancing_s == 0.0
        now = 107.0
        assert probe.read().rebalancing_s == 7.0
        group.failure = None
        wait_for(lambda: probe.driver.member.state.value == "stable")
        assert probe.read().rebalancing_s == 0.0


def test_assignments_that_cannot_be_read_are_a_problem_after_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _probed(monkeypatch) as (probe, _, _):
        subscribe(probe.driver)
        last = LastAssignment(unreadable_since_ms=0, error="version: got 9")
        member = evolve(probe.driver.member, last_assignment=last)
        monkeypatch.setattr(type(probe.driver), "member", property(lambda _: member))
        monkeypatch.setattr(probe_module, "now_s", lambda: 0.9)
        health = probe.read()
        assert health.unreadable_s == 0.9
        assert health.unreadable_s > health.session_timeout_s
        assert "version: got 9" in health.problems()[0]


def test_thread_that_does_not_react_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A telemetry listener of the application hangs."""
    with _probed(monkeypatch) as (probe, _, _):
        assert probe.read().thread_silent_s == 0.0
        wait_for(lambda: probe.read().thread_silent_s == 0.0)
        hangs, goes_on = threading.Event(), threading.Event()

        def hang(_: object) -> None:
            hangs.set()
            goes_on.wait(WAIT_S)

        probe.driver.sink.listener = hang
        probe.driver.post(SubscriptionChanged(topics=("orders",)))
        assert hangs.wait(WAIT_S)
        probe.read()
        later = now_s() + 100
        monkeypatch.setattr(probe_module, "now_s", lambda: later)
        assert probe.read().thread_silent_s > 90
        goes_on.set()
        wait_for(lambda: probe.read().thread_silent_s == 0.0)


def test_quiet_partitions_are_looked_up_and_stuck_ones_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _probed(monkeypatch) as (probe, work, _):
        at = PartitionSample(position=1, end=1)
        work.sample = WorkSample(at_s=1.0, owned=ORDERS, partitions={KEY: at})
        probe.read()
        later = {KEY: evolve(at, end=9)}
        work.sample = WorkSample(at_s=41.0, owned=ORDERS, partitions=later)
        health = probe.read()
        assert work.looked_up == [[KEY]]
        assert [(one.partition, one.since_s) for one in health.stuck] == [(0, 40.0)]
        assert health.lags == {KEY: 8}


def test_load_is_that_of_the_group_that_the_member_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    with _probed(monkeypatch) as (probe, _, group):
        assert probe.load() is None
        subscribe(probe.driver)
        wait_for(lambda: HeartbeatRequest in group.requests)

        def lags(resources: ResourceSet) -> Lags:
            return Lags.from_mapping({"orders": dict.fromkeys(range(len(resources)), 7)})

        monkeypatch.setattr(probe.driver.lookup, "lags", lags, raising=False)
        probe.driver.meter.rate_per_s = 50.0
        load = probe.load()
        assert load is not None
        assert (load.members, load.partitions, load.lag) == (1, 2, 14)
        assert (load.arrivals_per_s, load.rates_per_s) == (None, (50.0,))
