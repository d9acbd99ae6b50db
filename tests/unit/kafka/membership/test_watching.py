"""Topics and partitions that appear and vanish."""

from __future__ import annotations

import ctypes
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.watching import TopicWatcher, TopicWish
from coopgroup.leader import TopicMetadata
from coopgroup.member.events import RejoinRequested, SubscriptionChanged, Woken
from coopgroup.model import ResourceSet
from coopgroup.session import SeenTopics
from tests.support.waiting import wait_for

WAIT_S = 5.0


def test_wish_finds_names_and_what_patterns_match() -> None:
    wish = TopicWish.read(["^order", "bills", "^.*s$", "bills"])
    assert wish.matching(["orders", "order-1", "my-order", "tests"]) == (
        "bills",
        "order-1",
        "orders",
        "tests",
    )


def test_wish_when_a_pattern_is_invalid_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"topics: got '\^\[', expected a regular"):
        TopicWish.read(["^["])


@define
class Cluster:
    """Topics by name, with their partitions; or an error."""

    topics: dict[str, list[int]]
    error: Exception | None = None
    is_in_doubt: bool = False
    on_look: Callable[[], None] | None = None
    is_unused: bool = True
    looked: queue.SimpleQueue[str] = field(factory=queue.SimpleQueue)

    def _happen(self) -> None:
        """Run the event of this look-up, once."""
        on_look, self.on_look = self.on_look, None
        if on_look is not None:
            on_look()

    def topic_names(self) -> tuple[str, ...]:
        self.looked.put("names")
        self._happen()
        if self.error is not None:
            raise self.error
        return tuple(sorted(self.topics))

    def forget_names(self) -> None:
        pass

    def metadata(self, names: tuple[str, ...]) -> TopicMetadata:
        self.looked.put("metadata")
        known = {name: self.topics[name] for name in names if name in self.topics}
        self._happen()
        return TopicMetadata(resources=ResourceSet(known))

    def give_back(self, unused_s: float) -> bool:
        self.looked.put("given back" if self.is_unused else "kept")
        return self.is_unused

    def close(self) -> None:
        pass


@define
class Watched:
    """A watcher, with its posts and warnings, and a thread that begins its work."""

    cluster: Cluster
    leads: bool = False
    refresh_ms: int = 20
    assigned: Any = None
    posted: queue.SimpleQueue[Any] = field(factory=queue.SimpleQueue)
    warned: queue.SimpleQueue[str] = field(factory=queue.SimpleQueue)
    watcher: TopicWatcher = field(init=False)
    woken: threading.Event = field(factory=threading.Event)
    thread: threading.Thread | None = None
    is_over: bool = False

    def __attrs_post_init__(self) -> None:
        unused: Any = None
        leader = RoundLeader(
            assignor=unused,
            policy=unused,
            lookup=unused,
            timeout_ms=1,
            post=unused,
            sink=unused,
            seen=SeenTopics(topics=("a", "b"), partitions=ResourceSet({"a": [0]})),
        )
        self.assigned = leader
        lookup: Any = self.cluster
        sink: Any = SimpleNamespace(warn=self._warn)
        self.watcher = TopicWatcher(
            lookup=lookup,
            leader=leader,
            leads=lambda: self.leads,
            post=self._post,
            sink=sink,
            refresh_ms=self.refresh_ms,
        )

    def _post(self, event: Any) -> None:  # noqa: ANN401  (any event)
        if isinstance(event, Woken):
            self.woken.set()
        else:
            self.posted.put(event)

    def _warn(self, event: str, **_: object) -> None:
        self.warned.put(event)

    def start(self) -> None:
        """Do what the group's thread does for the watcher."""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over:
            self.woken.wait(max(0.0, min(1.0, self.watcher.due_s - now_s())))
            self.woken.clear()
            if now_s() >= self.watcher.due_s:
                self.watcher.begin()

    def stop(self) -> None:
        self.watcher.stop()
        self.is_over = True
        self.woken.set()
        if self.thread is not None:
            self.thread.join(WAIT_S)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coopgroup.kafka.membership.watching._RETRY_MS", 50)


@pytest.fixture
def running() -> Iterator[list[Watched]]:
    started: list[Watched] = []
    yield started
    for one in started:
        one.stop()


def test_names_are_posted_at_once_without_a_look() -> None:
    watched = Watched(Cluster({}))
    watched.watcher.watch(TopicWish.read(["b", "a"]))
    assert watched.posted.get_nowait() == SubscriptionChanged(topics=("a", "b"))


def test_patterns_are_posted_whenever_other_topics_match(running: list[Watched]) -> None:
    watched = Watched(Cluster({"orders": [0]}))
    running.append(watched)
    watched.start()
    watched.watcher.watch(TopicWish.read(["^o"]))
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("orders",))
    for _ in range(3):
        assert watched.cluster.looked.get(timeout=WAIT_S) == "names"
    assert watched.posted.empty()
    watched.cluster.topics = {"orders": [0], "other": [0], "third": [0]}
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("orders", "other"))
    watched.cluster.topics = {"third": [0]}
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=())


def test_leader_asks_for_a_round_when_partitions_change(running: list[Watched]) -> None:
    watched = Watched(Cluster({"a": [0]}), leads=True)
    running.append(watched)
    watched.start()
    watched.watcher.watch(TopicWish.read(["a", "b"]))
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("a", "b"))
    for _ in range(3):
        assert watched.cluster.looked.get(timeout=WAIT_S) == "metadata"
    assert watched.posted.empty()
    for topics in ({"a": [0, 1]}, {"a": [0, 1], "b": [0]}, {"b": [0]}):
        watched.cluster.topics = topics
        assert watched.posted.get(timeout=WAIT_S) == RejoinRequested(reason="partitions changed")
        assert watched.assigned.seen == SeenTopics(
            topics=("a", "b"), partitions=ResourceSet(topics)
        )


def test_look_when_a_round_is_led_meanwhile_counts_for_nothing(
    running: list[Watched], quick_retries: None
) -> None:
    watched = Watched(Cluster({"a": [0, 1], "c": [0]}), leads=True, refresh_ms=600_000)
    running.append(watched)
    led = SeenTopics(topics=("c",), partitions=ResourceSet({"c": [0]}))

    def lead() -> None:
        watched.assigned.seen = led

    watched.cluster.on_look = lead
    watched.watcher.watch(TopicWish.read(["a", "b"]))
    assert watched.posted.get_nowait() == SubscriptionChanged(topics=("a", "b"))
    watched.start()
    for _ in range(2):
        assert watched.cluster.looked.get(timeout=WAIT_S) == "metadata"
    assert watched.assigned.seen is led
    assert watched.posted.empty()


def test_look_that_fails_is_told_and_tried_again(
    running: list[Watched], quick_retries: None
) -> None:
    error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    watched = Watched(Cluster({"orders": [0]}, error), refresh_ms=-1)
    running.append(watched)
    watched.start()
    watched.watcher.watch(TopicWish.read(["^o"]))
    assert watched.warned.get(timeout=WAIT_S) == "topics_unavailable"
    watched.cluster.error = None
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("orders",))


def test_wish_when_withdrawn_is_looked_for_no_more(running: list[Watched]) -> None:
    watched = Watched(Cluster({"orders": [0]}))
    running.append(watched)
    watched.watcher.watch(TopicWish.read(["^o"]))
    watched.watcher.watch(None)
    watched.start()
    with pytest.raises(queue.Empty):
        watched.cluster.looked.get(timeout=0.1)
    assert watched.posted.empty()


def test_wish_when_it_comes_during_a_look_is_looked_for_at_once(running: list[Watched]) -> None:
    watched = Watched(Cluster({"orders": [0], "bills": [0]}), refresh_ms=600_000)
    running.append(watched)
    watched.cluster.on_look = lambda: watched.watcher.watch(TopicWish.read(["^b"]))
    watched.watcher.watch(TopicWish.read(["^o"]))
    watched.start()
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("bills",))


def posix_matches(pattern: str, topic: str) -> bool:
    """Match like librdkafka, with POSIX extended regular expressions of the C library."""
    library = ctypes.CDLL(None)
    compiled = ctypes.create_string_buffer(256)  # larger than any regex_t
    extended, no_positions = 1, 8
    assert library.regcomp(compiled, pattern.encode(), extended | no_positions) == 0
    found = library.regexec(compiled, topic.encode(), 0, None, 0) == 0
    library.regfree(compiled)
    return bool(found)


@pytest.mark.parametrize(
    "pattern",
    [
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
    ],
)
def test_patterns_find_what_they_find_in_librdkafka(pattern: str) -> None:
    topics = ["orders", "orders-1", "Orders-12", "bills-3", "a.b", "axb", "__consumer_offsets"]
    topics += ["_x", "o", "7days", "orders_abc", "d-1", "ORDERS", "x-fff", "a"]
    expected = tuple(sorted(one for one in topics if posix_matches(pattern, one)))
    assert TopicWish.read([pattern]).matching(topics) == expected


def test_clients_are_given_back_when_they_are_idle(
    running: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coopgroup.kafka.membership.watching._GIVE_BACK_S", 0.01)
    watched = Watched(Cluster({}, is_unused=False))
    running.append(watched)
    watched.start()
    watched.watcher.give_back_soon()
    for _ in range(3):
        assert watched.cluster.looked.get(timeout=WAIT_S) == "kept"
    watched.cluster.is_unused = True
    wait_for(lambda: watched.cluster.looked.get(timeout=WAIT_S) == "given back")
    wait_for(lambda: watched.watcher.due_s == math.inf)
    time.sleep(0.05)
    assert watched.cluster.looked.empty()


def test_clients_are_not_given_back_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close frees them."""
    monkeypatch.setattr("coopgroup.kafka.membership.watching._GIVE_BACK_S", 0.01)
    watched = Watched(Cluster({}))
    watched.start()
    watched.watcher.stop()
    watched.watcher.give_back_soon()
    time.sleep(0.1)
    watched.stop()
    assert watched.cluster.looked.empty()


def test_watcher_has_no_thread_between_looks(running: list[Watched]) -> None:
    watched = Watched(Cluster({"orders": [0]}), refresh_ms=600_000)
    running.append(watched)
    watched.start()
    watched.watcher.watch(TopicWish.read(["^o"]))
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("orders",))
    wait_for(lambda: "coopgroup-watcher" not in {one.name for one in threading.enumerate()})
    assert 500 < watched.watcher.due_s - now_s() <= 600


def test_watcher_without_a_free_thread_tries_again(
    running: list[Watched], monkeypatch: pytest.MonkeyPatch, quick_retries: None
) -> None:
    watched = Watched(Cluster({"orders": [0]}))
    running.append(watched)
    watched.start()
    start, refused = threading.Thread.start, [True, True]

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "coopgroup-watcher" and refused:
            refused.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    watched.watcher.watch(TopicWish.read(["^o"]))
    assert watched.posted.get(timeout=WAIT_S) == SubscriptionChanged(topics=("orders",))
    assert refused == []


@pytest.mark.parametrize("is_looking", [False, True])
def test_watcher_of_a_dropped_consumer_does_the_last_duty_once(*, is_looking: bool) -> None:
    watched = Watched(Cluster({"orders": [0]}), refresh_ms=0 if is_looking else 600_000)
    watched.start()
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    if is_looking:
        watched.cluster.on_look = lambda: watched.watcher.finish(lambda: done.put("duty"))
        watched.watcher.watch(TopicWish.read(["^o"]))
    else:
        watched.watcher.finish(lambda: done.put("duty"))
    assert done.get(timeout=WAIT_S) == "duty"
    watched.woken.set()
    time.sleep(0.05)
    watched.stop()
    assert done.empty()
