"""A topic is deleted and made again, or its log is cut: offsets begin anew below the position.

librdkafka's `consume` never lowers a position, and a commit of it lost the new records up to there.
"""

from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offsets import OffsetStore
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import FakeLibrdkafka, record, starts

BOTH = [TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)]
OWNED = ResourceSet({"t": [0, 1]})


class Stage:
    """A fetch of two partitions whose application takes each record at once."""

    def __init__(self) -> None:
        self.warned: list[dict[str, Any]] = []
        self.librdkafka = FakeLibrdkafka()
        told = starts(warn=lambda event, **fields: self.warned.append({"event": event, **fields}))
        self.fetching = Fetching(self.librdkafka, told)
        self.store = OffsetStore(self.fetching, automatic=True)
        self.fetching.begin(BOTH)

    def take(self, *messages: Message, wanted: int = 1) -> None:
        self.librdkafka.feed(messages)
        while self.librdkafka.queue:
            self.fetching.fetch(wanted, 0.0)
            self.fetching.record_buffer.ready.clear()

    def due(self) -> list[int]:
        """Return the offsets to commit of the partitions that had records."""
        return [one.offset for one in self.store.due(OWNED) if one.offset]


def run(partition: int, begin: int, end: int) -> list[Message]:
    return [record(partition, offset) for offset in range(begin, end)]


@pytest.mark.parametrize("wanted", [1, 40])
@pytest.mark.parametrize(
    ("batches", "due"),
    [
        ([run(0, 0, 20), run(0, 0, 10)], [10]),
        ([run(0, 0, 20), run(0, 0, 20)], [20]),
        ([run(0, 0, 5), [*run(0, 5, 20), *run(0, 0, 10)]], [10]),
        ([[*run(0, 15, 20), *run(0, 0, 18)]], [18]),
        ([run(0, 0, 2), run(0, 7, 20), [*run(0, 20, 30), *run(0, 0, 25)]], [25]),
        ([[*run(0, 0, 20), *run(1, 0, 20)], [*run(1, 20, 22), *run(0, 0, 3)]], [3, 22]),
        ([run(0, 0, 20), run(0, 0, 10), run(0, 10, 12), run(0, 0, 1)], [1]),
    ],
)
def test_position_follows_offsets_that_go_back(
    wanted: int, batches: list[list[Message]], due: list[int]
) -> None:
    stage = Stage()
    for batch in batches:
        stage.take(*batch, wanted=wanted)
    assert stage.due() == due
    assert {one["event"] for one in stage.warned} <= {"offsets_went_back"}


@pytest.mark.parametrize("wanted", [1, 40])
def test_offsets_that_go_back_are_told(wanted: int) -> None:
    stage = Stage()
    stage.take(*run(0, 0, 20), wanted=wanted)
    stage.take(*run(0, 0, 3), wanted=wanted)
    assert stage.warned == [{"event": "offsets_went_back", "positions": "t [0] at 3", "count": 1}]


def test_lower_offset_is_due_although_a_higher_one_was_committed() -> None:
    stage = Stage()
    stage.take(*run(0, 0, 20))
    stage.store.mark_committed(stage.store.due(OWNED))
    stage.take(*run(0, 0, 10))
    assert stage.due() == [10]


@pytest.mark.parametrize("gap", [0, 3])
def test_offsets_with_gaps_do_not_go_back(gap: int) -> None:
    """Compacted topics and transactions leave gaps, and `seek` may go anywhere."""
    stage = Stage()
    stage.take(*run(0, 0, 20))
    stage.take(*run(0, 20 + gap, 30), *run(1, 40, 45))
    stage.fetching.seek(TopicPartition("t", 0, 2))
    stage.take(*run(0, 2, 4))
    assert (stage.due(), stage.warned) == ([4, 45], [])


def test_partition_that_begins_again_stays_paused() -> None:
    stage = Stage()
    stage.take(*run(0, 0, 20))
    stage.fetching.pause([BOTH[0]], OWNED, "application")
    stage.take(*run(0, 0, 3))
    assert stage.librdkafka.calls[-3:] == [
        ("unassign", [(0, 3)]),
        ("assign", [(0, 3)]),
        ("pause", [(0, 3)]),
    ]


def test_positions_pass_the_markers_at_the_end_of_a_log(hand: Hand) -> None:
    """They stayed one short behind transactions, and so did commit and lag."""
    stage = Stage()
    stage.take(*run(0, 0, 3))
    assert stage.due() == [3]
    for end in (4, 5):
        stage.librdkafka.markers.append(("t", 0))
        hand.advance(1.0)
        stage.fetching.fetch(1, 0.0)
        stage.fetching.fetch(1, 0.0)
        assert stage.due() == [end]


def test_interrupted_batch_after_offsets_went_back_is_fetched_from_there() -> None:
    """It began at the offset of the earlier topic, which the new one may not have."""
    stage = Stage()
    stage.take(*run(0, 0, 20))
    stage.take(*run(0, 0, 3))
    stage.fetching.seek(TopicPartition("t", 1, 7))  # the positions are asked for again
    stage.librdkafka.feed(run(0, 3, 6))
    stage.librdkafka.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        stage.fetching.fetch(1, 0.0)
    assert stage.librdkafka.calls[-1] == ("assign", [(0, 3)])
