"""A catalogue in a topic, read from a client that plays the topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.core.model import Resource
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.groups import Catalogue, CatalogueTopic
from coopgroup.groups import topic as topic_module
from tests.support.by_hand import Hand


@define(eq=False)
class Message:
    """A record, or the event of the end."""

    place: int
    name: bytes | None = None
    content: bytes | None = None
    code: int | None = None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def offset(self) -> int:
        return self.place


@define(eq=False)
class Log:
    """A topic with a client that reads it; time passes while the client waits.

    Attributes:
        messages: what the client reads next.
        end: log end offset that the broker tells.
    """

    hand: Hand
    messages: list[Message] = field(factory=list)
    end: int = 0
    partitions: int = 1
    error: KafkaError | None = None
    configuration: dict[str, Any] = field(factory=dict)
    calls: list[str] = field(factory=list)
    during_poll: Callable[[], None] = lambda: None

    def __call__(self, configuration: dict[str, Any]) -> Log:
        self.configuration = configuration
        return self

    def add(self, name: str, content: object = None, *, raw: bytes | None = None) -> None:
        value = None if content is None else json.dumps(content).encode()
        self.messages.append(Message(self.end, name.encode(), value if raw is None else raw))
        self.end += 1

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ANN401
        partitions = dict.fromkeys(range(self.partitions))
        found = SimpleNamespace(error=self.error, partitions=partitions)
        return SimpleNamespace(topics={topic: found})

    def assign(self, places: list[Any]) -> None:
        self.calls.append(f"assign {places[0].topic} {places[0].offset}")

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, self.end

    def poll(self, timeout: float) -> Message | None:
        self.during_poll()
        if self.messages:
            return self.messages.pop(0)
        self.hand.advance(timeout)
        return None

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def log(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    made = Log(hand)
    monkeypatch.setattr(topic_module, "Consumer", made)
    yield made
    assert made.calls.count("close") <= 1


def reader(warned: list[str] | None = None, **more: Any) -> CatalogueTopic:  # noqa: ANN401
    made = CatalogueTopic("connectors", **more)
    said = [] if warned is None else warned
    made.open(
        {"bootstrap.servers": "b:1", "group.id": "g"},
        None,
        lambda event, key, error: said.append(f"{event}: {key}: {error}"),
    )
    return made


def definitions(catalogue: Catalogue) -> dict[tuple[str, int], object]:
    return {(one.name, one.index): catalogue.mark(one)[0] for one, _ in catalogue.weights}


def test_topic_is_read_to_its_end(log: Log) -> None:
    log.add("a", {"x": 1})
    log.add("b", 2)
    log.add("a", {"x": 3})
    source = reader()
    catalogue = source()
    assert definitions(catalogue) == {("a", 0): '{"x": 3}', ("b", 0): "2"}
    assert catalogue.version == 3
    assert source() is catalogue  # nothing new
    log.add("b")
    log.add("c", "new")
    assert definitions(source()) == {("a", 0): '{"x": 3}', ("c", 0): '"new"'}
    assert source().version == 5
    assert log.calls == ["assign connectors -2"]
    assert log.configuration["enable.partition.eof"]
    assert log.configuration["isolation.level"] == "read_committed"
    source.close()
    with pytest.raises(CoopgroupError, match="closed"):
        source()


def test_empty_topic_is_an_empty_catalogue(log: Log) -> None:
    assert reader()() == Catalogue.of([], version=0)
    assert log.messages == []


def test_connectors_have_tasks_with_the_same_definition(log: Log) -> None:
    log.add("a", {"tasks": 2})
    log.add("b", {"tasks": [5]})
    catalogue = reader(tasks=lambda name, one: one["tasks"])()
    assert catalogue.weights == (
        *((("a", -1), 1), (("a", 0), 1), (("a", 1), 1)),
        *((("b", -1), 1), (("b", 0), 5)),
    )
    assert {catalogue.mark(one) for one, _ in catalogue.weights if one.name == "a"} == {
        ('{"tasks": 2}', 0)
    }


def test_resource_that_is_deleted_and_created_between_two_reads_has_another_mark(log: Log) -> None:
    """Its new definition may be equal, but its state is gone."""
    log.add("a", 1)
    source = reader()
    one = Resource("a", 0)
    first = source().mark(one)
    log.add("a", 1)
    assert source().mark(one) == first
    log.add("a")
    log.add("a", 1)
    assert source().mark(one) != first


def test_bytes_stay_bytes(log: Log) -> None:
    log.add("a", raw=b"\xff")
    assert reader(decode=bytes)().mark(Resource("a", 0))[0] == b"\xff"


def test_record_that_cannot_be_used_leaves_the_earlier_definition(log: Log) -> None:
    """One bad record must not stop the group: it would be read again by each process."""
    log.add("a", {"tasks": 1})
    log.add("a", raw=b"no json")
    log.add("a", {"no": "tasks"})
    log.add("a", {"tasks": -1})
    log.messages.append(Message(log.end, None, b"1"))
    log.messages.append(Message(log.end + 1, b"\xff", b"1"))
    log.add("*", {"tasks": 1})
    log.end += 2
    log.add("b", {"tasks": 0})
    log.messages[-1].place = log.end - 1
    warned: list[str] = []
    catalogue = reader(warned, tasks=lambda _, one: one["tasks"])()
    assert definitions(catalogue) == {
        ("a", -1): '{"tasks": 1}',
        ("a", 0): '{"tasks": 1}',
        ("b", -1): '{"tasks": 0}',
    }
    assert [one.split(":")[1].strip() for one in warned] == [
        *["b'a'"] * 3,
        *("None", "b'\\xff'", "b'*'"),
    ]


def test_end_without_a_record_is_reached_by_its_event(log: Log) -> None:
    """Compaction, or the marker of a transaction: the last offset has no record."""
    log.add("a", 1)
    log.end += 2
    log.messages.append(Message(log.end, code=KafkaError._PARTITION_EOF))
    assert reader()().version == 3


def test_end_of_the_last_read_does_not_end_the_next_one(log: Log) -> None:
    source = reader()
    log.add("a", 1)
    assert source().version == 1
    log.messages.append(Message(1, code=KafkaError._PARTITION_EOF))  # follows the record
    log.add("b", 2)
    assert source().version == 2


def test_records_of_an_open_transaction_are_awaited_briefly(log: Log) -> None:
    log.add("a", 1)
    log.messages.append(Message(1, code=KafkaError._PARTITION_EOF))
    log.end += 1
    source, began_s = reader(), log.hand.now_s
    assert source().version == 1
    assert log.hand.now_s == pytest.approx(began_s + 1.0, abs=0.2)
    log.messages.append(Message(1, b"b", b"2"))
    assert source().version == 2


def test_silent_broker_is_given_up(log: Log) -> None:
    log.end = 5
    with pytest.raises(CoopgroupError, match="connectors: the broker sends no records"):
        reader()()
    assert log.hand.now_s == pytest.approx(1_010.0, abs=0.2)


def test_refused_read_can_be_repeated(log: Log) -> None:
    log.add("a", 1)
    log.messages.insert(0, Message(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED))
    source = reader()
    with pytest.raises(KafkaException):
        source()
    assert definitions(source()) == {("a", 0): "1"}


def test_topic_that_was_made_again_is_not_mixed_with_the_old_one(log: Log) -> None:
    log.add("a", 1)
    source = reader()
    source()
    log.end = 0
    with pytest.raises(CoopgroupError, match="connectors was made again"):
        source()


def test_topic_with_several_partitions_is_refused(log: Log) -> None:
    """Processes could see its changes in different orders."""
    log.partitions = 2
    with pytest.raises(ConfigurationError, match="a topic with one partition, not 2"):
        reader()()
    assert log.calls == ["close"]


def test_missing_topic_is_looked_for_again(log: Log) -> None:
    log.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    source = reader()
    with pytest.raises(KafkaException):
        source()
    log.error = None
    log.calls.clear()
    assert source().version == 0


def test_close_ends_a_read(log: Log) -> None:
    log.end = 5
    source = reader()
    log.during_poll = lambda: setattr(source, "_is_closed", True)
    with pytest.raises(CoopgroupError, match="closed"):
        source()
    source.close()
    assert log.calls[-1] == "close"


def test_topic_belongs_to_one_group(log: Log) -> None:
    source = reader()
    with pytest.raises(ConfigurationError, match="expected a CatalogueTopic for each group"):
        source.open({"a": 1}, None, lambda *_, **__: None)
    assert log.calls == []
