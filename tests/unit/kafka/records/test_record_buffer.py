"""Records between librdkafka and the application."""

import threading
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.record_buffer import RecordBuffer
from tests.unit.kafka.fakes import FakeLibrdkafka, places, record, starts

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


# --- positions, also for threads that must not ask librdkafka -------------------------------------


ZERO = TopicPartition("t", 0)


def begun() -> Fetching:
    fetching = Fetching(FakeLibrdkafka(), starts())
    fetching.begin([TopicPartition("t", 0, 4)])
    return fetching


def offset(fetching: Fetching) -> int:
    return fetching.positions([ZERO])[0].offset


def test_position_is_that_of_the_first_waiting_record_then_after_the_last_one() -> None:
    """Asking librdkafka, `position` waited as long as another thread polled."""
    fetching = begun()
    fetching.consumer.feed([record(0, 4), record(0, 5)])
    fetching.fetch(10, 0)
    fetching.consumer = None  # nobody asks it now
    places = [offset(fetching)]
    for _ in range(2):
        fetching.record_buffer.take(1)
        places.append(offset(fetching))
    assert places == [4, 5, 6]
    (answer,) = fetching.positions([ZERO])
    assert answer.leader_epoch == 4
    answer.offset = 99  # it is the application's
    assert offset(fetching) == 6


@pytest.mark.parametrize("is_sought", [True, False])
def test_position_follows_seek_and_the_next_assignment(*, is_sought: bool) -> None:
    """Committing an earlier one could skip records of the owner in between."""
    fetching = begun()
    fetching.consumer.feed([record(0, 4)])
    fetching.fetch(10, 0)
    fetching.record_buffer.take(1)
    assert offset(fetching) == 5
    if is_sought:
        fetching.seek(TopicPartition("t", 0, 9))
    else:
        fetching.end(ResourceSet({"t": [0]}))
        fetching.begin([TopicPartition("t", 0, 2)])
    assert offset(fetching) == (9 if is_sought else 2)
