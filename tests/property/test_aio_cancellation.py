"""Cancellation at any await loses no record and skips none.

In virtual time, each seed takes the same course in every run. One seed has true threads.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

import pytest

from coopgroup.aio import AsyncCooperativeConsumer, ConsumerRecord
from tests.unit.aio.aio_stage import BOTH, AioStage, staged

CANCELLED_MIN = 3_400
STEPS_MAX = 4
BURST_MAX = 6
LIMIT_S = 60.0  # for a record that is there; only a lost one reaches it

Take: TypeAlias = "Callable[[AsyncCooperativeConsumer, list[ConsumerRecord]], object]"


async def _one(consumer: AsyncCooperativeConsumer, got: list[ConsumerRecord]) -> None:
    while True:
        got.append(await consumer.getone())


async def _many(consumer: AsyncCooperativeConsumer, got: list[ConsumerRecord]) -> None:
    while True:
        for records in (await consumer.getmany(timeout=0.001, max_records=3)).values():
            got.extend(records)


async def _of_partitions(consumer: AsyncCooperativeConsumer, got: list[ConsumerRecord]) -> None:
    while True:
        for one in consumer.assignment():
            for records in (await consumer.getmany(one, timeout=0.0005)).values():
                got.extend(records)


async def _iterate(consumer: AsyncCooperativeConsumer, got: list[ConsumerRecord]) -> None:
    async for one in consumer:
        got.append(one)  # noqa: PERF401 -- a comprehension would lose its records itself


async def _timed(consumer: AsyncCooperativeConsumer, got: list[ConsumerRecord]) -> None:
    while True:
        async with asyncio.timeout(0.0005):
            while True:
                got.append(await consumer.getone())


WAYS = (_one, _many, _of_partitions, _iterate, _timed)


async def _cancel_at_random(
    stage: AioStage, consumer: AsyncCooperativeConsumer, seed: int
) -> tuple[list[ConsumerRecord], dict[int, int], int]:
    """Return the records that tasks got, how many there were per partition, and the cancels."""
    draw = random.Random(seed)
    got: list[ConsumerRecord] = []
    fed: dict[int, int] = defaultdict(int)
    cancelled = 0
    while cancelled < CANCELLED_MIN:
        tasks = [
            asyncio.create_task(draw.choice(WAYS)(consumer, got)) for _ in range(draw.randint(1, 2))
        ]
        for _ in range(draw.randint(0, BURST_MAX)):
            partition = draw.choice((0, 1))
            stage.feed(partition, fed[partition])
            fed[partition] += 1
        for _ in range(draw.randint(0, STEPS_MAX)):
            await asyncio.sleep(draw.choice((0, 0, 0.0005)))
        for task in tasks:
            cancelled += task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if draw.random() < 0.02:
            _check_positions(stage, got)
    return got, fed, cancelled


def _check_positions(stage: AioStage, got: list[ConsumerRecord]) -> None:
    """What would be committed now is what the tasks got, and nothing else."""
    reached = {one.partition: one.offset + 1 for one in got}
    due = {one.partition: one.offset for one in stage.committing.store.due(BOTH)}
    assert all(due.get(partition, 0) <= offset for partition, offset in reached.items())
    assert due.keys() - reached.keys() <= {one for one, offset in due.items() if offset == 0}
    assert all(due[one] == offset for one, offset in reached.items() if one in due)


@pytest.mark.parametrize(("seed", "has_threads"), [(1, False), (2, False), (3, True)])
def test_cancelled_awaits_lose_no_record_and_repeat_none(seed: int, *, has_threads: bool) -> None:
    async def main() -> None:
        async with stage.consumer("t") as consumer:
            got, fed, cancelled = await _cancel_at_random(stage, consumer, seed)
            while len(got) < sum(fed.values()):
                records = await consumer.getmany(timeout=LIMIT_S)
                assert records, f"{sum(fed.values()) - len(got)} records were lost"
                for of_partition in records.values():
                    got.extend(of_partition)
            assert cancelled >= CANCELLED_MIN
            for partition, count in fed.items():
                offsets = [one.offset for one in got if one.partition == partition]
                assert offsets == list(range(count))
            _check_positions(stage, got)

    with staged(has_threads=has_threads) as stage:
        stage.run(main())
    assert stage.ended == ["stop", "close"]
