"""The probe reads a member without waiting for it."""

import logging
import math
from collections.abc import Iterator
from socket import gethostname

import pytest
from attrs import define, evolve, field

from coopgroup.core.leader import Lags
from coopgroup.core.member.events import SubscriptionChanged
from coopgroup.core.member.parts import LastAssignment
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import FindCoordinatorAnswer, HeartbeatRequest
from coopgroup.kafka.health.probe import MemberProbe, WorkSample
from coopgroup.kafka.health.progress import PartitionSample
from coopgroup.kafka.records.commit_meter import CommitMeter
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


@define(eq=False)
class Stage:
    probe: MemberProbe
    work: GivenWork
    group: OneMemberGroup


@pytest.fixture
def stage(hand: Hand) -> Iterator[Stage]:
    with running(hand) as (driver, group):
        work = GivenWork()
        yield Stage(MemberProbe(driver, work), work, group)


def test_member_is_joined_and_has_a_lease_after_it_has_subscribed(stage: Stage, hand: Hand) -> None:
    health = stage.probe.read()
    assert (health.group_id, health.client_id) == ("g", gethostname())
    assert (health.state, health.is_joined, health.is_ready) == ("unsubscribed", False, False)
    assert (health.problems(), health.coordinator_silent_s) == ((), math.inf)
    subscribe(hand, stage.probe.driver)
    stage.work.sample = WorkSample(owned=ORDERS)
    health = stage.probe.read()
    assert (health.is_joined, health.leads, health.generation) == (True, True, 1)
    assert (health.owned, health.member_id) == (ORDERS, "m")
    assert health.lease_s == pytest.approx(0.6)
    assert (health.problems(), health.coordinator_silent_s < 5) == ((), True)


def test_rebalance_counts_until_the_member_is_settled(stage: Stage, hand: Hand) -> None:
    stage.group.failure = OSError("no broker")
    stage.probe.driver.post(SubscriptionChanged(topics=("orders",)))
    hand.run()
    assert stage.probe.driver.member.state.value == "joining"
    assert stage.probe.read().rebalancing_s == 0.0
    hand.advance(7.0)
    assert stage.probe.read().rebalancing_s == 7.0
    stage.group.failure = None
    hand.advance(2.0)
    assert stage.probe.driver.member.state.value == "stable"
    assert stage.probe.read().rebalancing_s == 0.0


def test_group_without_a_coordinator_is_named_and_is_no_reason_to_restart(
    stage: Stage, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    """The brokers cannot create __consumer_offsets."""
    refused = FindCoordinatorAnswer(error_code=15, error_message="", coordinator=None)
    stage.group.override = lambda _: refused
    stage.probe.driver.post(SubscriptionChanged(topics=("orders",)))
    hand.advance(9.0)
    assert (stage.probe.read().retried, caplog.messages) == ((), [])
    hand.advance(60.0)
    health = stage.probe.read()
    (why,) = health.retried
    assert why.startswith("FindCoordinator fails for 69.0 s: COORDINATOR_NOT_AVAILABLE: usually ")
    assert (health.problems(), health.group_problems(), health.is_ready) == ((), (why,), False)
    (line,) = caplog.messages
    assert line.startswith(
        "request_retried group=g member='' generation=-1 request=FindCoordinator"
    )
    assert "offsets.topic.replication.factor" in line
    stage.group.override = None
    with caplog.at_level(logging.INFO, logger="coopgroup"):
        hand.advance(2.0)
    assert (stage.probe.read().retried, stage.probe.read().is_ready) == ((), True)
    ended = [one for one in caplog.records if "is_over=True" in one.getMessage()]
    assert [one.levelno for one in ended] == [logging.INFO]


def test_assignments_that_cannot_be_read_are_a_problem_after_a_session(
    stage: Stage, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(hand, stage.probe.driver)
    since_ms = round(hand.now_s * 1000)
    last = LastAssignment(unreadable_since_ms=since_ms, error="version: got 9")
    member = evolve(stage.probe.driver.member, last_assignment=last)
    monkeypatch.setattr(type(stage.probe.driver), "member", property(lambda _: member))
    hand.now_s += 0.9
    health = stage.probe.read()
    monkeypatch.undo()
    assert health.unreadable_s == pytest.approx(0.9)
    assert health.unreadable_s > health.session_timeout_s
    assert "version: got 9" in health.problems()[0]


def test_thread_that_does_not_react_is_a_problem(stage: Stage, hand: Hand) -> None:
    """A telemetry listener of the application hangs."""
    assert stage.probe.read().thread_silent_s == 0.0
    hand.run()
    assert stage.probe.read().thread_silent_s == 0.0
    hand.advance(1.0)
    hand.is_held = lambda _: True
    stage.probe.read()
    hand.advance(100.0)
    assert stage.probe.read().thread_silent_s == 100.0
    hand.is_held = lambda _: False
    hand.run()
    assert stage.probe.read().thread_silent_s == 0.0


def test_quiet_partitions_are_looked_up_and_stuck_ones_reported(stage: Stage) -> None:
    at = PartitionSample(position=1, end=1)
    stage.work.sample = WorkSample(at_s=1.0, owned=ORDERS, partitions={KEY: at})
    stage.probe.read()
    later = {KEY: evolve(at, end=9)}
    stage.work.sample = WorkSample(at_s=41.0, owned=ORDERS, partitions=later)
    health = stage.probe.read()
    assert stage.work.looked_up == [[KEY]]
    assert [(one.partition, one.since_s) for one in health.stuck] == [(0, 40.0)]
    assert health.lags == {KEY: 8}


def test_load_is_that_of_the_group_it_leads(
    stage: Stage, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.probe.load() is None
    subscribe(hand, stage.probe.driver)
    hand.advance(0.02)
    assert HeartbeatRequest in stage.group.requests

    def lags(resources: ResourceSet) -> Lags:
        return Lags.from_mapping({"orders": dict.fromkeys(range(len(resources)), 7)})

    monkeypatch.setattr(stage.probe.driver.lookup, "lags", lags, raising=False)
    stage.probe.driver.meter.rate_per_s = 50.0
    load = stage.probe.load()
    assert load is not None
    assert (load.members, load.partitions, load.lag) == (1, 2, 14)
    assert (load.arrivals_per_s, load.rates_per_s) == (None, (50.0,))
