"""Warm-ups on the loop: `on_warmup` delays no other callback, and a failure ends no membership."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    GrantResources,
    RevokeResources,
)
from coopgroup.core.member.events import RevocationCompleted, WarmedUp, WarmupFailed
from coopgroup.core.member.parts import Warmups
from coopgroup.core.model import EMPTY
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import BOTH, ONE, P0, P1, ZERO, AioStage

Partitions = list[TopicPartition]


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

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "on_assign": lambda _, gained: self.note("assign", gained),
            "on_warmup": self.warm_up,
            "on_warmup_cancelled": lambda _, gone: self.note("cancelled", gone),
        }


async def test_warm_up_is_reported_and_delays_no_other_callback(stage: AioStage) -> None:
    """Not even `on_assign` of the same partition: it may come before the warm-up has ended."""
    stage.resources, app = ZERO, App()
    async with stage.joined(**app.callbacks, warm=[P0]):
        await stage.tell(BeginWarmups(resources=ONE))
        assert ("warmup", [1]) in app.heard
        await stage.tell(GrantResources(resources=ONE))
        assert ("assign", [1]) in app.heard
        assert stage.fetching.fetched == BOTH
        assert stage.posted == []
        app.restored.set()
        await time_passes()
        assert stage.posted == [WarmedUp(resources=ONE)]
    assert stage.subscription.warm == ZERO
    assert app.heard == [("assign", [0]), ("warmup", [1]), ("assign", [1])]


async def test_cancelled_warm_up_is_heard_while_it_still_runs(stage: AioStage) -> None:
    """A second `on_warmup` of the partition waits for the first one, and not for another's."""
    stage.resources, app = ZERO, App()
    async with stage.joined(**app.callbacks):
        await stage.tell(
            BeginWarmups(resources=ONE),
            CancelWarmups(resources=ONE),
            BeginWarmups(resources=ONE),
            BeginWarmups(resources=ZERO),
        )
        assert ("warmup", [0]) in app.heard
        assert app.heard[1:] == [("warmup", [1]), ("cancelled", [1]), ("warmup", [0])]
        app.restored.set()
        await time_passes()
        assert len(app.heard) == 5
    assert app.heard[4] == ("warmup", [1])
    assert stage.subscription.warm == EMPTY


async def test_warm_up_that_is_cancelled_before_it_begins_never_begins(stage: AioStage) -> None:
    """It would create the state that `on_warmup_cancelled` has just deleted."""
    stage.resources, app = ZERO, App()
    async with stage.joined(**app.callbacks):
        await stage.tell(BeginWarmups(resources=ONE))
        assert ("warmup", [1]) in app.heard
        await stage.tell(BeginWarmups(resources=BOTH), CancelWarmups(resources=ONE))
        assert ("cancelled", [1]) in app.heard
        app.restored.set()
        await time_passes()
        assert ("warmup", [0]) in app.heard
    assert app.heard[1:] == [("warmup", [1]), ("cancelled", [1]), ("warmup", [0])]
    assert stage.posted == [WarmedUp(resources=ONE), WarmedUp(resources=ZERO)]


async def test_kept_state_is_warmed_up_after_a_slow_on_revoke(stage: AioStage) -> None:
    """`warmups` names it in `on_revoke`."""
    app = App()
    go_on = asyncio.Event()
    kept: list[frozenset[TopicPartition]] = []

    async def revoke(consumer: AsyncCooperativeConsumer, partitions: Partitions) -> None:
        if partitions == [P1]:
            kept.append(consumer.warmups())
            await go_on.wait()
            app.note("flushed", partitions)

    stage.driver.member.next_join = type("J", (), {"warmups": Warmups(wanted=ONE)})
    async with stage.joined(**app.callbacks, on_revoke=revoke):
        await stage.tell(RevokeResources(resources=ONE), BeginWarmups(resources=ONE))
        assert app.heard == [("assign", [0, 1])]
        go_on.set()
        await time_passes()
        assert ("warmup", [1]) in app.heard
        assert stage.posted == [RevocationCompleted(resources=ONE)]
    assert kept == [frozenset({P1})]
    assert app.heard[1:] == [("flushed", [1]), ("warmup", [1])]


@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_on_warmup_may_raise_and_work_goes_on(stage: AioStage, is_coroutine: bool) -> None:
    """No await raises it, as with the other callbacks: the group works without warm-ups."""

    def plain(_: object, __: object) -> None:
        raise OSError("disk full")

    async def slow(_: object, __: object) -> None:
        raise OSError("disk full")

    async with stage.joined(on_warmup=slow if is_coroutine else plain) as consumer:
        await stage.tell(BeginWarmups(resources=ONE))
        assert stage.posted
        stage.feed(0, 5)
        assert (await consumer.getone()).offset == 5
    assert stage.posted == [WarmupFailed(resources=ONE, error="OSError: disk full")]
    assert [event for event, _ in stage.driver.warned] == ["warmup_failed"]


def test_warm_ups_end_with_their_loop(stage: AioStage) -> None:
    """The loop of a second `asyncio.run` continues with the same consumer."""
    app, consumer = App(), stage.consumer()

    async def first() -> None:
        consumer.subscribe(["t"], **app.callbacks)
        await consumer.start()
        await time_passes()
        await stage.tell(BeginWarmups(resources=ONE))
        assert ("warmup", [1]) in app.heard

    async def second() -> None:
        stage.feed(0, 5)
        await consumer.getone()
        await consumer.close()

    stage.run(first())
    stage.run(second())
    cause = "CancelledError: the task of on_warmup was cancelled"
    assert stage.posted == [WarmupFailed(resources=ONE, error=cause)]


def test_arguments_of_warm_ups_are_checked(stage: AioStage) -> None:
    consumer = stage.consumer()
    with pytest.raises(TypeError, match=r"^on_warmup_cancelled expects on_warmup beside it$"):
        consumer.subscribe(["t"], on_warmup_cancelled=lambda *_: None)
    with pytest.raises(TypeError, match=r"^warm expects on_warmup beside it$"):
        consumer.subscribe(["t"], warm=[P0])
    with pytest.raises(TypeError, match=r"^requires list of TopicPartition$"):
        consumer.subscribe(["t"], on_warmup=lambda *_: None, warm=["t"])  # type: ignore[list-item]
