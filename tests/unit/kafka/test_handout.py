"""Records between librdkafka and the application."""

from confluent_kafka import KafkaError, Message

from coopgroup.kafka.handout import HandOut, partition_of
from tests.unit.kafka.fakes import record

EOF = Message(topic="t", partition=1, offset=5, error=KafkaError(KafkaError._PARTITION_EOF))  # noqa: SLF001


def filled(*messages: Message) -> HandOut:
    hand_out = HandOut()
    hand_out.add(messages)
    return hand_out


def places(messages: list[Message]) -> list[tuple[int | None, int | None]]:
    """Return (partition, offset) of each record."""
    return [(one.partition(), one.offset()) for one in messages]


def rest(hand_out: HandOut) -> list[tuple[int | None, int | None]]:
    return places(list(hand_out.ready))


def test_partition_of_an_error_of_no_partition_is_none_of_any_topic() -> None:
    """Such events are never dropped with a partition."""
    assert partition_of(Message(error=KafkaError(KafkaError._TRANSPORT))) == ("", -1)  # noqa: SLF001


def test_peek_when_records_are_not_taken_gives_them_again() -> None:
    """Only `take` removes records, from the front."""
    hand_out = filled(record(0, 0), record(1, 0), record(0, 1))
    assert places(hand_out.peek(2)) == [(0, 0), (1, 0)]
    assert places(hand_out.peek(9)) == [(0, 0), (1, 0), (0, 1)]
    hand_out.take(2)
    assert rest(hand_out) == [(0, 1)]
    hand_out.take(1)
    assert hand_out.peek(1) == []


def test_ready_stays_the_same_object_whatever_happens() -> None:
    """The hot path keeps a reference to it."""
    hand_out = filled(record(0, 0), record(1, 0))
    ready = hand_out.ready
    hand_out.pause([("t", 0)])
    hand_out.resume([("t", 0)])
    hand_out.drop([("t", 1)])
    hand_out.take(5)
    assert hand_out.ready is ready


def test_pause_puts_what_waits_aside_and_what_comes_too() -> None:
    """After `resume`, the records precede later ones of other partitions, in their order."""
    hand_out = filled(record(0, 0), record(1, 0), record(0, 1))
    hand_out.pause([("t", 0), ("t", 0)])
    hand_out.add([record(0, 2), record(1, 1)])
    assert rest(hand_out) == [(1, 0), (1, 1)]
    assert hand_out.paused == {("t", 0)}
    hand_out.resume([("t", 0), ("t", 7)])
    assert rest(hand_out) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert hand_out.paused == frozenset()


def test_drop_forgets_records_events_and_the_pause() -> None:
    """The next owner reads the records again."""
    hand_out = filled(record(0, 0), record(1, 0), EOF)
    hand_out.pause([("t", 0)])
    hand_out.drop([("t", 0), ("t", 1)])
    hand_out.add([record(0, 9)])
    assert (rest(hand_out), hand_out.paused) == ([(0, 9)], frozenset())


def test_skip_forgets_records_and_keeps_the_pause() -> None:
    """A seek does not resume a paused partition."""
    hand_out = filled(record(0, 0), record(1, 0))
    hand_out.pause([("t", 0)])
    hand_out.skip(("t", 0))
    hand_out.skip(("t", 1))
    hand_out.add([record(0, 30)])
    assert rest(hand_out) == []
    hand_out.resume([("t", 0)])
    assert rest(hand_out) == [(0, 30)]


def test_first_and_last_waiting_leave_events_out() -> None:
    """They count ready records and those of paused partitions."""
    hand_out = filled(record(0, 3), record(0, 4), EOF, record(1, 5), record(1, 6))
    hand_out.pause([("t", 1)])
    first = {key: one.offset() for key, one in hand_out.first_waiting().items()}
    last = {key: one.offset() for key, one in hand_out.last_waiting().items()}
    assert first == {("t", 0): 3, ("t", 1): 5}
    assert last == {("t", 0): 4, ("t", 1): 6}
