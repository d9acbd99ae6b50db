"""Topics and partitions that appear and vanish."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.core.leader import TopicMetadata
from coopgroup.core.member.events import RejoinRequested, SubscriptionChanged
from coopgroup.core.model import ResourceSet
from coopgroup.core.session import SeenTopics
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.watching import TopicWatcher, TopicWish
from coopgroup.worker import Job, Worker
from tests.support.by_hand import Hand


@define
class Cluster:
    """Topics by name, with their partitions; or an error.

    Attributes:
        on_look: an event of the next look-up.
    """

    topics: dict[str, list[int]]
    error: Exception | None = None
    is_in_doubt: bool = False
    on_look: Callable[[], None] | None = None
    is_unused: bool = True
    looked: list[str] = field(factory=list)

    def _look(self, what: str) -> None:
        self.looked.append(what)
        on_look, self.on_look = self.on_look, None
        if on_look is not None:
            on_look()
        if self.error is not None:
            raise self.error

    def topic_names(self) -> tuple[str, ...]:
        self._look("names")
        return tuple(sorted(self.topics))

    def forget_names(self) -> None:
        pass

    def metadata(self, names: tuple[str, ...]) -> TopicMetadata:
        known = {name: self.topics[name] for name in names if name in self.topics}
        self._look("metadata")
        return TopicMetadata(resources=ResourceSet(known))

    def give_back(self, unused_s: float) -> bool:
        self.looked.append("given back" if self.is_unused else "kept")
        return self.is_unused

    def close(self) -> None:
        pass


@define
class Watched:
    """A watcher with its posts and warnings; the hand is the clock of the transport."""

    hand: Hand
    cluster: Cluster
    leads: bool = False
    refresh_ms: int = 20
    assigned: Any = None
    posted: list[Any] = field(factory=list)
    warned: list[str] = field(factory=list)
    watcher: TopicWatcher = field(init=False)
    _transport: Worker = field(factory=lambda: Worker("transport"), init=False)

    def __attrs_post_init__(self) -> None:
        unused, cluster = cast("Any", None), cast("Any", self.cluster)
        sink: Any = SimpleNamespace(warn=lambda event, **_: self.warned.append(event))
        self.assigned = RoundLeader(
            assignor=unused,
            policy=unused,
            lookup=unused,
            timeout_ms=1,
            post=unused,
            sink=sink,
            seen=SeenTopics(topics=("a", "b"), partitions=ResourceSet({"a": [0]})),
        )
        self.watcher = TopicWatcher(
            lookup=cluster,
            leader=self.assigned,
            leads=lambda: self.leads,
            post=self.posted.append,
            later=self._later,
            refresh_ms=self.refresh_ms,
        )

    def _later(self, pause_s: float, action: Callable[[], None]) -> None:
        self._transport.submit(action, after_s=pause_s)

    def watch(self, *topics: str) -> None:
        self.watcher.watch(TopicWish.read(topics))


def test_patterns_are_posted_whenever_other_topics_match(hand: Hand) -> None:
    watched = Watched(hand, Cluster({"orders": [0]}))
    watched.watch("^o")
    hand.advance(0.05)
    assert watched.cluster.looked == ["names"] * 3
    watched.cluster.topics = {"orders": [0], "other": [0], "third": [0]}
    hand.advance(0.05)
    watched.cluster.topics = {"third": [0]}
    hand.advance(0.05)
    matches = [("orders",), ("orders", "other"), ()]
    assert watched.posted == [SubscriptionChanged(topics=one) for one in matches]


def test_leader_asks_for_a_round_when_partitions_change(hand: Hand) -> None:
    watched = Watched(hand, Cluster({"a": [0]}), leads=True)
    watched.watch("a", "b")
    hand.advance(0.6)
    assert watched.posted == [SubscriptionChanged(topics=("a", "b"))]
    assert len(watched.cluster.looked) > 3
    for topics in ({"a": [0, 1]}, {"a": [0, 1], "b": [0]}, {"b": [0]}):
        watched.posted.clear()
        watched.cluster.topics = topics
        hand.advance(0.05)
        assert watched.posted == [RejoinRequested(reason="partitions changed")]
        assert watched.assigned.seen == SeenTopics(
            topics=("a", "b"), partitions=ResourceSet(topics)
        )


def test_look_when_a_round_is_led_meanwhile_counts_for_nothing(hand: Hand) -> None:
    watched = Watched(hand, Cluster({"a": [0, 1], "c": [0]}), leads=True, refresh_ms=600_000)
    led = SeenTopics(topics=("c",), partitions=ResourceSet({"c": [0]}))

    def lead() -> None:
        watched.assigned.seen = led

    watched.cluster.on_look = lead
    watched.watch("a", "b")
    hand.advance(2.0)
    assert watched.cluster.looked == ["metadata"] * 2
    assert watched.assigned.seen is led
    assert watched.posted == [SubscriptionChanged(topics=("a", "b"))]


def test_look_that_fails_is_tried_again_and_told_once_after_a_time(hand: Hand) -> None:
    error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    watched = Watched(hand, Cluster({"orders": [0]}, error), refresh_ms=-1)
    watched.watch("^o")
    hand.advance(9.0)
    assert (watched.warned, watched.posted) == ([], [])
    hand.advance(60.0)
    assert (watched.warned, watched.posted) == (["topics_unavailable"], [])
    watched.cluster.error = None
    hand.advance(1.0)
    assert watched.posted == [SubscriptionChanged(topics=("orders",))]
    assert watched.warned == ["topics_unavailable", "topics_available"]


@pytest.mark.parametrize("ends", ["leader", "watcher"])
def test_look_that_the_close_ends_is_no_failure(hand: Hand, ends: str) -> None:
    """A program that ended without `close` printed a warning now and then."""
    watched = Watched(hand, Cluster({"orders": [0]}, TimeoutError("no answer")))

    def close() -> None:
        if ends == "leader":
            watched.assigned.is_stopped = True
        else:
            watched.watcher.finish(lambda: None)

    watched.cluster.on_look = close
    watched.watch("^o")
    hand.run()
    assert watched.cluster.looked == ["names"]
    assert watched.warned == []


def test_wish_when_it_comes_during_a_look_is_looked_for_at_once(hand: Hand) -> None:
    """After the look, the watcher has no job until the next one is due."""
    watched = Watched(hand, Cluster({"orders": [0], "bills": [0]}), refresh_ms=600_000)
    watched.cluster.on_look = lambda: watched.watch("^b")
    watched.watch("^o")
    hand.run()
    assert watched.posted == [SubscriptionChanged(topics=("bills",))]
    assert hand.jobs("coopgroup-watcher") == []
    hand.advance(599.0)
    assert watched.cluster.looked == ["names"] * 2
    hand.advance(1.0)
    assert watched.cluster.looked == ["names"] * 3


def posix_matches(pattern: str, topic: str) -> bool:
    """Match like librdkafka, with POSIX extended regular expressions of the C library."""
    library = ctypes.CDLL(None)
    compiled = ctypes.create_string_buffer(256)  # larger than any regex_t
    extended, no_positions = 1, 8
    assert library.regcomp(compiled, pattern.encode(), extended | no_positions) == 0
    found = library.regexec(compiled, topic.encode(), 0, None, 0) == 0
    library.regfree(compiled)
    return bool(found)


def _patterns_find_what_they_find_in_librdkafka(pattern: str) -> None:
    topics = ["orders", "orders-1", "Orders-12", "bills-3", "a.b", "axb", "__consumer_offsets"]
    topics += ["_x", "o", "7days", "orders_abc", "d-1", "ORDERS", "x-fff", "a"]
    found = [one for one in topics if posix_matches(pattern, one)]
    expected = tuple(sorted(one for one in found if not one.startswith("__")))
    assert TopicWish.read([pattern]).matching(topics) == expected


def test_patterns_find_what_they_find_in_librdkafka(subtests: pytest.Subtests) -> None:
    for pattern in [
        "^orders",
        "^orders$",
        "^orders-[[:digit:]]+$",
        "^[[:alpha:]][[:alnum:]._-]*$",
        "^[^[:upper:]]+$",
        "^[][:digit:]o]+",
        "^[^]o]",
        "^[[:lower:][:digit:]-]+$",
        "^[[:punct:]]",
        "^.*[[:xdigit:]]{3}$",
        "^(orders|bills)(-[0-9]{1,2})?$",
        "^o.*s-?",
        r"^a\.b$",
        r"^[a-z]+\.[[:alpha:]]$",
        "^[:digit:]",
        "^__",
    ]:
        with subtests.test(pattern=pattern):
            _patterns_find_what_they_find_in_librdkafka(pattern)


def test_patterns_find_no_internal_topic_and_none_of_coopgroup(hand: Hand) -> None:
    """The names in full find them."""
    cluster = Cluster({name: [0] for name in ("__consumer_offsets", "bell", "orders", "_own")})
    watched = Watched(hand, cluster)
    watched.watcher.hidden = {"bell"}
    watched.watch("^.*")
    hand.run()
    assert watched.posted == [SubscriptionChanged(topics=("_own", "orders"))]
    watched.watch("^o", "bell", "__consumer_offsets")
    hand.run()
    expected = SubscriptionChanged(topics=("__consumer_offsets", "bell", "orders"))
    assert watched.posted[-1] == expected


def test_clients_are_given_back_when_they_are_idle(hand: Hand) -> None:
    watched = Watched(hand, Cluster({}, is_unused=False))
    watched.watcher.give_back_soon()
    hand.advance(45.0)
    assert watched.cluster.looked == ["kept"] * 3
    watched.cluster.is_unused = True
    hand.advance(600.0)
    assert watched.cluster.looked[3:] == ["given back"]
    watched.watcher.stop()  # the close frees them
    watched.watcher.give_back_soon()
    hand.advance(600.0)
    assert len(watched.cluster.looked) == 4


def test_watcher_without_a_free_thread_tries_again(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(hand, Cluster({"orders": [0]}))
    submit, refused = Worker.submit, [True, True]

    def refuse(worker: Worker, call: Callable[[], None], **more: Any) -> Job:  # noqa: ANN401
        if worker.name == "coopgroup-watcher" and refused:
            refused.pop()
            raise RuntimeError("can't start new thread")
        return submit(worker, call, **more)

    monkeypatch.setattr(Worker, "submit", refuse)
    watched.watch("^o")
    hand.advance(2.0)
    assert watched.posted == [SubscriptionChanged(topics=("orders",))]
    assert refused == []


@pytest.mark.parametrize("is_looking", [False, True])
def test_watcher_of_a_dropped_consumer_does_the_last_duty_once(
    hand: Hand, *, is_looking: bool
) -> None:
    watched = Watched(hand, Cluster({"orders": [0]}), refresh_ms=0 if is_looking else 600_000)
    done: list[str] = []

    def finish() -> None:
        watched.watcher.finish(lambda: done.append("duty"))

    if is_looking:
        watched.cluster.on_look = finish
        watched.watch("^o")
    else:
        finish()
    hand.advance(60.0)
    assert done == ["duty"]


def test_topics_that_match_a_pattern_later_have_appeared(hand: Hand) -> None:
    watched = Watched(hand, Cluster({"orders": [0]}))
    sighted: list[list[str]] = []
    watched.watcher.sight = lambda topics: sighted.append(sorted(topics))
    watched.watch("^o", "named")
    hand.advance(0.05)
    watched.cluster.topics = {"orders": [0], "other": [0]}
    hand.advance(0.05)
    seen = watched.watcher.first_look.has_appeared
    assert [seen("orders", 0), seen("other", 0), seen("named", 0)] == [False, True, False]
    assert (sighted[0], sighted[-1]) == (["orders"], ["orders", "other"])
    watched.watch("^o")
    assert not seen("other", 0)
