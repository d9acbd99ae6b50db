"""Back-pressure, and what the polling thread does while nobody takes records."""

from __future__ import annotations

import asyncio
import gc

import pytest
from confluent_kafka import KafkaException

from coopgroup.aio.records import by_partition
from coopgroup.member import ErrorCode
from coopgroup.member.effects import FailMember, RevokeResources
from coopgroup.member.events import RevocationCompleted
from coopgroup.model import ResourceSet
from tests.support.inner import inner
from tests.unit.aio.aio_stage import BOTH, ONE, AioStage, run, until
from tests.unit.kafka.fakes import record

Patch = pytest.MonkeyPatch


def test_buffer_is_bounded_while_the_group_is_served(monkeypatch: Patch) -> None:
    stage = AioStage()
    monkeypatch.setattr("coopgroup.aio.polling._FULL_S", 0.05)

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            await until(consumer.assignment)
            stage.feed(0, *range(5_000))
            ready = stage.fetching.record_buffer.ready
            await until(lambda: len(ready) >= 600)
            paused = ("pause", [(0, -1001), (1, -1001)])
            await until(lambda: paused in stage.librdkafka.calls)
            # librdkafka would return no record now; this one does, and shows that it is asked.
            await asyncio.sleep(0.2)
            assert 600 <= len(ready) < 5_000
            stage.driver.inbox.put(RevokeResources(resources=ONE))
            await until(lambda: RevocationCompleted(resources=ONE) in stage.driver.posted)
            offsets = [(await consumer.getone()).offset for _ in range(5_000)]
            assert offsets == list(range(5_000))
            await until(lambda: ("resume", [(0, -1001)]) in stage.librdkafka.calls)

    run(main())


def test_batches_leave_the_garbage_collector_alone(monkeypatch: Patch) -> None:
    """A full batch has two objects for each record: that of librdkafka, and a `ConsumerRecord`."""
    stage = AioStage()
    collections = 0

    async def main() -> None:
        nonlocal collections
        async with stage.consumer(monkeypatch, "t") as consumer:
            await until(consumer.assignment)
            size = stage.fetching.ahead_max
            before = gc.get_stats()[0]["collections"]
            batch = {}
            for _ in range(50):
                batch = by_partition([record(0, offset) for offset in range(size)])
            assert len(batch) == 1
            collections = gc.get_stats()[0]["collections"] - before

    run(main())
    assert collections <= 10


def test_slow_oauth_callback_is_not_called_on_the_loop(monkeypatch: Patch) -> None:
    """The thread fetches all records then."""
    stage = AioStage()

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            hand_out = inner(consumer, "_polling", "hand_out")
            hand_out.is_fetching_here = False
            stage.feed(0, *range(5_000))
            got = 0
            while got < 5_000:
                got += sum(map(len, (await consumer.getmany(timeout=1)).values()))
            assert hand_out.fetched_at_s < 0

    run(main())


def test_refusal_of_the_group_is_raised_by_each_await_until_subscribed_anew(
    monkeypatch: Patch,
) -> None:
    stage = AioStage()

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            await until(consumer.assignment)
            waiting = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.01)
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            stage.driver.inbox.put(FailMember(code=code, message="no"))
            for call in (waiting, consumer.getone(), consumer.getmany()):
                with pytest.raises(KafkaException, match="no"):
                    await call

    run(main())


def test_failure_of_librdkafka_is_raised_once_and_loses_nothing(monkeypatch: Patch) -> None:
    stage = AioStage(resources=ResourceSet({"t": [0]}))

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            await until(lambda: stage.fetching.fetched)
            stage.librdkafka.failure = LookupError("once")
            with pytest.raises(LookupError, match="once"):
                await consumer.getone()
            stage.feed(0, 0)
            assert (await consumer.getone()).offset == 0

    run(main())


def test_auto_commit_goes_by_the_clock(monkeypatch: Patch) -> None:
    stage = AioStage(resources=BOTH)

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            stage.feed(0, 0, 1)
            await consumer.getone()
            stage.committing.due_at_s = 0.0
            await until(lambda: (0, 1) in stage.committed)

    run(main())
