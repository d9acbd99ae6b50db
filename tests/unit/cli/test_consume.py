"""`coopgroup consume` with a consumer that never reaches a broker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any, Self

import pytest
from attrs import define, field
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from coopgroup.cli import consume

FIRST = Message(topic="orders", partition=1, offset=7, key=b"k", value=b"v", timestamp=(1, 1234))
SECOND = Message(topic="orders", partition=2, offset=0, value=b"\xff\x00", timestamp=(1, 5678))
TOMBSTONE = Message(topic="orders", partition=2, offset=1, key=b"k", timestamp=(1, 9))
TROUBLE = Message(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not\nallowed"))


@define
class FakeConsumer:
    """Return the given messages, then raise the given error."""

    configuration: Mapping[str, Any]
    messages: list[Message | None]
    end: BaseException
    closed: bool = False
    on_assign: Callable[..., None] | None = None
    topics: list[str] = field(factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def subscribe(self, topics: list[str], on_assign: Callable[..., None], **_: object) -> None:
        self.topics = topics
        self.on_assign = on_assign

    def poll(self, _timeout_s: float) -> Message | None:
        if self.on_assign is not None:
            self.on_assign(self, [TopicPartition("orders", 1), TopicPartition("bills", 0)])
            self.on_assign = None
        if not self.messages:
            if isinstance(self.end, KafkaException):
                self.configuration["error_cb"](self.end.args[0])
            raise self.end
        return self.messages.pop(0)

    def memberid(self) -> str:
        return "m-1"


def invoke(
    monkeypatch: pytest.MonkeyPatch,
    *options: str,
    messages: list[Message | None],
    end: BaseException | None = None,
) -> tuple[int, str, str, FakeConsumer]:
    made: list[FakeConsumer] = []

    def make(configuration: Mapping[str, Any], **_: object) -> FakeConsumer:
        made.append(FakeConsumer(configuration, messages, end or AssertionError("polled on")))
        return made[0]

    monkeypatch.setattr(consume, "CooperativeConsumer", make)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    answer = CliRunner().invoke(
        consume.command, ["orders", "--group", "g", *options], standalone_mode=False
    )
    return answer.return_value, answer.stdout, answer.stderr, made[0]


def test_text_has_place_key_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    status, output, errors, consumer = invoke(
        monkeypatch, "--max-records", "3", messages=[None, FIRST, TROUBLE, SECOND, TOMBSTONE]
    )
    assert (status, consumer.closed, consumer.topics) == (0, True, ["orders"])
    assert output == "orders[1]@7 k v\norders[2]@0 \\xff\x00\norders[2]@1 k\n"
    assert errors == "assigned: bills[0] orders[1] (member m-1)\ncoopgroup: not allowed\n"


def test_json_has_an_object_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output, _, _ = invoke(monkeypatch, "--json", "--max-records", "2", messages=[FIRST, SECOND])
    assert output == (
        '{"topic": "orders", "partition": 1, "offset": 7, "timestamp_ms": 1234, '
        '"key": "k", "value": "v"}\n'
        '{"topic": "orders", "partition": 2, "offset": 0, "timestamp_ms": 5678, '
        '"key": null, "value_base64": "/wA="}\n'
    )


def test_consume_when_the_group_refuses_prints_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    end = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "group\ng: no"))
    status, _, errors, consumer = invoke(monkeypatch, messages=[], end=end)
    assert (status, consumer.closed) == (1, True)
    assert errors.splitlines()[1:] == ["coopgroup: group g: no"]


def test_consume_when_errors_repeat_tells_of_each_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Librdkafka repeats the error with every attempt to connect to a missing broker."""
    _, _, _, consumer = invoke(monkeypatch, "--max-records", "1", messages=[FIRST])
    for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
        consumer.configuration["error_cb"](KafkaError(code, f"code {code}"))
    assert capsys.readouterr().err == "coopgroup: code -195\ncoopgroup: code -187\n"


def test_consume_when_interrupted_closes_and_exits_with_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second Ctrl-C uses the default handler, and the caller gets its own handler back."""
    before = signal.getsignal(signal.SIGINT)
    meant: list[Any] = []

    def note(number: int, what: object) -> None:
        if number == signal.SIGINT:
            meant.append(what)

    monkeypatch.setattr("signal.signal", note)
    consumer = FakeConsumer({}, [None, FIRST], AssertionError("polled on"))
    poll = consumer.poll

    def interrupted_poll(timeout_s: float) -> Message | None:
        meant[-1](signal.SIGINT, None)
        return poll(timeout_s)

    monkeypatch.setattr(FakeConsumer, "poll", lambda _, timeout_s: interrupted_poll(timeout_s))
    monkeypatch.setattr(consume, "CooperativeConsumer", lambda *_, **__: consumer)
    answer = CliRunner().invoke(consume.command, ["orders", "--group", "g"], standalone_mode=False)
    assert (answer.return_value, answer.stdout, consumer.closed) == (130, "", True)
    assert meant[1:] == [signal.SIG_DFL, before]
