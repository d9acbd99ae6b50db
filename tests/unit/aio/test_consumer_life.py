"""Start, close, cancellation and event loops of a consumer."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.kafka.consumer import ConsumerParts
from coopgroup.worker import Worker
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import P1, AioStage

WAIT_S = 60.0  # of a wait that an event ends; only a broken consumer reaches it
Patch = pytest.MonkeyPatch


async def test_close_in_a_cancelled_task_closes_and_stays_cancelled(stage: AioStage) -> None:
    steps: list[str] = []

    async def revoke(_: object, __: object) -> None:
        await time_passes(0.05)
        steps.append("revoked")

    consumer = stage.consumer()
    consumer.subscribe(["t"], on_revoke=revoke)
    await consumer.start()
    stage.feed(0, 0)
    await consumer.getone()
    closing = asyncio.create_task(consumer.close())
    await time_passes(0.01)
    closing.cancel()
    await time_passes(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    steps.append("closed")
    assert steps == ["revoked", "closed"]
    assert (stage.committed, stage.ended) == ([(0, 1), (1, 0)], ["stop", "close"])


async def test_body_that_is_cancelled_closes(stage: AioStage) -> None:
    """What `asyncio.run` does at Ctrl-C."""

    async def body() -> None:
        async with stage.consumer("t") as consumer:
            stage.feed(0, 0)
            async for _ in consumer:
                pass

    task = asyncio.create_task(body())
    await time_passes()
    assert not stage.librdkafka.queue
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stage.committed, stage.ended) == ([(0, 1), (1, 0)], ["stop", "close"])
    assert (stage.polling, stage.driver.left) == (None, [("consumer closed", False)])


async def test_start_that_is_cancelled_closes_what_it_opened(stage: AioStage) -> None:
    task = asyncio.create_task(stage.consumer("t").start())
    stage.on_start = task.cancel
    with pytest.raises(asyncio.CancelledError):
        await task
    await time_passes()
    assert stage.ended == ["stop", "close"]


def test_consumer_outlives_its_loop(stage: AioStage) -> None:
    """`asyncio.run` twice, with one consumer."""
    consumer = stage.consumer("t")

    async def first() -> None:
        await consumer.start()
        stage.feed(0, 0, 1)
        assert (await consumer.getone()).offset == 0
        stage.driver.inbox.wake()
        asyncio.create_task(consumer.getone(P1)).add_done_callback(lambda _: None)
        await time_passes(0.01)

    async def second() -> None:
        assert (await consumer.getone()).offset == 1
        waiting = asyncio.create_task(consumer.getone())
        await time_passes(0.01)
        stage.feed(0, 2)
        assert (await waiting).offset == 2
        await consumer.close()

    stage.run(first())
    stage.run(second())
    assert stage.committed == [(0, 3), (1, 0)]


async def test_consumer_of_another_open_loop_is_refused(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        refused: list[bool] = []

        async def take() -> None:
            await consumer.getone()

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="used by another event loop, which is not clo"):
                asyncio.run(take())
            refused.append(True)

        Worker("elsewhere").submit(elsewhere)
        await time_passes()
        assert refused


def test_dropped_consumer_ends_its_thread(stage: AioStage) -> None:
    refs: list[weakref.ref[object]] = []

    class Service:
        """Keeps its consumer, and gives it a method of its own."""

        def __init__(self) -> None:
            self.consumer = stage.consumer()
            self.consumer.subscribe(["t"], on_revoke=self.hear)

        def hear(self, *_: object) -> None:
            raise AssertionError("no callback of a dropped consumer runs")

    async def main() -> None:
        service = Service()
        await service.consumer.start()
        stage.feed(0, 0)
        await service.consumer.getone()
        refs.append(weakref.ref(service))

    stage.run(main())
    gc.collect()
    assert refs[0]() is None
    stage.turn()
    assert (stage.polling, stage.ended, stage.committed) == (None, ["close"], [])


# --- with true threads ----------------------------------------------------------------------------


async def _use(stage: AioStage, consumer: AsyncCooperativeConsumer, partition: int) -> None:
    consumer.subscribe(["t"], on_assign=lambda *_: None)
    async with asyncio.timeout(WAIT_S), consumer:
        for offset in range(500):
            stage.feed(partition, offset)
            assert (await consumer.getone()).offset == offset
        stage.feed(partition, 500, 501)
        async for one in consumer:
            assert one.offset == 500
            break
        await consumer.commit()


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_consumers_of_several_loops_work_side_by_side(
    monkeypatch: Patch, own_threads: Callable[[], list[str]], kind: str
) -> None:
    """Each fetches on its loop and on its polling thread; no call of librdkafka meets another."""
    library = pytest.importorskip(kind, reason=f"{kind} is not installed")
    stages = {name: AioStage(has_threads=True) for name in ("a", "b")}
    monkeypatch.setattr(
        ConsumerParts, "build", lambda _, settings, *__: stages[settings.librdkafka["client.id"]]
    )
    done: list[str] = []

    def work(name: str) -> None:
        stage = stages[name]
        library.run(_use(stage, stage.consumer(**{"client.id": name}), 0))
        done.append(name)

    workers = [Worker("loop") for _ in stages]
    for worker, name in zip(workers, stages, strict=True):
        worker.submit(partial(work, name))
    assert all(worker.close(WAIT_S) for worker in workers)
    assert sorted(done) == ["a", "b"]
    for stage in stages.values():
        assert (stage.committed, stage.ended) == ([(0, 501), (1, 0)], ["stop", "close"])
    assert "coopgroup-aio" not in own_threads()
