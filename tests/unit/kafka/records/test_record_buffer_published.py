"""Positions for threads that must not ask librdkafka."""

import pytest
from confluent_kafka import TopicPartition

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.record_buffer import PublishedPositions
from tests.unit.kafka.fakes import FakeLibrdkafka, record, starts

ZERO = TopicPartition("t", 0)


def begun() -> Fetching:
    fetching = Fetching(FakeLibrdkafka(), starts())
    fetching.published = PublishedPositions()
    fetching.begin([TopicPartition("t", 0, 4)])
    return fetching


def offset(fetching: Fetching) -> int:
    return fetching.positions([ZERO])[0].offset


def test_position_is_that_of_the_first_waiting_record_then_after_the_last_one() -> None:
    fetching = begun()
    fetching.consumer.feed([record(0, 4), record(0, 5)])
    fetching.fetch(10, 0)
    fetching.consumer = None  # nobody asks it now
    places = [offset(fetching)]
    for _ in range(2):
        fetching.record_buffer.take(1)
        places.append(offset(fetching))
    assert places == [4, 5, 6]


@pytest.mark.parametrize("is_sought", [True, False])
def test_position_is_forgotten_by_seek_and_at_the_end_of_an_assignment(*, is_sought: bool) -> None:
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
    assert offset(fetching) == -1001
