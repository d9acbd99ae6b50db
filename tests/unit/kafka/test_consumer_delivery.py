"""Records are handed out only while the lease is valid and no notice is pending."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import GrantResources, LoseResources, RevokeResources
from coopgroup.core.member.events import CommitRequested, LossHandled, Offset
from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.causes import Cause
from coopgroup.kafka.callbacks.listener import Callbacks
from coopgroup.worker import Worker
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import FakeLibrdkafka, places, record
from tests.unit.kafka.notice_stage import BOTH, ONE, Stage, owning

WAIT_S = 10.0


@pytest.fixture(autouse=True)
def waits(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each wait in librdkafka; the clock moves while it has no records."""
    found: list[float] = []
    take = FakeLibrdkafka.consume

    def wait(librdkafka: FakeLibrdkafka, count: int, timeout_s: float) -> list[Message]:
        found.append(timeout_s)
        taken = take(librdkafka, count, timeout_s)
        if not taken:
            hand.advance(timeout_s)
        return taken

    def consume(librdkafka: FakeLibrdkafka, count: int, timeout_s: float) -> list[Message]:
        return wait(librdkafka, count, timeout_s) if timeout_s else take(librdkafka, count, 0)

    def poll(librdkafka: FakeLibrdkafka, timeout_s: float) -> Message | None:
        return next(iter(wait(librdkafka, 1, timeout_s)), None)

    monkeypatch.setattr(FakeLibrdkafka, "consume", consume)
    monkeypatch.setattr(FakeLibrdkafka, "poll", poll)
    return found


def later(pause_s: float, call: Callable[[], None]) -> None:
    """Let the group's thread do something after a pause."""
    Worker("group").submit(call, after_s=pause_s)


@pytest.mark.parametrize("timeout_s", [-1, None])
def test_take_when_time_has_no_end_waits_until_full(timeout_s: float | None) -> None:
    stage = owning()
    fetches: list[int] = []

    def feed() -> None:
        fetches.append(1)
        if len(fetches) in {2, 4}:
            stage.librdkafka.feed([record(0, len(fetches))])

    stage.librdkafka.on_fetch = feed
    assert places(stage.delivery.take(2, timeout_s)) == [(0, 2), (0, 4)]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_take_when_the_lease_is_over_gives_nothing(count: int, hand: Hand) -> None:
    """A process that freezes during a fetch wakes up with records of partitions that it lost."""
    stage = owning()
    stage.librdkafka.feed([record(0, 1), record(0, 2)])
    if count:
        stage.librdkafka.on_fetch = lambda: setattr(stage.driver, "lease_until_s", hand.now_s - 1)
    else:  # the call waits for the group
        stage.fetching.fetch(2, 0)
        stage.driver.lease_until_s = hand.now_s
    assert stage.delivery.take(count or 1, 0.02) == []
    stage.librdkafka.on_fetch = None
    stage.driver.lease_until_s = math.inf
    assert places(stage.delivery.take(2, 0)) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("notice", "given"),
    [
        (LoseResources(resources=BOTH, cause="fenced"), []),
        (RevokeResources(resources=ONE), [(0, 1)]),
    ],
)
def test_take_when_a_notice_comes_while_fetching_gives_what_stays(
    notice: Any,  # noqa: ANN401  (those of a group)
    given: list[tuple[int, int]],
) -> None:
    stage = owning()
    stage.librdkafka.feed([record(0, 1), record(1, 1)])
    once = [notice]
    stage.librdkafka.on_fetch = lambda: stage.driver.inbox.put(once.pop()) if once else None
    assert places(stage.delivery.take(2, 0.02)) == given
    if given:
        commits = [one for one in stage.driver.posted if isinstance(one, CommitRequested)]
        assert [one.offsets for one in commits] == [(Offset("t", 1, 1),)]
    else:
        assert stage.driver.posted == [LossHandled()]


def test_take_when_the_clock_says_so_commits_what_was_handed_out(hand: Hand) -> None:
    stage = owning()
    stage.librdkafka.feed([record(0, 1), record(0, 2)])
    stage.delivery.take(1, 0)
    stage.committing.due_at_s = hand.now_s
    stage.delivery.take(0, 0)
    stage.delivery.take(0, 0)
    assert [one.offsets for one in stage.driver.posted] == [(Offset("t", 0, 2), Offset("t", 1, 0))]
    assert stage.committed == [(None, [(0, 2), (1, 0)])]
    assert 0.5 < stage.committing.due_at_s - hand.now_s <= 1.0


def test_take_while_waiting_does_not_count_as_stalled(hand: Hand) -> None:
    """`max.poll.interval.ms` limits the application, not an empty topic."""
    stage = owning()
    seen: list[float] = []
    stage.librdkafka.on_fetch = lambda: seen.append(stage.driver.polled_at_s)
    stage.delivery.take(1, 0)
    assert set(seen) == {math.inf}
    assert stage.driver.polled_at_s <= hand.now_s


def test_take_when_a_callback_raises_keeps_the_records() -> None:
    stage = owning()
    stage.librdkafka.feed([record(0, 1), record(0, 2)])
    stage.delivery.take(1, 0)
    no_positions: dict[str, int] = {}
    stage.listener.callbacks = Callbacks(on_revoke=lambda *_: no_positions["t"])
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    with pytest.raises(KeyError):
        stage.delivery.take(1, 0)
    assert places(stage.delivery.take(1, 0)) == [(0, 2)]


def test_commit_now_when_the_client_ends_does_not_wait_for_ever() -> None:
    stage = owning()
    stage.driver.code = None
    codes = (("t", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)
    later(1.0, lambda: stage.driver.waiting.popitem()[1](codes))
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        stage.committing.commit_now((Offset("t", 0, 5),))


def test_commit_later_when_there_is_nothing_tells_on_commit() -> None:
    """The same as in librdkafka."""
    stage = owning()
    stage.committing.commit_later((), ONE)
    stage.listener.serve()
    assert stage.committed == [("_NO_OFFSET", [(1, -1001)])]


def test_stall_is_an_event_before_the_loss_as_in_confluent_kafka(hand: Hand) -> None:
    """The text and the fields are those that librdkafka 2.16 gave on its mock broker."""
    stage = owning()
    lost: list[int] = []
    stage.listener.callbacks = Callbacks(on_lost=lambda _, some: lost.append(len(some)))
    stage.driver.settings.max_poll_interval_ms = 6_000
    stage.driver.polled_at_s = hand.now_s - 6.5
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause=Cause.NOT_POLLED))
    [event] = stage.delivery.take(1, 0)
    error = event.error()
    assert error is not None
    assert (error.name(), error.fatal(), error.retriable()) == ("_MAX_POLL_EXCEEDED", False, False)
    said = re.fullmatch(
        r"Application maximum poll interval \(6000ms\) exceeded by (\d+)ms", error.str()
    )
    assert said is not None
    assert 500 <= int(said.group(1)) < 5_000
    assert event.value() == error.str().encode()
    place = (event.topic(), event.partition(), event.offset(), event.key(), event.timestamp())
    assert place == (None, 0, None, None, (0, -1))
    assert lost == []
    assert stage.driver.polled_at_s > hand.now_s - 1
    assert stage.delivery.take(1, 0) == []
    assert lost == [2]
    assert stage.delivery.take(5, 0) == []  # reported once


def test_take_when_an_offset_comes_late_begins_with_it() -> None:
    stage = owning()
    fetching = stage.fetching
    coordinator: Any = fetching.starts.lookup.transport
    stage.listener.owned = ResourceSet()
    fetching.end(BOTH)
    coordinator.is_silent = True
    stage.driver.inbox.put(GrantResources(resources=BOTH))
    assert stage.delivery.take(1, 0.01) == []
    assert fetching.fetched == ResourceSet()
    ((request, hear),) = coordinator.waiting
    stage.librdkafka.log = [record(0, 1)]

    def answer() -> None:
        coordinator.is_silent = False
        hear(coordinator.answer(request))
        stage.driver.inbox.wake()

    later(0.05, answer)
    assert places(stage.delivery.take(1, WAIT_S)) == [(0, 1)]
    assert fetching.fetched == BOTH


def test_take_waits_in_whole_milliseconds_until_its_end(waits: list[float], hand: Hand) -> None:
    """Librdkafka rounds down: it would be asked again and again in the last millisecond."""
    stage = owning()
    began_s = hand.now_s
    assert stage.delivery.take(1, 0.0705) == []
    assert hand.now_s - began_s >= 0.07
    assert min(waits) >= 0.001
    assert len(waits) <= 4


def test_take_without_partitions_waits_for_the_group(waits: list[float]) -> None:
    """Its notices wake the thread; librdkafka only runs its callbacks."""
    stage = Stage()
    stage.driver.is_quiet = False
    notice = GrantResources(resources=ONE)
    later(0.05, lambda: stage.driver.inbox.put(notice))
    assert stage.delivery.take(1, 0.5) == []
    assert stage.heard == [("assign", [1])]
    assert waits[0] == 0.0
