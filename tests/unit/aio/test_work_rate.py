"""The measured rate of a loop, and the time that counts as work."""

from __future__ import annotations

import pytest

from coopgroup.aio.work_rate import LoopWork
from coopgroup.kafka.membership.work_meter import WorkMeter
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import AioStage


def test_rate_while_there_is_always_more_is_that_of_the_work() -> None:
    work = LoopWork(WorkMeter())
    for second in range(4):
        work.look(float(second), has_more=True)
        work.taken += 50
    work.wait(4.0)
    assert work.meter.rate_per_s == 50.0


def test_rate_when_the_loop_mostly_waits_is_unknown() -> None:
    """A single record at a time: the next one arrives long after it was handled."""
    work = LoopWork(WorkMeter())
    for second in range(100):
        work.taken += 1
        work.look(second + 0.01, has_more=False)
        work.wait(second + 0.01)
    assert work.meter.rate_per_s is None


def test_looks_during_long_handlers_take_nothing_from_their_time() -> None:
    """Other tasks of the loop ask meanwhile, and get nothing: still one record in five seconds."""
    work = LoopWork(WorkMeter())
    for cycle in range(100):
        begin = 5.0 * cycle
        work.look(begin, has_more=True)
        work.taken += 1
        work.look(begin + 2.5, has_more=True)
        work.look(begin + 4.0, has_more=True)
    assert work.meter.rate_per_s == pytest.approx(0.2, rel=0.3)


def test_rate_when_handlers_are_measured_elsewhere_stays_theirs() -> None:
    work = LoopWork(WorkMeter())
    work.meter.is_elsewhere = True
    work.look(0.0, has_more=True)
    work.taken += 1_000
    work.wait(1.0)
    assert work.meter.rate_per_s is None


@pytest.mark.parametrize("way", ["getone", "getmany", "async for"])
async def test_consumer_is_measured_in_each_way_to_get_records(stage: AioStage, way: str) -> None:
    """Each record takes 2 ms, so the rate is 500 a second."""
    async with stage.consumer("t") as consumer:
        stage.feed(0, *range(300))
        count = 0
        while count < 250:
            if way == "getone":
                await consumer.getone()
                count += 1
                await time_passes(0.002)
            elif way == "getmany":
                batch = await consumer.getmany(timeout=1, max_records=10)
                size = sum(map(len, batch.values()))
                count += size
                await time_passes(0.002 * size)
            else:
                async for _ in consumer:
                    count += 1
                    await time_passes(0.002)
                    if count == 250:
                        break
    assert stage.driver.meter.rate_per_s == pytest.approx(500, rel=0.05)
