"""The measured rate of handlers, and the records that count."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.processing import Limits
from coopgroup.processing.attachment import HandlerWork
from coopgroup.processing.scheduler import Order, Scheduler
from tests.support.fake_records import FakeRecord


def worked(order: Order, partitions: int, handlers: int, seconds: int) -> WorkMeter:
    """Let all handlers together end one record in each second; return the meter."""
    scheduler = Scheduler(order, Limits())
    found: Any = [
        FakeRecord(number=number, at=at, its_key=b"%d" % at)
        for at in range(10)
        for number in range(partitions)
    ]
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
def test_rate_while_all_handlers_are_busy_is_theirs(order: Order, partitions: int) -> None:
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
