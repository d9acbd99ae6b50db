"""Records wait in a bounded queue, and reach the receiver in order."""

import threading

from coopgroup.metrics import record_queue as record_queue_module
from coopgroup.metrics.record_queue import RecordQueue
from coopgroup.telemetry import Envelope
from tests.support.waiting import wait_for
from tests.unit.metrics.members import told


def test_records_reach_the_receiver_in_order_also_beside_a_drain() -> None:
    got: list[int] = []

    def take(sender: int, _: Envelope) -> None:
        got.append(sender)

    records = RecordQueue(capacity=100_000, take=take)
    for number in range(5_000):
        records.put(number, told())
        if number % 100 == 0:
            records.drain()
    wait_for(lambda: len(got) == 5_000)
    assert got == list(range(5_000))


def test_record_without_a_place_is_dropped_and_counted() -> None:
    goes_on, begins = threading.Event(), threading.Event()

    def take(_: int, __: Envelope) -> None:
        begins.set()
        goes_on.wait(5)

    records = RecordQueue(capacity=2, take=take)
    records.put(0, told())
    assert begins.wait(5)
    for number in range(5):
        records.put(number, told())
    assert records.dropped == 3
    goes_on.set()


def test_look_is_called_on_the_thread_of_the_queue() -> None:
    looked: list[str] = []
    records: RecordQueue[int] = RecordQueue(
        capacity=1,
        take=lambda _, __: None,
        look=lambda: looked.append(threading.current_thread().name),
    )
    records.put(0, told())
    wait_for(lambda: looked == ["coopgroup-metrics"])
    assert record_queue_module.LOOK_S == 30
