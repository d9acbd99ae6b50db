"""Records wait in a bounded queue, and reach the receiver in order."""

from __future__ import annotations

from coopgroup.metrics.record_queue import LOOK_S, RecordQueue
from coopgroup.telemetry import Envelope
from tests.support.by_hand import by_hand
from tests.unit.metrics.members import told


def test_records_reach_the_receiver_in_order_also_beside_a_drain() -> None:
    got: list[int] = []

    def take(sender: int, _: Envelope) -> None:
        got.append(sender)

    with by_hand() as hand:
        records = RecordQueue(capacity=100, take=take)
        for number in range(20):
            records.put(number, told())
            if number % 7 == 0:
                records.drain()
        hand.run_one("coopgroup-metrics")
        assert got == list(range(20))
        hand.run()
    assert got == list(range(20))


def test_record_without_a_place_is_dropped_and_counted() -> None:
    with by_hand():
        records = RecordQueue[int](capacity=2, take=lambda _, __: None)
        for number in range(5):
            records.put(number, told())
        assert records.dropped == 3
        records.drain()
        records.put(5, told())
        assert records.dropped == 3


def test_drain_when_the_receiver_puts_a_record_ends() -> None:
    """A receiver whose own work is told, such as an exporter that is a member, too."""
    with by_hand():
        records = RecordQueue[int](capacity=9, take=lambda _, __: records.put(0, told()))
        records.put(0, told())
        records.drain()
        assert records.dropped == 0


def test_look_is_called_twice_a_minute_also_without_records() -> None:
    looks: list[float] = []
    with by_hand() as hand:
        records = RecordQueue[int](
            capacity=1, take=lambda _, __: None, look=lambda: looks.append(hand.now_s)
        )
        begin_s = hand.now_s
        records.wake()
        hand.advance(LOOK_S / 2)
        records.put(0, told())
        hand.advance(LOOK_S)
    assert looks == [begin_s, begin_s + LOOK_S]
