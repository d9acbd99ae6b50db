"""Back-pressure, and what the polling thread does while nobody takes records."""

from __future__ import annotations

import asyncio
import gc

import pytest
from confluent_kafka import KafkaException

from coopgroup.aio.records import by_partition
from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import FailMember, GrantResources, RevokeResources
from coopgroup.core.member.events import RevocationCompleted
from tests.support.inner import inner
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import ONE, P0, P1, ZERO, AioStage
from tests.unit.kafka.fakes import record


async def test_buffer_is_bounded_while_the_group_is_served(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        stage.feed(0, *range(5_000))
        ready = stage.fetching.record_buffer.ready
        await time_passes(0.9)
        assert ("pause", [(0, -1001), (1, -1001)]) not in stage.librdkafka.calls
        await time_passes()
        assert stage.librdkafka.calls[-1] == ("pause", [(0, -1001), (1, -1001)])
        assert 600 <= len(ready) < 5_000
        await stage.tell(RevokeResources(resources=ONE))
        assert RevocationCompleted(resources=ONE) in stage.driver.posted
        for offset in range(5_000):
            assert (await consumer.getone()).offset == offset
            stage.hand.now_s += 0.0001
        await time_passes()
        assert ("resume", [(0, -1001)]) in stage.librdkafka.calls


async def test_batches_leave_the_garbage_collector_alone(stage: AioStage) -> None:
    """A full batch has two objects for each record: that of librdkafka, and a `ConsumerRecord`."""
    async with stage.consumer("t"):
        size = stage.fetching.ahead_max
    before = gc.get_stats()[0]["collections"]
    batch = {}
    for _ in range(50):
        batch = by_partition([record(0, offset) for offset in range(size)])
    assert len(batch) == 1
    assert gc.get_stats()[0]["collections"] - before <= 10


async def test_slow_oauth_callback_is_not_called_on_the_loop(stage: AioStage) -> None:
    """The thread fetches all records then."""
    async with stage.consumer("t") as consumer:
        hand_out = inner(consumer, "_polling", "hand_out")
        hand_out.is_fetching_here = False
        stage.feed(0, *range(5_000))
        got = 0
        while got < 5_000:
            got += sum(map(len, (await consumer.getmany(timeout=1)).values()))
        assert hand_out.fetched_at_s < 0


async def test_refusal_of_the_group_is_raised_by_each_await_that_follows(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await time_passes(0.01)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        stage.driver.inbox.put(FailMember(code=code, message="no"))
        for call in (waiting, consumer.getone(), consumer.getmany()):
            with pytest.raises(KafkaException, match="no"):
                await call


@pytest.mark.parametrize("is_beside", [False, True], ids=["on the loop", "on the thread"])
async def test_failure_of_librdkafka_loses_nothing(stage: AioStage, *, is_beside: bool) -> None:
    async with stage.joined() as consumer:
        if is_beside:
            await time_passes(0.01)  # the polling waits in librdkafka
        assert inner(consumer, "_polling", "hand_out").fetch_lock.locked() == is_beside
        stage.librdkafka.failure = LookupError("once")
        with pytest.raises(LookupError, match="once"):
            await consumer.getone()
        stage.feed(0, 0)
        assert (await consumer.getone()).offset == 0


async def test_auto_commit_goes_by_the_clock(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1)
        await consumer.getone()
        stage.committing.due_at_s = 0.0
        await time_passes()
        assert (0, 1) in stage.committed


# --- tasks that await some partitions only, while records of others come --------------------------


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
