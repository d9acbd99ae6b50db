"""The probe reads a member without waiting for it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define, evolve, field

from coopgroup.kafka.health.probe import MemberProbe, WorkSample
from coopgroup.kafka.health.progress import PartitionSample
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.leader import Lags
from coopgroup.member.events import LeaveRequested, SubscriptionChanged, Woken
from coopgroup.member.parts import LastAssignment
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import HeartbeatRequest
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import ORDERS, OneMemberGroup, running, subscribe

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
def _probed(hand: Hand) -> Iterator[tuple[MemberProbe, GivenWork, OneMemberGroup]]:
    with running(hand) as (driver, group):
        work = GivenWork()
        yield MemberProbe(driver, work), work, group


def test_member_is_joined_and_has_a_lease_after_it_has_subscribed(hand: Hand) -> None:
    with _probed(hand) as (probe, work, _):
        health = probe.read()
        assert (health.group_id, health.client_id) == ("g", "coopgroup")
        assert (health.state, health.is_joined, health.is_ready) == ("unsubscribed", False, False)
        assert (health.problems(), health.coordinator_silent_s) == ((), math.inf)
        subscribe(hand, probe.driver)
        work.sample = WorkSample(owned=ORDERS)
        health = probe.read()
        assert (health.is_joined, health.leads, health.generation) == (True, True, 1)
        assert (health.owned, health.member_id) == (ORDERS, "m")
        assert health.lease_s == pytest.approx(0.6)
        assert (health.problems(), health.coordinator_silent_s < 5) == ((), True)


def test_application_that_does_not_poll_is_a_problem(hand: Hand) -> None:
    with _probed(hand) as (probe, _, _):
        subscribe(hand, probe.driver)
        probe.driver.polled_at_s = hand.now_s - 3
        probe.driver.post(Woken())
        hand.run()
        assert probe.driver.member.state.value == "losing"
        assert "poll was not called for 3" in probe.read().problems()[0]


def test_member_that_left_is_no_longer_joined(hand: Hand) -> None:
    with _probed(hand) as (probe, _, _):
        subscribe(hand, probe.driver)
        probe.driver.post(LeaveRequested(reason="test", for_good=True))
        hand.run()
        assert probe.read().state == "unsubscribed"
        assert not probe.read().is_joined


def test_rebalance_counts_until_the_member_is_settled(hand: Hand) -> None:
    with _probed(hand) as (probe, _, group):
        group.failure = OSError("no broker")
        probe.driver.post(SubscriptionChanged(topics=("orders",)))
        hand.run()
        assert probe.driver.member.state.value == "joining"
        assert probe.read().rebalancing_s == 0.0
        hand.advance(7.0)
        assert probe.read().rebalancing_s == 7.0
        group.failure = None
        hand.advance(2.0)
        assert probe.driver.member.state.value == "stable"
        assert probe.read().rebalancing_s == 0.0


def test_assignments_that_cannot_be_read_are_a_problem_after_a_session(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _probed(hand) as (probe, _, _):
        subscribe(hand, probe.driver)
        since_ms = round(hand.now_s * 1000)
        last = LastAssignment(unreadable_since_ms=since_ms, error="version: got 9")
        member = evolve(probe.driver.member, last_assignment=last)
        monkeypatch.setattr(type(probe.driver), "member", property(lambda _: member))
        hand.now_s += 0.9
        health = probe.read()
        monkeypatch.undo()
        assert health.unreadable_s == pytest.approx(0.9)
        assert health.unreadable_s > health.session_timeout_s
        assert "version: got 9" in health.problems()[0]


def test_thread_that_does_not_react_is_a_problem(hand: Hand) -> None:
    """A telemetry listener of the application hangs."""
    with _probed(hand) as (probe, _, _):
        assert probe.read().thread_silent_s == 0.0
        hand.run()
        assert probe.read().thread_silent_s == 0.0
        hand.advance(1.0)
        hand.is_held = lambda _: True
        probe.read()
        hand.advance(100.0)
        assert probe.read().thread_silent_s == 100.0
        hand.is_held = lambda _: False
        hand.run()
        assert probe.read().thread_silent_s == 0.0


def test_quiet_partitions_are_looked_up_and_stuck_ones_reported(hand: Hand) -> None:
    with _probed(hand) as (probe, work, _):
        at = PartitionSample(position=1, end=1)
        work.sample = WorkSample(at_s=1.0, owned=ORDERS, partitions={KEY: at})
        probe.read()
        later = {KEY: evolve(at, end=9)}
        work.sample = WorkSample(at_s=41.0, owned=ORDERS, partitions=later)
        health = probe.read()
        assert work.looked_up == [[KEY]]
        assert [(one.partition, one.since_s) for one in health.stuck] == [(0, 40.0)]
        assert health.lags == {KEY: 8}


def test_load_is_that_of_the_group_it_leads(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    with _probed(hand) as (probe, _, group):
        assert probe.load() is None
        subscribe(hand, probe.driver)
        hand.advance(0.02)
        assert HeartbeatRequest in group.requests

        def lags(resources: ResourceSet) -> Lags:
            return Lags.from_mapping({"orders": dict.fromkeys(range(len(resources)), 7)})

        monkeypatch.setattr(probe.driver.lookup, "lags", lags, raising=False)
        probe.driver.meter.rate_per_s = 50.0
        load = probe.load()
        assert load is not None
        assert (load.members, load.partitions, load.lag) == (1, 2, 14)
        assert (load.arrivals_per_s, load.rates_per_s) == (None, (50.0,))
