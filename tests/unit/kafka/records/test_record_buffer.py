"""Records between librdkafka and the application."""

import threading
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, Message

from coopgroup.kafka.records.record_buffer import RecordBuffer
from tests.unit.kafka.fakes import places, record

EOF = Message(topic="t", partition=1, offset=5, error=KafkaError(KafkaError._PARTITION_EOF))


def filled(*messages: Message, is_shared: bool = False) -> RecordBuffer:
    record_buffer = RecordBuffer(is_shared=is_shared)
    record_buffer.add(messages)
    return record_buffer


def rest(record_buffer: RecordBuffer) -> list[tuple[int | None, int | None]]:
    return places(record_buffer.ready)


@pytest.mark.parametrize("is_shared", [False, True])
def test_pause_puts_what_waits_aside_and_what_comes_too(*, is_shared: bool) -> None:
    record_buffer = filled(record(0, 0), record(1, 0), record(0, 1), is_shared=is_shared)
    record_buffer.pause([("t", 0), ("t", 0)])
    record_buffer.add([record(0, 2), record(1, 1)])
    assert rest(record_buffer) == [(1, 0), (1, 1)]
    assert record_buffer.paused == {("t", 0)}
    record_buffer.resume([("t", 0), ("t", 7)])
    assert rest(record_buffer) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert record_buffer.paused == frozenset()


def test_drop_forgets_records_events_and_the_pause() -> None:
    record_buffer = filled(record(0, 0), record(1, 0), EOF)
    record_buffer.pause([("t", 0)])
    record_buffer.drop([("t", 0), ("t", 1)])
    record_buffer.add([record(0, 9)])
    assert (rest(record_buffer), record_buffer.paused) == ([(0, 9)], frozenset())


def test_skip_forgets_records_and_keeps_the_pause() -> None:
    record_buffer = filled(record(0, 0), record(1, 0))
    record_buffer.pause([("t", 0)])
    record_buffer.skip(("t", 0))
    record_buffer.skip(("t", 1))
    record_buffer.add([record(0, 30)])
    assert rest(record_buffer) == []
    record_buffer.resume([("t", 0)])
    assert rest(record_buffer) == [(0, 30)]


def test_shared_buffer_while_another_thread_takes_loses_none_and_repeats_none() -> None:
    """The other thread takes from the start, without the lock."""
    count = 40_000
    messages = (record(number % 2, number) for number in range(count))
    record_buffer = filled(*messages, is_shared=True)
    taken: list[int] = []

    def take() -> None:
        while len(taken) < count:
            with suppress(IndexError):
                taken.append(record_buffer.ready.popleft().offset() or 0)

    thread = threading.Thread(target=take)
    thread.start()
    while thread.is_alive():
        record_buffer.pause([("t", 0)])
        record_buffer.skip(("u", 0))
        record_buffer.resume([("t", 0)])
    for partition in range(2):
        assert [one for one in taken if one % 2 == partition] == list(range(partition, count, 2))
