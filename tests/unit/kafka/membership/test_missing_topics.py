"""Missing topics are reported once, after a second answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, Message

from coopgroup.kafka import trouble
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.membership import missing_topics
from coopgroup.kafka.membership.first_look import FirstLook
from coopgroup.kafka.membership.missing_topics import MissingTopics
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure

UNKNOWN = int(KafkaError.UNKNOWN_TOPIC_OR_PART)
LEADERLESS = int(KafkaError.LEADER_NOT_AVAILABLE)
REFUSED = int(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@define
class _Cluster:
    """A transport whose brokers know some topics, on a clock of its own."""

    codes: dict[str, int] = field(factory=dict)
    partitions: int = 0
    now_s: float = 0.0
    is_up: bool = True
    asked: list[tuple[float, tuple[str, ...]]] = field(factory=list)
    due: list[tuple[float, Callable[[], None]]] = field(factory=list)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.due.append((self.now_s + delay_s, action))

    def send(self, _: object, request: Any, on_answer: Callable[[Any], None], **_2: Any) -> None:  # noqa: ANN401
        self.asked.append((self.now_s, request.names))
        if not self.is_up:
            on_answer(TransportFailure(kind=FailureKind.TIMED_OUT, message="late"))
            return
        topics = [
            SimpleNamespace(
                name=one,
                error_code=self.codes.get(one, UNKNOWN),
                topic_id=None,
                partitions=[
                    SimpleNamespace(partition_index=number, leader_id=1)
                    for number in range(self.partitions)
                ],
            )
            for one in request.names
        ]
        on_answer(request.read(SimpleNamespace(topics=topics, brokers=())))

    def run(self, until_s: float) -> None:
        while self.due and min(self.due, key=lambda one: one[0])[0] <= until_s:
            self.due.sort(key=lambda one: one[0])
            at_s, action = self.due.pop(0)
            self.now_s = at_s
            action()
        self.now_s = until_s


@define
class _Story:
    cluster: _Cluster
    missing: MissingTopics
    warned: list[tuple[list[str], str]]
    handed: list[Message]

    def look(self, *names: str, until_s: float) -> None:
        self.missing.look(frozenset(names))
        self.cluster.run(until_s)
        while (call := self.missing.inbox.take_call()) is not None:
            call()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> _Story:
    cluster, warned, handed = _Cluster(), list[tuple[list[str], str]](), list[Message]()
    buffer = SimpleNamespace(add=handed.extend, is_shared=False)
    fetching = SimpleNamespace(record_buffer=buffer)

    def warn(event: str, topics: list[str] | None = None, error: str = "", **_: object) -> None:
        warned.append(([event] if topics is None else topics, error))

    missing = MissingTopics(
        cast("Any", cluster), ApplicationInbox(), cast("Any", fetching), warn, 5_000, FirstLook()
    )
    monkeypatch.setattr(missing_topics, "now_s", lambda: cluster.now_s)
    monkeypatch.setattr(trouble, "now_ms", lambda: round(1000 * cluster.now_s))
    return _Story(cluster, missing, warned, handed)


def test_missing_topics_are_told_once_after_a_second_answer(story: _Story) -> None:
    story.cluster.codes = {"orders": 0, "new": LEADERLESS, "secret": REFUSED}
    names = ("orders", "new", "ordres", "odrers", "secret")
    story.look(*names, until_s=0.9)
    story.look(*names, until_s=0.95)  # not a second later
    assert story.warned == []
    story.cluster.run(2.0)
    story.look(*names, until_s=9.0)
    assert story.warned == [
        (["odrers", "ordres"], "UNKNOWN_TOPIC_OR_PART"),
        (["secret"], "TOPIC_AUTHORIZATION_FAILED"),
    ]
    assert [one.topic() for one in story.handed] == ["odrers", "ordres", "secret"]
    error = story.handed[1].error()
    assert error is not None
    assert error.str() == "Subscribed topic not available: ordres: " + KafkaError(UNKNOWN).str()


TOLD = (["orders"], "UNKNOWN_TOPIC_OR_PART")


@pytest.mark.parametrize(
    ("looks", "warned"),
    [
        pytest.param([(0.5, {}), (9.0, {"orders": 0})], [], id="a broker did not know it yet"),
        pytest.param([(3.0, {}), (6.0, {"orders": 0}), (9.0, {})], [TOLD] * 2, id="existed"),
    ],
)
def test_topic_that_exists_meanwhile_is_missing_anew(
    story: _Story, looks: list[tuple[float, dict[str, int]]], warned: list[object]
) -> None:
    for until_s, codes in looks:
        story.cluster.codes = codes
        story.look("orders", until_s=until_s)
    assert story.warned == warned


def test_brokers_that_do_not_answer_are_asked_again(story: _Story) -> None:
    story.cluster.is_up = False
    story.look("orders", until_s=4.0)
    story.cluster.is_up = True
    story.cluster.run(20.0)
    assert [one[0] for one in story.cluster.asked] == [0.0, 5.0, 6.0]
    assert story.warned == [TOLD]


def test_brokers_that_do_not_answer_for_long_are_told_once_and_at_the_end(story: _Story) -> None:
    story.cluster.codes, story.cluster.is_up = {"orders": 0}, False
    story.look("orders", until_s=9.0)
    assert story.warned == []
    story.cluster.run(100.0)
    assert [where for where, _ in story.warned] == [["topics_unavailable"]]
    story.cluster.is_up = True
    story.cluster.run(110.0)
    assert [where for where, _ in story.warned[1:]] == [["topics_available"]]


def test_long_subscriptions_ask_for_a_bounded_number_of_names(story: _Story) -> None:
    story.look(*(f"t{number}" for number in range(5_000)), until_s=0.5)
    assert len(story.cluster.asked[0][1]) == 1_000


def test_loop_gets_no_event(story: _Story) -> None:
    story.missing.fetching.record_buffer.is_shared = True
    story.look("orders", until_s=3.0)
    assert (story.warned, story.handed) == ([TOLD], [])


def test_long_outage_does_not_multiply_the_questions(story: _Story) -> None:
    story.cluster.is_up = False
    for at_s in range(60):  # a leader looks this often while its look-ups fail
        story.look("orders", until_s=float(at_s))
    looks = len(story.cluster.asked)
    assert looks <= 2 * 60
    story.cluster.run(120.0)
    assert len(story.cluster.asked) - looks <= 60 / 5 + 1


def test_partitions_of_the_first_look_are_noted(story: _Story) -> None:
    """A topic is missing only after the second answer: a broker may be the last to hear of it."""
    story.cluster.codes, story.cluster.partitions = {"orders": 0}, 2
    story.look("orders", "later", until_s=0.5)
    story.cluster.partitions = 3
    story.look("orders", "later", until_s=0.9)
    seen = story.missing.first_look.has_appeared
    assert [seen("orders", 1), seen("orders", 2), seen("later", 0)] == [False, True, False]
    story.cluster.run(5.0)
    assert seen("later", 0)


def test_partitions_of_matched_topics_are_noted_once(story: _Story) -> None:
    story.cluster.codes, story.cluster.partitions = {"matched": 0}, 2
    for topics in (["matched"], ["matched", "gone"], ["matched"]):
        story.missing.sight(topics)
        story.cluster.run(story.cluster.now_s + 1.0)
    assert [names for _, names in story.cluster.asked] == [("matched",), ("gone",)]
    assert story.missing.first_look.has_appeared("matched", 2)
    assert (story.missing.first_look.has_appeared("gone", 0), story.warned) == (False, [])
