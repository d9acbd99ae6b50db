"""Look-ups without a controller, and answers that need a confirmation."""

from __future__ import annotations

import contextlib
import threading
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import OffsetSpec
from confluent_kafka.admin import TopicMetadata as TopicMetadataOfClient

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.metadata import TopicMetadata
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.membership.lookup import ClusterLookup
from tests.support.by_hand import Hand
from tests.support.mock_broker import mock_broker

CONNECTION = read_connection_settings({"bootstrap.servers": "127.0.0.1:1"})


def lookup_of(
    config: dict[str, Any] | None = None, reset: str = "earliest", timeout_ms: int = 500
) -> ClusterLookup:
    return ClusterLookup(config or {}, "billing", reset, timeout_ms, CONNECTION)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of look-ups, in seconds, which a test changes."""
    clock = [100.0]
    monkeypatch.setattr("coopgroup.kafka.membership.lookup.now_s", lambda: clock[0])
    return clock


def test_metadata_when_there_is_no_controller_is_listed() -> None:
    with mock_broker() as address:
        config: dict[str, Any] = {"bootstrap.servers": address}
        producer = Producer(config)
        producer.produce("orders", b"x")
        producer.flush(10)
        lookup = lookup_of(config)
        expected = TopicMetadata(resources=ResourceSet({"orders": range(4)}))
        assert [lookup.metadata(["orders"]) for _ in range(2)] == [expected] * 2
        lookup.close()


class _Admin:
    """An admin client whose answers are set by the test.

    Attributes:
        topics: partitions by topic, as the queried broker lists them.
        said: error by topic in a description; a topic without an error has partition 0.
        asked: the names of each request for a description.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicMetadataOfClient] = {}
        self.said: dict[str, KafkaError] = {}
        self.asked: list[list[str]] = []

    def list_topics(self, *, timeout: float) -> _Admin:
        """Return the client itself: it has the one attribute that callers read."""
        assert timeout > 0
        return self

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> dict[str, Future[SimpleNamespace]]:
        assert request_timeout > 0
        self.asked.append(list(topics.topic_names))
        answers: dict[str, Future[SimpleNamespace]] = {}
        for name in topics.topic_names:
            answers[name] = Future()
            if name in self.said:
                answers[name].set_exception(KafkaException(self.said[name]))
            else:
                partition = SimpleNamespace(id=0, replicas=[])
                answers[name].set_result(SimpleNamespace(partitions=[partition]))
        return answers


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    """Return the client of every look-up in the test."""
    admin = _Admin()
    monkeypatch.setattr(ClusterLookup, "_client", lambda _: admin)
    return admin


def test_names_are_looked_for_a_little_longer_when_an_answer_lacks_them(
    clock: list[float], admin: _Admin
) -> None:
    """A single lagging broker must not remove a topic from a pattern. Metadata is not kept."""
    lookup = lookup_of()
    for wait_s, names, expected, is_in_doubt in (
        (0.0, "ab", "ab", False),
        (300.0, "b", "ab", True),
        (1.0, "bc", "abc", True),
        (0.9, "abc", "abc", False),  # the absence is refuted
        (300.0, "", "abc", True),
        (2.0, "b", "b", False),
        (1.0, "ab", "ab", False),  # recreated
        (1.0, "b", "ab", True),
    ):
        clock[0] += wait_s
        admin.topics = {name: TopicMetadataOfClient() for name in names}
        assert (lookup.topic_names(), lookup.is_in_doubt) == (tuple(expected), is_in_doubt)
    lookup.forget_names()  # the pattern was withdrawn, so no look-up needs "a"
    assert not lookup.is_in_doubt


@pytest.mark.parametrize(
    "name", ["", ".", "..", "orders\0", "a b", "é", "a/b", "x" * 250, "x" * 32_000, "orders\n"]
)
def test_name_that_no_topic_can_have_is_not_looked_up(admin: _Admin, name: str) -> None:
    """One such name failed the request for all names, e.g. "" or a name with NUL beside orders."""
    lookup = lookup_of()
    assert lookup.metadata([name, "orders"]).resources == ResourceSet({"orders": [0]})
    assert lookup.metadata([name]).resources == ResourceSet()
    assert admin.asked == [["orders"]]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.POLICY_VIOLATION,
    ],
)
def test_topic_that_is_refused_leaves_the_others_alone(admin: _Admin, code: int) -> None:
    """A member may subscribe to topics that the leader may not see."""
    admin.said["secret"] = KafkaError(code)
    assert lookup_of().metadata(["orders", "secret"]).resources == ResourceSet({"orders": [0]})


def test_topic_that_may_exist_is_what_it_was(admin: _Admin, clock: list[float]) -> None:
    lookup = lookup_of()
    admin.said["orders"] = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        lookup.metadata(["orders", "payments"])
    del admin.said["orders"]
    both = ResourceSet({"orders": [0], "payments": [0]})
    assert lookup.metadata(["orders", "payments"]).resources == both
    admin.said["orders"] = KafkaError(KafkaError.UNKNOWN)
    for _ in range(3):
        clock[0] += 10
        assert lookup.metadata(["orders", "payments"]).resources == both
        assert lookup.is_in_doubt
    admin.said["orders"] = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        lookup.metadata(["orders", "payments"])  # no broker answered


def test_names_when_there_are_very_many_are_listed_first(admin: _Admin) -> None:
    """To describe 20,000 names, librdkafka took 5 s, and the group's round waited."""
    lookup, admin.topics = lookup_of(), {"orders": TopicMetadataOfClient()}
    names = ["orders", *(f"none-{number}" for number in range(5_000))]
    assert lookup.metadata(names).resources == ResourceSet({"orders": [0]})
    assert admin.asked == [["orders"]]


def test_clients_that_were_given_back_are_made_again_until_the_close(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stable member needs no second client, and one that outlives its consumer reconnects."""
    clients: weakref.WeakSet[_Admin] = weakref.WeakSet()

    def admin_client(_config: object) -> _Admin:
        made = _Admin()
        clients.add(made)
        return made

    monkeypatch.setattr("coopgroup.kafka.membership.lookup.AdminClient", admin_client)
    lookup, opened = lookup_of(timeout_ms=100), list[int]()
    lookup.on_open = lambda: opened.append(len(clients))
    lookup.topic_names()
    assert not lookup.give_back(0.0)  # the look-up may still be under way
    assert len(clients) == 1
    hand.now_s += 0.2
    assert lookup.give_back(0.0)
    assert len(clients) == 0
    assert [lookup.topic_names() for _ in range(2)] == [(), ()]
    assert (len(clients), opened) == (1, [1, 1])
    assert not lookup.give_back(60.0)
    lookup.close()
    assert len(clients) == 0
    with pytest.raises(TimeoutError, match="the look-up was closed"):
        lookup.topic_names()


def test_arrivals_when_looked_up_twice_are_the_difference_over_the_time(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: dict[tuple[str, int], int] = {}
    monkeypatch.setattr(ClusterLookup, "_committed", lambda *_: {})
    monkeypatch.setattr(ClusterLookup, "_offsets", lambda *_: dict(ends))
    lookup = lookup_of(reset="latest")
    orders = ResourceSet({"orders": [0, 1, 2]})

    def arrivals(at_s: float, *offsets: int) -> list[float] | None:
        clock[0] = at_s
        ends.clear()
        ends.update({("orders", index): offset for index, offset in enumerate(offsets)})
        found = lookup.lags(orders).arrivals_per_s
        return None if found is None else found.tolist()

    assert arrivals(100.0, 1_000, 50) is None
    assert arrivals(101.0, 9_000, 50) is None
    assert arrivals(110.0, 1_500, 40) == [50.0, 0.0, 0.0]
    assert arrivals(111.0, 9_000, 40, 7) == [50.0, 0.0, 0.0]
    assert arrivals(120.0, 1_500, 45, 107) == [0.0, 0.5, 0.0]


def test_logger_may_close_the_consumer_whose_lines_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = lookup_of({"logger": "a logger"})
    admin = SimpleNamespace(poll=lambda _: lookup.close())
    monkeypatch.setattr("coopgroup.kafka.membership.lookup.AdminClient", lambda _: admin)
    thread = threading.Thread(target=lookup._client, daemon=True)  # noqa: SLF001
    thread.start()
    thread.join(5.0)
    assert not thread.is_alive()


def test_a_client_without_an_answer_is_replaced_after_ever_more_look_ups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new client that needs long to connect is not replaced before it has connected."""
    made: list[int] = []
    answers = [False] * 20 + [True] + [False] * 3
    asked: list[bool] = []

    class Silent(_Admin):
        def __init__(self, _: object) -> None:
            super().__init__()
            made.append(len(asked))

        def list_topics(self, *, timeout: float) -> _Admin:
            asked.append(answers[len(asked)])
            if not asked[-1]:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))
            return super().list_topics(timeout=timeout)

    monkeypatch.setattr("coopgroup.kafka.membership.lookup.AdminClient", Silent)
    lookup = lookup_of()
    for _ in answers:
        with contextlib.suppress(KafkaException):
            lookup.topic_names()
    assert made == [0, 2, 6, 14, 23]


@pytest.mark.parametrize(
    ("reset", "lags"), [("earliest", [40, 90, 90, 0, 0, 90, 0]), ("latest", [40] + [0] * 6)]
)
def test_commit_outside_of_the_log_counts_as_the_consumer_will_reset(
    monkeypatch: pytest.MonkeyPatch, reset: str, lags: list[int]
) -> None:
    """Two lag-aware members got 0 and 2,000 readable records: retention had deleted 5,000."""
    orders = ResourceSet({"orders": range(7)})
    # 110 is beyond a transaction that is not over; the begin of the last one is not known.
    committed = [60, 9, 121, 100, 110, -1, 150]
    monkeypatch.setattr(
        ClusterLookup,
        "_committed",
        lambda *_: {("orders", index): at for index, at in enumerate(committed) if at >= 0},
    )

    def offsets(
        _: object, resources: ResourceSet, spec: object, isolation: object = None
    ) -> dict[tuple[str, int], int]:
        at = 100 if isolation is None else 120
        if spec is OffsetSpec.earliest():
            return {one: 10 for one in resources if one.index < 6}
        return dict.fromkeys(resources, at)

    monkeypatch.setattr(ClusterLookup, "_offsets", offsets)
    found = lookup_of(reset=reset).lags(orders)
    assert found.values.tolist() == lags
