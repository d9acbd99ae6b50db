"""A catalogue in a topic, read from a client that plays the topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, cast
from uuid import UUID

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.core.model import Resource
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.groups import Catalogue, CatalogueTopic
from coopgroup.groups import topic as topic_module
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic
from tests.support.by_hand import Hand

FIRST: Final = UUID(int=1)


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
        start: log start offset that the broker tells.
        end: log end offset that the broker tells.
        topic_id: None for a broker without ids.
        error_code: of the topic.
        failure: raised by a question for the offsets.
        transport_failure: outcome of a question for the topic.
    """

    hand: Hand
    messages: list[Message] = field(factory=list)
    kept: list[Message] = field(factory=list)
    start: int = 0
    end: int = 0
    topic_id: UUID | None = FIRST
    partitions: int = 1
    error_code: int = 0
    failure: KafkaException | None = None
    transport_failure: TransportFailure | None = None
    configuration: dict[str, Any] = field(factory=dict)
    calls: list[str] = field(factory=list)
    during_poll: Callable[[], None] = lambda: None

    def __call__(self, configuration: dict[str, Any]) -> Log:
        self.configuration = configuration
        return self

    def add(self, name: str, content: object = None, *, raw: bytes | None = None) -> None:
        value = None if content is None else json.dumps(content).encode()
        self.messages.append(Message(self.end, name.encode(), value if raw is None else raw))
        self.kept.append(self.messages[-1])
        self.end += 1

    def make_again(self, topic_id: UUID | None, **definitions: object) -> None:
        """Delete the topic, and make it again with these definitions."""
        self.topic_id, self.start, self.end, self.kept = topic_id, 0, 0, []
        for name, one in definitions.items():
            self.add(name, one)
        self.messages.clear()

    def delete_records(self, before: int) -> None:
        """Delete records, as DeleteRecords and retention do; unread ones as well."""
        self.start = before
        self.kept = [one for one in self.kept if one.place >= before]
        self.messages = [one for one in self.messages if one.place >= before]

    def ask(self, _: object, request: FindTopics, **__: object) -> object:
        if self.transport_failure is not None:
            return self.transport_failure
        found = FoundTopic(self.error_code, self.partitions, self.topic_id)
        return dict.fromkeys(request.names, found)

    def assign(self, places: list[Any]) -> None:
        """Begin to read the records that exist, and reach the end behind them."""
        self.calls.append(f"assign {places[0].topic} {places[0].offset}")
        if len(self.calls) > 1:
            end = Message(self.end, code=KafkaError._PARTITION_EOF)
            self.messages = [*self.kept, end]

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self.failure is not None:
            raise self.failure
        return self.start, self.end

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


def reader(log: Log, warned: list[str] | None = None, **more: Any) -> CatalogueTopic:  # noqa: ANN401
    made = CatalogueTopic("connectors", **more)
    said = [] if warned is None else warned
    made.open(
        {"bootstrap.servers": "b:1", "group.id": "g"},
        None,
        lambda event, **fields: said.append(": ".join([event, *fields.values()])),
        cast("Any", log),
    )
    return made


def definitions(catalogue: Catalogue) -> dict[tuple[str, int], object]:
    return {(one.name, one.index): catalogue.mark(one)[0] for one, _ in catalogue.weights}


def test_topic_is_read_to_its_end(log: Log) -> None:
    log.add("a", {"x": 1})
    log.add("b", 2)
    log.add("a", {"x": 3})
    source = reader(log)
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
    assert reader(log)() == Catalogue.of([], version=0)
    assert log.messages == []


def test_connectors_have_tasks_with_the_same_definition(log: Log) -> None:
    log.add("a", {"tasks": 2})
    log.add("b", {"tasks": [5]})
    catalogue = reader(log, tasks=lambda name, one: one["tasks"])()
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
    source = reader(log)
    one = Resource("a", 0)
    first = source().mark(one)
    log.add("a", 1)
    assert source().mark(one) == first
    log.add("a")
    log.add("a", 1)
    assert source().mark(one) != first


def test_bytes_stay_bytes(log: Log) -> None:
    log.add("a", raw=b"\xff")
    assert reader(log, decode=bytes)().mark(Resource("a", 0))[0] == b"\xff"


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
    catalogue = reader(log, warned, tasks=lambda _, one: one["tasks"])()
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
    assert reader(log)().version == 3


def test_end_of_the_last_read_does_not_end_the_next_one(log: Log) -> None:
    source = reader(log)
    log.add("a", 1)
    assert source().version == 1
    log.messages.append(Message(1, code=KafkaError._PARTITION_EOF))  # follows the record
    log.add("b", 2)
    assert source().version == 2


def test_records_of_an_open_transaction_are_awaited_briefly(log: Log) -> None:
    log.add("a", 1)
    log.messages.append(Message(1, code=KafkaError._PARTITION_EOF))
    log.end += 1
    source, began_s = reader(log), log.hand.now_s
    assert source().version == 1
    assert log.hand.now_s == pytest.approx(began_s + 1.0, abs=0.2)
    log.messages.append(Message(1, b"b", b"2"))
    assert source().version == 2


def test_silent_broker_is_given_up(log: Log) -> None:
    log.end = 5
    with pytest.raises(CoopgroupError, match="connectors: the broker sends no records"):
        reader(log)()
    assert log.hand.now_s == pytest.approx(1_010.0, abs=0.2)


def test_refused_read_can_be_repeated(log: Log) -> None:
    log.add("a", 1)
    log.messages.insert(0, Message(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED))
    source = reader(log)
    with pytest.raises(KafkaException):
        source()
    assert definitions(source()) == {("a", 0): "1"}


MADE_AGAIN = {
    "fewer": {"new": 2},
    "as many": {"new": 2, "both": 2, "another": 2},
    "more": {"new": 2, "both": 2, "another": 2, "third": 2, "fourth": 2},
    "empty": {},
}


@pytest.mark.parametrize("after", MADE_AGAIN.values(), ids=MADE_AGAIN)
def test_topic_that_was_made_again_is_read_from_its_beginning(
    log: Log, after: dict[str, object]
) -> None:
    """Deleted resources ran on, and new ones never started."""
    for name in ("old", "both", "other"):
        log.add(name, 1)
    warned = list[str]()
    source = reader(log, warned)
    before = source()
    log.make_again(UUID(int=2), **after)
    catalogue = source()
    assert definitions(catalogue) == {(name, 0): "2" for name in after}
    assert catalogue.is_behind(before.version) is False
    assert before.is_behind(catalogue.version)
    assert warned == ["catalogue_read_again: connectors: the topic was made again"]
    assert source() is catalogue
    log.add("later", 3)
    log.messages[-1:] = log.kept[-1:]
    assert ("later", 0) in definitions(source())
    assert catalogue.is_behind(source().version)
    assert len(warned) == 1
    assert log.calls == ["assign connectors -2"] * 2


def test_definition_that_a_topic_made_again_still_has_is_unchanged(log: Log) -> None:
    """Its work would stop and start for nothing, for example when a topic is restored."""
    log.add("a", 1)
    log.add("gone", 1)
    log.add("kept", 1)
    source = reader(log)
    one, kept = Resource("a", 0), Resource("kept", 0)
    before = source()
    log.make_again(UUID(int=2), kept=1, a=2)
    after = source()
    assert after.mark(kept) == before.mark(kept)
    assert after.mark(one) != before.mark(one)


@pytest.mark.parametrize("topic_id", [FIRST, None])
def test_log_that_ends_earlier_is_read_again(log: Log, topic_id: UUID | None) -> None:
    """Brokers before 2.8 have no ids, and an unclean election loses records of the same topic."""
    log.topic_id = topic_id
    log.add("a", 1)
    log.add("b", 1)
    warned = list[str]()
    source = reader(log, warned)
    before = source()
    log.make_again(topic_id, b=1)
    assert definitions(source()) == {("b", 0): "1"}
    assert before.is_behind(source().version)
    why = "the topic was made again, or has lost records"
    assert warned == [f"catalogue_read_again: connectors: {why}"]


def test_topic_of_an_old_broker_that_was_absent_is_read_again(log: Log) -> None:
    log.topic_id = None
    log.add("a", 1)
    source = reader(log)
    source()
    log.error_code = KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException):
        source()
    log.error_code = 0
    log.make_again(None, b=2)
    assert definitions(source()) == {("b", 0): "2"}


def test_topic_that_comes_back_unchanged_changes_nothing(log: Log) -> None:
    """A broker may not know a topic for a moment."""
    log.add("a", 1)
    warned = list[str]()
    source = reader(log, warned)
    catalogue = source()
    log.failure = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(KafkaException):
        source()
    log.failure = None
    assert source() is catalogue
    assert log.calls == ["assign connectors -2"] * 2
    assert warned == []


def test_oldest_records_that_were_deleted_are_no_definitions_any_more(log: Log) -> None:
    """A process that starts now would not know them, and the leader's list would be chance."""
    for name in ("a", "b", "c"):
        log.add(name, 1)
    warned = list[str]()
    source = reader(log, warned)
    before = source()
    log.delete_records(2)
    after = source()
    assert definitions(after) == {("c", 0): "1"}
    assert before.is_behind(after.version)
    assert warned == ["catalogue_read_again: connectors: the oldest records were deleted"]
    log.delete_records(3)
    assert definitions(source()) == {}
    assert len(warned) == 2
    assert source() is source()


def test_unread_records_that_were_deleted_are_passed_over(log: Log) -> None:
    log.add("a", 1)
    source = reader(log)
    source()
    log.add("b", 1)
    log.add("c", 1)
    log.delete_records(2)
    assert definitions(source()) == {("c", 0): "1"}


def test_deletion_and_creation_during_a_second_read_count(log: Log) -> None:
    log.add("a", 1)
    log.add("b", 1)
    source = reader(log)
    a, b = Resource("a", 0), Resource("b", 0)
    before = source()
    log.add("a")
    log.add("a", 1)
    log.failure = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(KafkaException):
        source()
    log.failure = None
    after = source()
    assert after.mark(a) != before.mark(a)
    assert after.mark(b) == before.mark(b)


def test_records_of_a_read_that_failed_are_not_forgotten(log: Log) -> None:
    """The next read found no record, and returned the catalogue before."""
    log.add("a", 1)
    source = reader(log)
    source()
    log.add("b", 2)
    log.end += 1
    log.messages.append(Message(2, code=KafkaError._TRANSPORT))
    with pytest.raises(KafkaException):
        source()
    log.messages.append(Message(3, code=KafkaError._PARTITION_EOF))
    log.end = 3
    assert definitions(source()) == {("a", 0): "1", ("b", 0): "2"}


def test_read_after_a_version_was_told_has_at_least_this_version(log: Log) -> None:
    """Members that saw different ends of an old topic would count from different numbers."""
    log.add("a", 1)
    source = reader(log)
    assert source(9).version == 9
    assert source(4).version == 9
    log.add("b", 1)
    assert source().version == 10
    assert source(2**63 - 1).version == 10  # a faulty member leaves no room to count on


def test_broker_that_does_not_answer_is_a_failed_read(log: Log) -> None:
    log.transport_failure = TransportFailure(kind=FailureKind.TIMED_OUT, message="no answer")
    with pytest.raises(CoopgroupError, match="connectors: no answer"):
        reader(log)()
    assert log.calls == []


def test_topic_with_several_partitions_is_refused(log: Log) -> None:
    """Processes could see its changes in different orders."""
    log.partitions = 2
    with pytest.raises(ConfigurationError, match="a topic with one partition, not 2"):
        reader(log)()
    assert log.calls == []


def test_missing_topic_is_looked_for_again(log: Log) -> None:
    log.error_code = KafkaError.UNKNOWN_TOPIC_OR_PART
    source = reader(log)
    with pytest.raises(KafkaException):
        source()
    log.error_code = 0
    assert source().version == 0


def test_close_ends_a_read(log: Log) -> None:
    log.end = 5
    source = reader(log)
    log.during_poll = lambda: setattr(source, "_is_closed", True)
    with pytest.raises(CoopgroupError, match="closed"):
        source()
    source.close()
    assert log.calls[-1] == "close"


def test_topic_belongs_to_one_group(log: Log) -> None:
    source = reader(log)
    with pytest.raises(ConfigurationError, match="expected a CatalogueTopic for each group"):
        source.open({"a": 1}, None, lambda *_, **__: None, cast("Any", log))
    assert log.calls == []
