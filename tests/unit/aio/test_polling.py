"""Back-pressure, and what the polling thread does while nobody takes records."""

from __future__ import annotations

import asyncio
import gc

import pytest
from confluent_kafka import KafkaException

from coopgroup.aio.records import by_partition
from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import FailMember, RevokeResources
from coopgroup.core.member.events import RevocationCompleted
from tests.support.inner import inner
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import ONE, AioStage
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
