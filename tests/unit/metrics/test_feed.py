"""Values of all members, also of those that are gone or cannot be read."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.health.value import GroupLoad, Health
from coopgroup.metrics import Several
from coopgroup.metrics.events import MemberEvents
from coopgroup.metrics.feed import FeedOptions, MetricsFeed, readings
from coopgroup.metrics.names import METRICS, Kind
from coopgroup.telemetry import Envelope
from tests.support.by_hand import Hand, by_hand
from tests.unit.metrics.members import HEALTH, ROUND, GivenProbe, told


@pytest.fixture(autouse=True)
def hand() -> Iterator[Hand]:
    with by_hand() as hand:
        yield hand


def _feed(drain_horizon_s: float | None = None) -> MetricsFeed:
    return MetricsFeed(FeedOptions(drain_horizon_s=drain_horizon_s))


def _committed(feed: MetricsFeed) -> object:
    return feed.values()["coopgroup_commits_total"]["g", "c", "", "committed"]


def test_member_that_is_gone_has_no_gauges_but_its_commits_stay() -> None:
    feed = _feed()
    kept, gone = GivenProbe(), GivenProbe()
    for probe in (kept, gone):
        feed.watch(probe)
        probe.meter.add(0.1, is_committed=True)
    held = len(HEALTH.owned)
    assert held > 0
    assert set(feed.values()["coopgroup_assigned_partitions"].values()) == {2 * held}
    assert _committed(feed) == 2
    gone.meter.add(0.1, is_committed=True)  # the last commit, after the last collection
    del gone, probe
    gc.collect()
    assert set(feed.values()["coopgroup_assigned_partitions"].values()) == {held}
    assert _committed(feed) == 3


def test_member_that_cannot_be_read_hides_no_other() -> None:
    class Broken(GivenProbe):
        def read(self) -> Health:
            if self.group_load is not None:
                raise RuntimeError("closed")
            return HEALTH

    feed = _feed()
    broken, fine = Broken(), GivenProbe()
    feed.watch(broken)
    feed.watch(fine)
    broken.group_load = GroupLoad(
        members=1, partitions=1, lag=0, arrivals_per_s=None, rates_per_s=()
    )
    assert "coopgroup_standbys" in feed.values()


def test_wanted_members_follow_the_look_ups_of_the_leader() -> None:
    feed, probe = _feed(drain_horizon_s=60.0), GivenProbe()
    listener = feed.watch(probe)
    assert feed.looks
    probe.group_load = GroupLoad(
        members=2, partitions=9, lag=60_000, arrivals_per_s=0.0, rates_per_s=(200.0,)
    )
    feed.look()
    feed.look()
    assert listener.wanted is not None
    assert listener.wanted.value == 5
    probe.group_load = None  # it leads no longer
    feed.look()
    assert listener.wanted.value is None


def test_feed_that_is_dropped_is_collected_before_its_jobs(hand: Hand) -> None:
    feed = _feed(drain_horizon_s=60.0)
    feed.put(None, told())
    hand.run()
    feed.put(None, told())
    gone = weakref.ref(feed._queue)  # noqa: SLF001  (what the jobs refer to)
    del feed
    gc.collect()
    assert gone() is None
    hand.advance(60)
    assert hand.jobs() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": 5}, "limits: got 5, expected HealthLimits"),
        ({"drain_horizon_s": -1}, "drain_horizon_s: got -1, expected seconds above 0"),
        ({"drain_horizon_s": "5"}, "drain_horizon_s: got '5', expected seconds above 0"),
    ],
)
def test_option_that_is_wrong_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FeedOptions(**options)


def _values(health: Health = HEALTH, *, leads: bool = False) -> dict[str, float]:
    events = MemberEvents()
    list(events.changes(told()))
    list(events.changes(told(ROUND)))
    given = evolve(health, leads=leads)
    return {
        ".".join((one.name.removeprefix("coopgroup_"), *one.labels)): one.value
        for one in readings(given, events, 4, 1_000.0)
    }


def test_member_without_partitions_has_no_lease_to_show() -> None:
    assert "lease_remaining_seconds" not in _values(evolve(HEALTH, lease_s=math.inf))


def test_only_the_leader_tells_of_the_group() -> None:
    of_leader = {
        one.name.removeprefix("coopgroup_")
        for one in METRICS.values()
        if one.is_of_leader and one.kind is Kind.GAUGE
    }
    follower, leader = _values(), _values(leads=True)
    assert leader.keys() - follower.keys() == of_leader
    assert (leader["members"], leader["members_wanted"]) == (2, 4)


def test_every_gauge_has_a_value() -> None:
    gauges = {one.name for one in METRICS.values() if one.kind is Kind.GAUGE}
    assert {f"coopgroup_{name}" for name in _values(leads=True)} == gauges


def test_listener_that_raises_keeps_the_record_from_no_other() -> None:
    got: list[Envelope] = []

    def fail(_: Envelope) -> None:
        raise LookupError("first")

    with pytest.raises(LookupError, match="first"):
        Several(fail, got.append)(told())
    assert len(got) == 1


def test_members_are_watched_by_those_that_can() -> None:
    got: list[object] = []

    class Watcher:
        def __call__(self, _: Envelope) -> None:
            raise AssertionError

        def watch_member(self, probe: object) -> object:
            return lambda _: got.append(probe)

    probe = GivenProbe()
    Several(Watcher(), got.append).watch_member(probe)(told())
    assert got[0] is probe
    assert isinstance(got[1], Envelope)
