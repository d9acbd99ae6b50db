"""Tasks that await some partitions only, while records of others come."""

from __future__ import annotations

import asyncio

from coopgroup.core.member.effects import GrantResources, RevokeResources
from coopgroup.core.member.events import RevocationCompleted
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import P0, P1, ZERO, AioStage


async def test_awaited_partition_gets_its_records_and_the_others_continue(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, *range(20_000))
        waiting = asyncio.create_task(consumer.getone(P1))
        await time_passes()
        assert stage.librdkafka.paused == {0}
        stage.feed(1, *range(3_000))
        assert (await waiting).offset == 0
        await time_passes(3)
        assert stage.librdkafka.paused == {0, 1}  # no task awaits any
        assert [(await consumer.getone(P1)).offset for _ in range(2_999)] == [*range(1, 3_000)]
        assert stage.librdkafka.paused == {0}
        got: list[int] = []
        while len(got) < 20_000:
            found = await consumer.getmany(P0, timeout=5, max_records=500)
            got += [one.offset for one in found[P0]]
        assert got == [*range(20_000)]
        assert stage.librdkafka.paused == set()


async def test_await_of_all_continues_the_others_while_records_come(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, *range(5_000))
        assert await consumer.getmany(P1, timeout=0.1) == {}
        assert stage.librdkafka.paused == {0}
        got = 0
        for offset in range(100_000):
            stage.feed(1, offset)
            got += (await consumer.getone()).partition == 0
            if offset % 100 == 0:
                await time_passes(0.001)
            if got == 5_000:
                break
        assert got == 5_000


async def test_partition_of_a_busy_task_is_not_paused(stage: AioStage) -> None:
    """Otherwise each pause would cost that task up to a second."""
    async with stage.consumer("t") as consumer:
        waiting = asyncio.create_task(consumer.getone(P1))
        for offset in range(3_000):
            stage.feed(0, 2 * offset, 2 * offset + 1)
            assert (await consumer.getone(P0)).offset == offset
            if offset % 100 == 0:
                await time_passes(0.001)
        assert len(stage.fetching.record_buffer.ready) >= 600
        assert ("pause", [(0, -1001)]) not in stage.librdkafka.calls
        stage.feed(1, 0)
        assert (await waiting).offset == 0


async def test_consumer_that_was_held_back_gets_the_awaited_records(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        stage.feed(0, *range(5_000))
        await time_passes(2)
        assert stage.librdkafka.paused == {0, 1}
        stage.feed(1, 7)
        assert (await consumer.getone(P1)).offset == 7
        assert stage.librdkafka.paused == {0}


async def test_pause_of_the_application_outlasts_one_for_lack_of_an_await(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, *range(5_000))
        assert await consumer.getmany(P1, timeout=0.1) == {}
        consumer.pause(P0)
        assert await consumer.getmany(timeout=0.1) == {}
        assert stage.librdkafka.paused == {0}
        consumer.resume(P0)
        assert [(await consumer.getone()).offset for _ in range(5_000)] == [*range(5_000)]


async def test_paused_partition_that_was_revoked_returns_without_its_pause(stage: AioStage) -> None:
    """Otherwise it would stay paused: the pause outlasts the assignment in librdkafka."""
    async with stage.consumer("t") as consumer:
        stage.feed(0, *range(5_000))
        assert await consumer.getmany(P1, timeout=0.1) == {}
        assert stage.librdkafka.paused == {0}
        await stage.tell(RevokeResources(resources=ZERO))
        assert RevocationCompleted(resources=ZERO) in stage.driver.posted
        assert stage.librdkafka.paused == set()
        await stage.tell(GrantResources(resources=ZERO))
        assert P0 in consumer.assignment()
        stage.feed(0, 9)
        while (await consumer.getone(P0)).offset != 9:
            pass
