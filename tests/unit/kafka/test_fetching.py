"""No record is lost between librdkafka and the hand-out, whatever interrupts."""

import pytest
from confluent_kafka import Message, TopicPartition

from coopgroup.kafka.fetching import Fetching
from coopgroup.model import ResourceSet
from tests.unit.kafka.fakes import FakeLibrdkafka, record

BOTH = [TopicPartition("t", 0), TopicPartition("t", 1, 50)]
HELD = ResourceSet({"t": [0, 1]})


def begun(*messages: Message) -> tuple[Fetching, FakeLibrdkafka]:
    """Two partitions are fetched, from a stored offset and from 50."""
    librdkafka = FakeLibrdkafka()
    fetching = Fetching(librdkafka)
    fetching.begin(BOTH)
    librdkafka.calls.clear()
    librdkafka.feed(messages)
    return fetching, librdkafka


def positions(fetching: Fetching) -> list[int]:
    """Of both partitions."""
    return [one.offset for one in fetching.positions(BOTH)]


def ready(fetching: Fetching) -> list[tuple[int | None, int | None]]:
    """What is to be handed out next."""
    return [(one.partition(), one.offset()) for one in fetching.hand_out.ready]


def test_fetch_when_one_record_will_do_gets_others_ahead() -> None:
    """Positions are those of the first record that waits."""
    fetching, _ = begun(record(0, 7), record(1, 50), record(0, 8))
    assert positions(fetching) == [-1001, -1001]
    fetching.fetch(1, 0)
    assert (ready(fetching), positions(fetching)) == ([(0, 7), (1, 50), (0, 8)], [7, 50])
    fetching.hand_out.take(2)
    assert positions(fetching) == [8, 51]
    fetching.hand_out.take(1)
    assert positions(fetching) == [9, 51]


def test_fetch_when_records_are_large_takes_few_ahead() -> None:
    """What waits is bounded in bytes, too."""
    large = Message(topic="t", partition=0, offset=0, value=bytes(2_000_000))
    fetching, librdkafka = begun(*[large] * 100)
    fetching.fetch(1, 0)
    fetching.hand_out.take(100)
    fetching.fetch(1, 0)
    assert (len(fetching.hand_out.ready), len(librdkafka.queue)) == (2, 100 - 32 - 2)


@pytest.mark.parametrize("wanted", [1, 100])
def test_fetch_when_interrupted_fetches_again_what_was_dropped(wanted: int) -> None:
    """Exactly from where the hand-out ends; what was not begun yet, from its first offset."""
    fetching, librdkafka = begun(record(0, 7), record(0, 8))
    fetching.fetch(2, 0)
    librdkafka.feed([record(0, 9), record(1, 50), record(0, 10)])
    librdkafka.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fetching.fetch(wanted, 0)
    assert librdkafka.calls == [
        ("unassign", [(0, 9)]),
        ("assign", [(0, 9)]),
        ("unassign", [(1, -1001)]),
        ("assign", [(1, 50)]),
    ]
    assert positions(fetching) == [7, -1001]
    fetching.hand_out.take(2)
    assert positions(fetching) == [9, -1001]
    librdkafka.feed([record(0, 9), record(1, 50)])
    fetching.fetch(2, 0)
    fetching.hand_out.take(2)
    assert positions(fetching) == [10, 51]


def test_fetch_when_interrupted_without_records_changes_nothing() -> None:
    """The usual Ctrl-C: it waited in vain."""
    fetching, librdkafka = begun()
    librdkafka.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fetching.fetch(1, 0.1)
    assert librdkafka.calls == []


def test_positions_when_asked_while_a_batch_is_under_way_are_those_before_it() -> None:
    """From another thread: librdkafka is ahead already, the hand-out does not have them yet."""
    fetching, librdkafka = begun(record(0, 7))
    fetching.fetch(2, 0)
    fetching.hand_out.take(1)
    seen: list[list[int]] = []
    librdkafka.feed([record(0, 8), record(1, 50)])
    librdkafka.on_fetch = lambda: seen.append(positions(fetching))
    fetching.fetch(2, 0)
    assert (seen, positions(fetching)) == ([[8, -1001]], [8, 50])


def test_end_when_paused_wakes_librdkafka_before_it_lets_go() -> None:
    """It would stay paused when the partition comes back."""
    fetching, librdkafka = begun(record(0, 7), record(1, 50))
    fetching.fetch(2, 0)
    fetching.pause([TopicPartition("t", 0), TopicPartition("t", 5)], HELD)
    fetching.end(ResourceSet({"t": [0, 9]}))
    assert librdkafka.calls[1:] == [("resume", [(0, -1001)]), ("unassign", [(0, -1001)])]
    assert (fetching.hand_out.paused, ready(fetching)) == (frozenset(), [(1, 50)])
    assert fetching.fetched == ResourceSet({"t": [1]})


def test_begin_when_paused_before_pauses_in_librdkafka() -> None:
    """`pause` in `on_assign`."""
    librdkafka = FakeLibrdkafka()
    fetching = Fetching(librdkafka)
    fetching.pause([TopicPartition("t", 0)], HELD)
    fetching.begin(BOTH)
    assert librdkafka.calls == [
        ("pause", [(0, -1001)]),
        ("assign", [(0, -1001), (1, 50)]),
        ("pause", [(0, -1001)]),
    ]


def test_seek_forgets_what_waits_and_the_position() -> None:
    """Until the next record nobody knows it, as in librdkafka."""
    fetching, _ = begun(record(0, 7), record(1, 50))
    fetching.fetch(2, 0)
    fetching.seek(TopicPartition("t", 0, 100))
    assert (ready(fetching), positions(fetching)) == ([(1, 50)], [-1001, 50])


def test_close_hands_out_nothing_more() -> None:
    """And ends librdkafka."""
    fetching, librdkafka = begun(record(0, 7))
    fetching.fetch(2, 0)
    fetching.close()
    assert (ready(fetching), librdkafka.calls) == ([], [("close", None)])
