"""The measured rate of handlers, and the records that count."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import pytest

from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.processing import Limits, Stop, process
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Order, Scheduler
from coopgroup.processing.tasks import TaskProcessing
from coopgroup.processing.work_rate import HandlerWork
from tests.support.by_hand import by_hand
from tests.support.fake_records import FakeAsyncConsumer, FakeConsumer, FakeRecord
from tests.support.virtual_loop import run_virtual, time_passes

HANDLER_S = 0.01


def records(partitions: int, count: int) -> list[FakeRecord]:
    return [
        FakeRecord(number=number, at=at, its_key=b"%d" % at)
        for at in range(count)
        for number in range(partitions)
    ]


def worked(order: Order, partitions: int, handlers: int, seconds: int) -> WorkMeter:
    """Let all handlers together end one record in each second; return the meter."""
    scheduler = Scheduler(order, Limits())
    found: Any = records(partitions, 10)
    scheduler.add(found)
    work = HandlerWork(WorkMeter(), scheduler, handlers)
    begun = deque(one for _ in range(handlers) if (one := scheduler.take()) is not None)
    for second in range(seconds):
        work.note_end(float(second))
        scheduler.finish(begun.popleft())
        taken = scheduler.take()
        if taken is not None:
            begun.append(taken)
    return work.meter


@pytest.mark.parametrize(("order", "partitions"), [("partition", 2), ("key", 1), ("none", 1)])
def test_rate_while_all_handlers_are_busy_is_that_of_the_work(
    order: Order, partitions: int
) -> None:
    assert worked(order, partitions, 3, 6).rate_per_s == 1.0


def test_rate_when_handlers_wait_for_records_is_unknown() -> None:
    """Three handlers, two records of different keys."""
    scheduler = Scheduler("key", Limits())
    work = HandlerWork(WorkMeter(), scheduler, 3)
    for second in range(20):
        found: Any = [FakeRecord(at=2 * second, its_key=b"a"), FakeRecord(at=2 * second + 1)]
        scheduler.add(found)
        for begun in [scheduler.take(), scheduler.take()]:
            assert begun is not None
            work.note_end(float(second))
            scheduler.finish(begun)
    assert work.meter.rate_per_s is None


def test_threads_are_measured_instead_of_the_polls() -> None:
    """Two handlers of 10 ms, of which one ends every 5 ms, handle 200 records a second."""
    consumer: Any = FakeConsumer(deque(records(2, 60)))
    handled: list[object] = []
    stop = threading.Event()

    def handle(message: object) -> None:
        hand.now_s += HANDLER_S / 2
        handled.append(message)
        if len(handled) >= 100:
            stop.set()

    with by_hand(waits=True) as hand:
        consumer.idle = hand.advance
        process(consumer, handle, workers=2, stop=stop)
    meter = consumer._parts.driver.meter  # noqa: SLF001
    assert meter.rate_per_s == pytest.approx(200)
    assert not meter.is_elsewhere


def test_tasks_are_measured_instead_of_the_loop() -> None:
    handled: list[object] = []

    async def main() -> Any:  # noqa: ANN401
        consumer: Any = FakeAsyncConsumer(deque(records(2, 60)))
        stop = asyncio.Event()

        async def handle(message: object) -> None:
            await time_passes(HANDLER_S)
            handled.append(message)
            if len(handled) >= 100:
                stop.set()

        scheduler, timing = Scheduler("partition", Limits()), Timing(stop, 5_000, hands_over=False)
        await TaskProcessing(consumer, handle, Stop(), scheduler, timing, 2).run()
        return consumer._parts.driver.meter  # noqa: SLF001

    with by_hand() as hand:
        meter = run_virtual(hand, main())
    assert meter.rate_per_s == pytest.approx(200)
