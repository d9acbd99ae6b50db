"""Warm-ups on the loop: `on_warmup` delays no other callback, and a failure ends no membership."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.member.effects import BeginWarmups, CancelWarmups, GrantResources, RevokeResources
from coopgroup.member.events import CommitRequested, RevocationCompleted, WarmedUp, WarmupFailed
from coopgroup.member.parts import Warmups
from coopgroup.model import EMPTY
from tests.unit.aio.aio_stage import BOTH, ONE, P0, P1, ZERO, AioStage, run, until

Patch = pytest.MonkeyPatch
Partitions = list[TopicPartition]


def posted(stage: AioStage) -> list[Any]:
    return [one for one in stage.driver.posted if not isinstance(one, CommitRequested)]


class App:
    """Notes its callbacks; `on_warmup` waits for `restored`."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.restored = asyncio.Event()

    def note(self, name: str, partitions: Partitions) -> None:
        self.heard.append((name, [one.partition for one in partitions]))

    async def warm_up(self, consumer: AsyncCooperativeConsumer, partitions: Partitions) -> None:
        self.note("warmup", partitions)
        await self.restored.wait()
        consumer.warmed_up(partitions)

    def subscribe(self, consumer: AsyncCooperativeConsumer, **more: Any) -> None:  # noqa: ANN401
        consumer.subscribe(
            ["t"],
            on_assign=lambda _, gained: self.note("assign", gained),
            on_warmup=self.warm_up,
            on_warmup_cancelled=lambda _, gone: self.note("cancelled", gone),
            **more,
        )


def test_warm_up_is_reported_and_delays_no_other_callback(monkeypatch: Patch) -> None:
    """Not even `on_assign` of the same partition: it may come before the warm-up has ended."""
    stage, app = AioStage(resources=ZERO), App()

    async def main() -> None:
        consumer = stage.consumer(monkeypatch)
        app.subscribe(consumer, warm=[P0])
        async with consumer:
            await until(consumer.assignment)
            stage.driver.inbox.put(BeginWarmups(resources=ONE))
            await until(lambda: ("warmup", [1]) in app.heard)
            stage.driver.inbox.put(GrantResources(resources=ONE))
            await until(lambda: ("assign", [1]) in app.heard)
            await until(lambda: stage.fetching.fetched == BOTH)
            assert posted(stage) == []
            app.restored.set()
            await until(lambda: posted(stage) == [WarmedUp(resources=ONE)])

    run(main())
    assert stage.subscription.warm == ZERO
    assert app.heard == [("assign", [0]), ("warmup", [1]), ("assign", [1])]


def test_cancelled_warm_up_is_heard_while_it_still_runs(monkeypatch: Patch) -> None:
    """A second `on_warmup` of the partition waits for the first one, and not for another's."""
    stage, app = AioStage(resources=ZERO), App()

    async def main() -> None:
        consumer = stage.consumer(monkeypatch)
        app.subscribe(consumer)
        async with consumer:
            await until(consumer.assignment)
            stage.driver.inbox.put(BeginWarmups(resources=ONE))
            stage.driver.inbox.put(CancelWarmups(resources=ONE))
            stage.driver.inbox.put(BeginWarmups(resources=ONE))
            stage.driver.inbox.put(BeginWarmups(resources=ZERO))
            await until(lambda: ("warmup", [0]) in app.heard)
            assert app.heard[1:] == [("warmup", [1]), ("cancelled", [1]), ("warmup", [0])]
            app.restored.set()
            await until(lambda: len(app.heard) == 5)

    run(main())
    assert app.heard[4] == ("warmup", [1])
    assert stage.subscription.warm == EMPTY


def test_warm_up_that_has_not_begun_when_it_is_cancelled_never_begins(monkeypatch: Patch) -> None:
    """It would create the state that `on_warmup_cancelled` has just deleted."""
    stage, app = AioStage(resources=ZERO), App()

    async def main() -> None:
        consumer = stage.consumer(monkeypatch)
        app.subscribe(consumer)
        async with consumer:
            await until(consumer.assignment)
            stage.driver.inbox.put(BeginWarmups(resources=ONE))
            await until(lambda: ("warmup", [1]) in app.heard)
            stage.driver.inbox.put(BeginWarmups(resources=BOTH))
            stage.driver.inbox.put(CancelWarmups(resources=ONE))
            await until(lambda: ("cancelled", [1]) in app.heard)
            app.restored.set()
            await until(lambda: ("warmup", [0]) in app.heard)

    run(main())
    assert app.heard[1:] == [("warmup", [1]), ("cancelled", [1]), ("warmup", [0])]
    assert posted(stage) == [WarmedUp(resources=ONE), WarmedUp(resources=ZERO)]


def test_kept_state_is_warmed_up_after_a_slow_on_revoke(monkeypatch: Patch) -> None:
    """`warmups` names it in `on_revoke`."""
    stage, app = AioStage(), App()
    go_on = asyncio.Event()
    kept: list[frozenset[TopicPartition]] = []

    async def revoke(consumer: AsyncCooperativeConsumer, partitions: Partitions) -> None:
        if partitions == [P1]:
            kept.append(consumer.warmups())
            await go_on.wait()
            app.note("flushed", partitions)

    async def main() -> None:
        consumer = stage.consumer(monkeypatch)
        stage.driver.member.next_join = type("J", (), {"warmups": Warmups(wanted=ONE)})
        app.subscribe(consumer, on_revoke=revoke)
        async with consumer:
            await until(consumer.assignment)
            stage.driver.inbox.put(RevokeResources(resources=ONE))
            stage.driver.inbox.put(BeginWarmups(resources=ONE))
            await until(lambda: kept)
            await asyncio.sleep(0.02)
            assert app.heard == [("assign", [0, 1])]
            go_on.set()
            await until(lambda: ("warmup", [1]) in app.heard)
            await until(lambda: posted(stage) == [RevocationCompleted(resources=ONE)])

    run(main())
    assert kept == [frozenset({P1})]
    assert app.heard[1:] == [("flushed", [1]), ("warmup", [1])]


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_on_warmup_when_it_raises_leaves_the_member_at_work(
    monkeypatch: Patch, is_coroutine: bool
) -> None:
    """No await raises it, as with the other callbacks: the group works without warm-ups."""
    stage = AioStage()

    def plain(_: object, __: object) -> None:
        raise OSError("disk full")

    async def slow(_: object, __: object) -> None:
        raise OSError("disk full")

    async def main() -> None:
        consumer = stage.consumer(monkeypatch)
        consumer.subscribe(["t"], on_warmup=slow if is_coroutine else plain)
        async with consumer:
            await until(consumer.assignment)
            stage.driver.inbox.put(BeginWarmups(resources=ONE))
            await until(lambda: posted(stage))
            stage.feed(0, 5)
            assert (await consumer.getone()).offset == 5

    run(main())
    assert posted(stage) == [WarmupFailed(resources=ONE, error="OSError: disk full")]
    assert [event for event, _ in stage.driver.warned] == ["warmup_failed"]


def test_warm_ups_end_with_their_loop_and_a_closed_consumer_reports_nothing(
    monkeypatch: Patch,
) -> None:
    """The loop of a second `asyncio.run` continues with the same consumer."""
    stage, app = AioStage(), App()
    consumer = stage.consumer(monkeypatch)

    async def first() -> None:
        app.subscribe(consumer)
        await consumer.start()
        await until(consumer.assignment)
        stage.driver.inbox.put(BeginWarmups(resources=ONE))
        await until(lambda: ("warmup", [1]) in app.heard)

    async def second() -> None:
        stage.feed(0, 5)
        await consumer.getone()
        stage.driver.inbox.put(BeginWarmups(resources=ZERO))
        await until(lambda: ("warmup", [0]) in app.heard)
        await consumer.close()

    run(first())
    failed = [
        WarmupFailed(resources=ONE, error="CancelledError: the task of on_warmup was cancelled")
    ]
    assert posted(stage) == failed
    app.restored = asyncio.Event()
    run(second())
    assert posted(stage) == failed


def test_arguments_of_warm_ups_are_checked(monkeypatch: Patch) -> None:
    consumer = AioStage().consumer(monkeypatch)
    with pytest.raises(TypeError, match=r"^on_warmup_cancelled expects on_warmup beside it$"):
        consumer.subscribe(["t"], on_warmup_cancelled=lambda *_: None)
    with pytest.raises(TypeError, match=r"^warm expects on_warmup beside it$"):
        consumer.subscribe(["t"], warm=[P0])
    with pytest.raises(TypeError, match=r"^requires list of TopicPartition$"):
        consumer.subscribe(["t"], on_warmup=lambda *_: None, warm=["t"])  # type: ignore[list-item]
