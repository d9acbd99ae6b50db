"""Start, close, cancellation and event loops of a consumer."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from coopgroup.aio import AsyncCooperativeConsumer
from tests.support.inner import inner
from tests.unit.aio.aio_stage import P1, AioStage, run, until

WAIT_S = 10.0
Patch = pytest.MonkeyPatch


def test_close_commits_what_was_handed_out_and_ends_the_thread(monkeypatch: Patch) -> None:
    stage = AioStage()

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            stage.feed(0, 0, 1, 2)
            await consumer.getone()
        assert not inner(consumer, "_polling", "_thread").is_alive()
        await consumer.close()

    run(main())
    assert (stage.committed, stage.ended) == ([(0, 1)], ["stop", "close"])
    assert stage.driver.left == [("consumer closed", False)]


def test_close_in_a_cancelled_task_closes_and_stays_cancelled(monkeypatch: Patch) -> None:
    stage = AioStage()
    steps: list[str] = []

    async def revoke(_: object, __: object) -> None:
        await asyncio.sleep(0.05)
        steps.append("revoked")

    async def main() -> None:
        consumer = stage.consumer(monkeypatch)
        consumer.subscribe(["t"], on_revoke=revoke)
        await consumer.start()
        stage.feed(0, 0)
        await consumer.getone()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        steps.append("closed")

    run(main())
    assert steps == ["revoked", "closed"]
    assert (stage.committed, stage.ended) == ([(0, 1)], ["stop", "close"])


def test_body_that_is_cancelled_closes(monkeypatch: Patch) -> None:
    """What `asyncio.run` does at Ctrl-C."""
    stage = AioStage()

    async def main() -> None:
        async def body() -> None:
            async with stage.consumer(monkeypatch, "t") as consumer:
                stage.feed(0, 0)
                async for _ in consumer:
                    pass

        task = asyncio.create_task(body())
        await until(lambda: stage.fetching.fetched and not stage.librdkafka.queue)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert (stage.committed, stage.ended) == ([(0, 1)], ["stop", "close"])


def test_start_that_is_cancelled_closes_what_it_opened(monkeypatch: Patch) -> None:
    stage = AioStage()
    go_on = threading.Event()
    stage.on_start = lambda: go_on.wait(WAIT_S)

    async def main() -> None:
        task = asyncio.create_task(stage.consumer(monkeypatch, "t").start())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await until(lambda: stage.ended == ["stop", "close"])

    run(main())


def test_consumer_outlives_its_loop(monkeypatch: Patch) -> None:
    """`asyncio.run` twice, with one consumer."""
    stage = AioStage()
    consumer = stage.consumer(monkeypatch, "t")

    async def first() -> None:
        await consumer.start()
        stage.feed(0, 0, 1)
        assert (await consumer.getone()).offset == 0
        stage.driver.inbox.wake()
        asyncio.create_task(consumer.getone(P1)).add_done_callback(lambda _: None)
        await asyncio.sleep(0.01)

    async def second() -> None:
        assert (await consumer.getone()).offset == 1
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.01)
        stage.feed(0, 2)
        assert (await waiting).offset == 2
        await consumer.close()

    run(first())
    run(second())
    assert stage.committed == [(0, 3)]


def test_consumer_of_another_open_loop_is_refused(monkeypatch: Patch) -> None:
    stage = AioStage()

    async def main() -> None:
        async with stage.consumer(monkeypatch, "t") as consumer:
            failures: list[str] = []

            def elsewhere() -> None:
                try:
                    asyncio.run(_one(consumer))
                except RuntimeError as error:
                    failures.append(str(error))

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
            assert failures == ["the consumer is used by another event loop, which is not closed"]

    run(main())


async def _one(consumer: AsyncCooperativeConsumer) -> None:
    await consumer.getone()


def test_consumers_of_several_loops_work_side_by_side(monkeypatch: Patch) -> None:
    stages = [AioStage(), AioStage()]
    consumers = [stage.consumer(monkeypatch, "t") for stage in stages]
    got: dict[int, int] = {}

    def work(number: int) -> None:
        async def main() -> None:
            monkeypatch_lock.acquire()
            monkeypatch.setattr(
                "coopgroup.kafka.parts.ConsumerParts.build", lambda *_: stages[number]
            )
            await consumers[number].start()
            monkeypatch_lock.release()
            stages[number].feed(0, number)
            got[number] = (await consumers[number].getone()).offset
            await consumers[number].close()

        run(main())

    monkeypatch_lock = threading.Lock()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert got == {0: 0, 1: 1}


def test_uvloop_runs_a_consumer(monkeypatch: Patch) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    stage = AioStage()
    heard: list[str] = []

    async def main() -> None:
        assert "uvloop" in type(asyncio.get_running_loop()).__module__
        consumer = stage.consumer(monkeypatch)
        consumer.subscribe(["t"], on_assign=lambda *_: heard.append("assigned"))
        async with consumer:
            stage.feed(0, 0, 1)
            assert (await consumer.getone()).offset == 0
            async for one in consumer:
                assert one.offset == 1
                break
            await consumer.commit()

    uvloop.run(asyncio.wait_for(main(), WAIT_S))
    assert (stage.committed, heard) == ([(0, 2)], ["assigned"])


def test_dropped_consumer_ends_its_thread(monkeypatch: Patch) -> None:
    stage = AioStage()
    refs: list[weakref.ref[object]] = []

    class Service:
        """Keeps its consumer, and gives it a method of its own."""

        def __init__(self) -> None:
            self.consumer = stage.consumer(monkeypatch)
            self.consumer.subscribe(["t"], on_revoke=self.hear)

        def hear(self, *_: object) -> None:
            raise AssertionError("no callback of a dropped consumer runs")

    async def main() -> None:
        service = Service()
        await service.consumer.start()
        stage.feed(0, 0)
        await service.consumer.getone()
        refs.append(weakref.ref(service))

    run(main())
    gc.collect()
    assert refs[0]() is None

    async def wait() -> None:
        await until(lambda: stage.ended == ["close"])

    run(wait())
    assert stage.committed == []
