"""No record is lost between librdkafka and the hand-out, even if a fetch is interrupted."""

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.record_buffer import Pauser
from tests.unit.kafka.fakes import FakeLibrdkafka, places, record, starts

BOTH = [TopicPartition("t", 0), TopicPartition("t", 1, 50)]
HELD = ResourceSet({"t": [0, 1]})


def begun(*messages: Message) -> tuple[Fetching, FakeLibrdkafka]:
    """Fetch two partitions, from a stored offset and from 50."""
    librdkafka = FakeLibrdkafka()
    fetching = Fetching(librdkafka, starts())
    fetching.begin(BOTH)
    librdkafka.calls.clear()
    librdkafka.feed(messages)
    return fetching, librdkafka


def positions(fetching: Fetching) -> list[int]:
    return [one.offset for one in fetching.positions(BOTH)]


def ready(fetching: Fetching) -> list[tuple[int | None, int | None]]:
    """Return (partition, offset) of the records to hand out next."""
    return places(fetching.record_buffer.ready)


def test_fetch_of_one_record_prefetches_others() -> None:
    fetching, _ = begun(record(0, 7), record(1, 50), record(0, 8))
    assert positions(fetching) == [0, 50]  # where they begin
    fetching.fetch(1, 0)
    assert (ready(fetching), positions(fetching)) == ([(0, 7), (1, 50), (0, 8)], [7, 50])
    fetching.record_buffer.take(2)
    assert positions(fetching) == [8, 51]
    fetching.record_buffer.take(1)
    assert positions(fetching) == [9, 51]


def test_fetch_when_records_are_large_takes_few_ahead() -> None:
    large = Message(topic="t", partition=0, offset=0, value=bytes(2_000_000))
    fetching, librdkafka = begun(*[large] * 100)
    fetching.fetch(1, 0)
    fetching.record_buffer.take(100)
    fetching.fetch(1, 0)
    assert (len(fetching.record_buffer.ready), len(librdkafka.queue)) == (2, 100 - 32 - 2)


def test_positions_when_asked_while_a_batch_is_under_way_are_those_before_it() -> None:
    """Another thread asks: librdkafka is already ahead, the hand-out lacks the records."""
    fetching, librdkafka = begun(record(0, 7))
    fetching.fetch(2, 0)
    fetching.record_buffer.take(1)
    seen: list[list[int]] = []
    librdkafka.feed([record(0, 8), record(1, 50)])
    librdkafka.on_fetch = lambda: seen.append(positions(fetching))
    fetching.fetch(2, 0)
    assert (seen, positions(fetching)) == ([[8, 50]], [8, 50])


def test_end_when_paused_wakes_librdkafka_before_it_lets_go() -> None:
    """Otherwise it would stay paused when the partition returns."""
    fetching, librdkafka = begun(record(0, 7), record(1, 50))
    fetching.fetch(2, 0)
    fetching.pause([TopicPartition("t", 0), TopicPartition("t", 5)], HELD, "application")
    fetching.end(ResourceSet({"t": [0, 9]}))
    assert librdkafka.calls[1:] == [("resume", [(0, -1001)]), ("unassign", [(0, -1001)])]
    assert (fetching.record_buffer.paused, ready(fetching)) == (frozenset(), [(1, 50)])
    assert fetching.fetched == ResourceSet({"t": [1]})


@pytest.mark.parametrize("first", ["application", "processing"])
def test_partition_goes_on_when_all_its_pauses_have_ended(first: Pauser) -> None:
    fetching, librdkafka = begun(record(0, 7), record(1, 50))
    fetching.fetch(2, 0)
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    second: Pauser = "processing" if first == "application" else "application"
    fetching.pause([zero, one], HELD, first)
    fetching.pause([zero], HELD, second)
    fetching.resume([zero, one], first)
    assert (librdkafka.calls[-1], ready(fetching)) == (("resume", [(1, -1001)]), [(1, 50)])
    fetching.resume([zero], second)
    assert librdkafka.calls[-1] == ("resume", [(0, -1001)])
    assert ready(fetching) == [(0, 7), (1, 50)]


def test_begin_when_paused_before_pauses_in_librdkafka() -> None:
    librdkafka = FakeLibrdkafka()
    fetching = Fetching(librdkafka, starts())
    fetching.pause([TopicPartition("t", 0)], HELD, "application")
    fetching.begin(BOTH)
    assert librdkafka.calls == [
        ("pause", [(0, -1001)]),
        ("assign", [(1, 50), (0, 0)]),
        ("pause", [(0, 0)]),
    ]


# --- topics ahead of the first assignment ---------------------------------------------------------


class _Topics(FakeLibrdkafka):
    """Notes the topics that are looked up, None for all; a look-up takes time of the clock."""

    def __init__(self, delay_s: float = 0.0, pass_s: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self.asked: list[str | None] = []
        self.delay_s, self.pass_s = delay_s, pass_s

    def list_topics(self, topic: str | None = None, *, timeout: float) -> None:
        super().list_topics("", timeout=timeout)
        if self.pass_s is not None:
            self.pass_s(min(self.delay_s, timeout))
        if timeout < self.delay_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.asked.append(topic)


def test_a_topic_of_which_nothing_is_fetched_is_looked_up_before_it_is() -> None:
    """Otherwise librdkafka waits for its next tick. It already knows fetched topics."""
    consumer = _Topics()
    fetching = Fetching(consumer, starts())
    fetching.begin([TopicPartition("a", 0), TopicPartition("a", 1)])
    fetching.begin([TopicPartition("a", 2), TopicPartition("b", 0)])
    assert consumer.asked == ["a", "b"]
    fetching.end(ResourceSet({"b": [0]}))
    fetching.begin([TopicPartition("b", 0)])
    assert consumer.asked == ["a", "b", "b"]


def test_many_topics_are_looked_up_at_once() -> None:
    """A thousand requests for one topic each would take longer than one request for all."""
    consumer = _Topics()
    Fetching(consumer, starts()).begin([TopicPartition(str(number), 0) for number in range(1_000)])
    assert consumer.asked == [None]


@pytest.mark.parametrize("wanted", [1, 2, 100])
def test_close_inside_a_fetch_waits_for_its_end(wanted: int) -> None:
    """Without the wait librdkafka hangs or crashes. Records of that fetch are not handed out."""
    fetching, librdkafka = begun(record(0, 7), record(1, 50))
    seen: list[object] = []

    def close() -> None:
        librdkafka.on_fetch = None
        fetching.end(HELD)
        fetching.close()
        seen.extend(name for name, _ in librdkafka.calls)

    librdkafka.on_fetch = close
    fetching.fetch(wanted, 0)
    assert seen == ["unassign"]
    assert (librdkafka.calls[-1], ready(fetching)) == (("close", None), [])


def test_close_that_hangs_in_librdkafka_is_left_to_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Librdkafka waits without end if one of its topics was deleted (its issue 4362)."""
    monkeypatch.setattr("coopgroup.kafka.records.fetching._CLOSE_MAX_S", 0.01)
    fetching, _ = begun(record(0, 7))
    goes_on = threading.Event()
    monkeypatch.setattr(FakeLibrdkafka, "close", lambda _: goes_on.wait())
    warnings: list[str] = []
    fetching.starts.warn = lambda event, **_: warnings.append(event)
    fetching.close()
    goes_on.set()
    assert warnings == ["client_not_closed"]


def test_error_of_librdkafkas_close_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    fetching, _ = begun(record(0, 7))

    def fail(_: FakeLibrdkafka) -> None:
        raise RuntimeError("Consumer closed")

    monkeypatch.setattr(FakeLibrdkafka, "close", fail)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        fetching.close()


def test_exception_of_who_gave_up_partitions_inside_a_fetch_comes_out_as_it_is() -> None:
    fetching, librdkafka = begun(record(0, 7), record(1, 50))
    librdkafka.on_fetch = lambda: fetching.end(ResourceSet({"t": [0]}))
    librdkafka.failure = SystemExit(0)
    with pytest.raises(SystemExit):
        fetching.fetch(2, 0)
    assert librdkafka.calls == [
        ("unassign", [(0, -1001)]),
        ("unassign", [(1, -1001)]),
        ("assign", [(1, 50)]),
    ]


@pytest.mark.usefixtures("hand")
@pytest.mark.parametrize("few", [True, False])
def test_positions_are_asked_anew_if_they_moved_far(
    few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 positions are slow to read. An interrupted batch is fetched again in either case."""
    asked: list[int] = []
    position = FakeLibrdkafka.position

    def count(self: FakeLibrdkafka, partitions: list[TopicPartition]) -> list[TopicPartition]:
        asked.append(len(partitions))
        return position(self, partitions)

    monkeypatch.setattr(FakeLibrdkafka, "position", count)
    last = 8 if few else 20
    fetching, librdkafka = begun(*(record(0, offset) for offset in range(7, last + 1)))
    for _ in range(5):
        fetching.fetch(100, 0)
    assert asked == [2] * (1 if few else 2)
    fetching.record_buffer.take(100)
    librdkafka.feed([record(0, last + 1)])
    librdkafka.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fetching.fetch(1, 0)
    assert librdkafka.calls == [("unassign", [(0, last + 1)]), ("assign", [(0, last + 1)])]
    fetching.seek(TopicPartition("t", 0, 3))
    asked.clear()
    fetching.fetch(1, 0)
    assert asked == [2]
