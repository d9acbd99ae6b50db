"""The measured rate of a loop, and the time that counts as work."""

from __future__ import annotations

import pytest

from coopgroup.aio.hand_out import LoopWork
from coopgroup.kafka.membership.work_meter import WorkMeter
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import AioStage


@pytest.mark.parametrize(
    ("cycle_s", "looks", "expected"),
    [
        (1.0, ((0.0, True),), 1.0),
        # A single record at a time: the next one arrives long after it was handled.
        (1.0, ((0.01, False), (0.01, None)), None),
        # Other tasks of the loop ask during a long handler, and get nothing.
        (5.0, ((0.0, True), (2.5, True), (4.0, True)), 0.2),
    ],
    ids=["always more", "mostly waits", "long handlers"],
)
def test_rate_of_a_loop_that_takes_one_record_in_each_cycle(
    cycle_s: float, looks: tuple[tuple[float, bool | None], ...], expected: float | None
) -> None:
    work = LoopWork(WorkMeter())
    for cycle in range(100):
        for at_s, has_more in looks:
            if has_more is None:
                work.wait(cycle_s * cycle + at_s)
            else:
                work.look(cycle_s * cycle + at_s, has_more=has_more)
            work.taken += at_s == looks[0][0]
    rate = work.meter.rate_per_s
    assert rate == (None if expected is None else pytest.approx(expected, rel=0.3))


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
