"""Callbacks on the loop: what they hold up, and what they do not."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from unittest.mock import AsyncMock

import pytest
from confluent_kafka import TopicPartition

from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.aio.offsets import Offsets
from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import LossHandled, RevocationCompleted, WarmedUp, WarmupFailed
from coopgroup.core.member.parts import Warmups
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.telemetry.causes import Cause
from coopgroup.kafka.records.partitions import to_partitions
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import BOTH, ONE, P0, P1, ZERO, AioStage

Patch = pytest.MonkeyPatch


async def test_slow_on_assign_holds_up_only_its_partitions(stage: AioStage) -> None:
    stage.resources = ZERO
    go_on = asyncio.Event()
    heard: list[list[int]] = []

    async def assign(consumer: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        heard.append([one.partition for one in partitions])
        if partitions == [P1]:
            consumer.seek(P1, 40)
            await go_on.wait()

    async with stage.joined(on_assign=assign) as consumer:
        assert stage.fetching.fetched == ZERO
        await stage.tell(GrantResources(resources=ONE))
        assert len(heard) == 2
        stage.feed(0, 5)
        assert (await consumer.getone()).offset == 5
        assert stage.fetching.fetched == ZERO
        assert stage.written[1:] == []
        go_on.set()
        await time_passes()
        assert stage.fetching.fetched == BOTH
        assert stage.written[1:] == [ResourcesStarted(resources=ONE)]
        assert ("assign", [(1, 40)]) in stage.librdkafka.calls
    assert heard == [[0], [1]]


async def test_slow_on_revoke_holds_up_only_its_partitions(stage: AioStage) -> None:
    """Its records stop, those of others flow; what it handed out is committed at its end."""
    go_on = asyncio.Event()

    async def revoke(_: object, partitions: list[TopicPartition]) -> None:
        if partitions == [P1]:
            await go_on.wait()

    async with stage.joined(on_revoke=revoke) as consumer:
        stage.feed(1, 0, 1)
        assert (await consumer.getone()).partition == 1
        await stage.tell(RevokeResources(resources=ONE))
        stage.feed(0, 7)
        assert (await consumer.getone()).offset == 7
        assert await consumer.getmany(timeout=0.05) == {}
        assert (stage.posted, stage.committed) == ([], [])
        assert consumer.assignment() == {P0, P1}
        go_on.set()
        await time_passes()
        assert consumer.assignment() == {P0}
        assert stage.posted == [RevocationCompleted(resources=ONE)]
        assert stage.committed == [(1, 1)]


async def test_on_lost_does_not_overtake_the_begin_of_on_assign(stage: AioStage) -> None:
    """A busy loop gets both together, and a coroutine begins one step later than a function."""
    stage.resources = ZERO
    heard: list[tuple[str, int]] = []

    async def assign(_: object, partitions: list[TopicPartition]) -> None:
        heard.extend(("assign", one.partition) for one in partitions)

    async with stage.joined(
        on_assign=assign,
        on_lost=lambda _, lost: heard.extend(("lost", one.partition) for one in lost),
    ):
        for notice in (
            GrantResources(resources=ONE),
            LoseResources(resources=ONE, cause="session expired"),
        ):
            stage.driver.inbox.put(notice)
            stage.turn()  # the loop is busy, and the polling is not
        await time_passes()
    assert heard == [("assign", 0), ("assign", 1), ("lost", 1)]


@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_exception_is_heard_at_the_next_await(stage: AioStage, is_coroutine: bool) -> None:
    def plain(_: object, __: object) -> None:
        raise LookupError("not mine")

    async def slow(_: object, __: object) -> None:
        await time_passes(0)
        raise LookupError("not mine")

    async with stage.joined(on_assign=slow if is_coroutine else plain) as consumer:
        with pytest.raises(LookupError, match="not mine"):
            await consumer.getone()
        stage.feed(0, 0)
        assert (await consumer.getone()).offset == 0


async def test_listener_of_aiokafka_hears_sets_on_the_loop_and_may_commit(stage: AioStage) -> None:
    heard: list[tuple[str, set[TopicPartition]]] = []
    consumer = stage.consumer()

    class Listener:
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            asyncio.get_running_loop()  # a turn has none
            heard.append(("assigned", assigned))

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            heard.append(("revoked", revoked))
            await consumer.commit(dict.fromkeys(revoked, 33))

    consumer.subscribe(topics=["t"], listener=Listener())
    async with consumer:
        await time_passes()
        assert stage.fetching.fetched == BOTH
        await stage.tell(RevokeResources(resources=ONE))
        assert stage.posted
        assert stage.committed == [(1, 33)]
    assert heard == [("assigned", {P0, P1}), ("revoked", {P1}), ("revoked", {P0})]


async def test_loss_is_told_at_once_and_handled_after_its_callback(stage: AioStage) -> None:
    go_on = asyncio.Event()
    heard: list[str] = []

    async def lose(_: object, __: object) -> None:
        heard.append("lost")
        await go_on.wait()

    async with stage.joined(on_lost=lose) as consumer:
        stage.feed(0, 0, 1)
        await consumer.getone()
        await stage.tell(LoseResources(resources=BOTH, cause="fenced"))
        assert heard
        assert await consumer.getmany(timeout=0.03) == {}
        assert stage.posted == []
        go_on.set()
        await time_passes()
        assert stage.posted == [LossHandled()]
        assert (consumer.assignment(), stage.committed) == (frozenset(), [])


async def test_loss_does_not_wait_for_the_revocation_that_it_ends(stage: AioStage) -> None:
    heard: list[str] = []
    lost = asyncio.Event()

    async def revoke(_: object, __: object) -> None:
        heard.append("revoke")
        await lost.wait()
        heard.append("end")

    def lose(_: object, __: object) -> None:
        heard.append("lost")
        lost.set()

    async with stage.joined(on_revoke=revoke, on_lost=lose):
        await stage.tell(RevokeResources(resources=BOTH))
        assert heard == ["revoke"]
        await stage.tell(LoseResources(resources=BOTH, cause="fenced"))
        assert stage.posted == [LossHandled()]
    assert heard == ["revoke", "lost", "end"]


async def test_stalled_application_hears_the_loss_and_rejoins_at_its_await(stage: AioStage) -> None:
    """Otherwise the member would get partitions that it would lose again at once."""
    stage.driver.settings.max_poll_interval_ms = 50
    heard: list[str] = []

    async with stage.joined(on_lost=lambda *_: heard.append("lost")) as consumer:
        stage.feed(0, 0)
        await consumer.getone()
        await time_passes(0.1)  # work that is too long
        await stage.tell(LoseResources(resources=BOTH, cause=Cause.NOT_POLLED))
        assert (heard, stage.posted) == (["lost"], [])
        assert await consumer.getmany(timeout=0.3) == {}
        assert stage.posted == [LossHandled()]


async def test_only_awaits_of_the_application_count_as_polls(stage: AioStage) -> None:
    async with stage.joined(on_assign=lambda *_: None, on_revoke=lambda *_: None) as consumer:
        stage.feed(0, 0)
        await consumer.getone()
        polled_at_s = stage.driver.polled_at_s
        assert polled_at_s <= stage.hand.now_s
        await stage.tell(RevokeResources(resources=ONE))
        assert stage.posted
        await consumer.commit({P0: 1})
        await time_passes(0.1)
        assert stage.driver.polled_at_s == polled_at_s
        waiting = asyncio.create_task(consumer.getone())
        await time_passes()
        assert stage.driver.polled_at_s == math.inf  # it waits, and is not stalled
        stage.feed(0, 1)
        fed_s = stage.hand.now_s
        for _ in range(9):  # the loop is blocked while records are there
            stage.turn()
            stage.hand.now_s += 0.1
            assert stage.driver.polled_at_s == fed_s
        await waiting


async def test_close_in_a_callback_closes_after_it(stage: AioStage) -> None:
    steps: list[str] = []

    async def revoke(consumer: Any, _: object) -> None:  # noqa: ANN401
        steps.append("revoke")
        await consumer.close()
        steps.append("end")

    async with stage.joined(on_revoke=revoke):
        await stage.tell(RevokeResources(resources=BOTH))
        assert stage.ended
    assert (steps, stage.ended) == (["revoke", "end"], ["stop", "close"])


def test_callback_of_a_loop_that_was_closed_has_ended(stage: AioStage) -> None:
    """A revocation would otherwise wait for it for ever."""
    consumer = stage.consumer()
    consumer.subscribe(["t"], on_revoke=lambda *_: None)

    async def first() -> None:
        await consumer.start()
        await time_passes()
        assert stage.fetching.fetched == BOTH

    async def second() -> None:
        await time_passes()
        assert stage.posted == [RevocationCompleted(resources=ONE)]
        await consumer.close()

    stage.run(first())
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.run(second())


def test_subscribe_is_checked(stage: AioStage) -> None:
    consumer = stage.consumer()
    with pytest.raises(TypeError, match=r"topics is 't': it must be a list of names, such as"):
        consumer.subscribe("t")
    with pytest.raises(TypeError, match="on_lost expects a callable"):
        consumer.subscribe(["t"], on_lost=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topics"):
        consumer.subscribe([])
    with pytest.raises(ValueError, match="pattern"):
        consumer.subscribe(["t"], pattern="x")
    consumer.subscribe(pattern="orders-.*")
    assert consumer.subscription() == {"^orders-.*"}


@pytest.mark.parametrize(
    ("committed", "reset", "begins"),
    [(7, "latest", 7), (None, "latest", 90), (None, "earliest", 3)],
)
async def test_on_assign_may_await_the_position_of_its_partition(
    stage: AioStage, monkeypatch: Patch, committed: int | None, reset: str, begins: int
) -> None:
    """The partition is fetched only after `on_assign`, so this must not wait for that."""
    stage.resources = ZERO
    found: list[int] = []
    monkeypatch.setattr(Offsets, "committed", AsyncMock(return_value=committed))
    coordinator: Any = stage.fetching.starts.lookup.transport
    coordinator.logs = {("t", 0): (3, 90)}

    async def assign(consumer: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        found.append(await consumer.position(partitions[0]))

    consumer = stage.consumer(**{"auto.offset.reset": reset})
    consumer.subscribe(["t"], on_assign=assign)
    async with consumer:
        await time_passes()
        assert stage.fetching.fetched == ZERO
        if committed is None:
            assert ("assign", [(0, begins)]) in stage.librdkafka.calls
    assert found == [begins]


@pytest.mark.parametrize("ends_with", ["close", "unsubscribe"])
async def test_end_waits_for_an_on_revoke_in_progress(stage: AioStage, ends_with: str) -> None:
    """Otherwise its offsets would be committed before its state is written."""
    written: list[list[tuple[int, int]]] = []

    async def revoke(_: object, partitions: list[TopicPartition]) -> None:
        if partitions == [P1]:
            await time_passes(0.1)
            written.append(stage.committed)

    async with stage.joined(on_revoke=revoke) as consumer:
        stage.feed(1, 0)
        await consumer.getone()
        stage.driver.inbox.put(RevokeResources(resources=ONE))
        await time_passes(0.05)
        assert not written
        if ends_with == "unsubscribe":
            consumer.unsubscribe()
            await time_passes()
            assert not consumer.assignment()
            assert written
    assert written == [[]]
    assert stage.committed == [(0, 0), (1, 1)]


@pytest.mark.parametrize("owned", [BOTH, ONE], ids=["it owns another", "it owns nothing else"])
@pytest.mark.parametrize("hears_of_losses", [False, True])
async def test_stop_that_hangs_is_lost_in_time(
    stage: AioStage, owned: ResourceSet, hears_of_losses: bool
) -> None:
    """Without the limit, no member would work on the partition until its process is killed."""
    stage.resources = owned
    heard: list[str] = []

    async def revoke(_: object, __: object) -> None:
        heard.append("revoke")
        if len(heard) == 1:
            await asyncio.Event().wait()

    lose = {"on_lost": lambda *_: heard.append("lost")} if hears_of_losses else {}
    async with stage.joined(on_revoke=revoke, **lose) as consumer:
        await stage.tell(RevokeResources(resources=ONE))
        await time_passes(stage.driver.settings.max_poll_interval_ms / 1000)
        stage.driver.inbox.wake()  # as the driver was asked to
        await time_passes()
        assert stage.posted == [RevocationCompleted(resources=ONE)]
        assert heard == ["revoke", "lost" if hears_of_losses else "revoke"]
        assert consumer.assignment() == set(to_partitions(owned - ONE))


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "in the inbox"])
async def test_callback_that_waits_for_another_is_left_out_when_its_partition_is_lost(
    stage: AioStage, is_served: bool
) -> None:
    """Otherwise the application would begin to work on a partition of another member."""
    heard: list[tuple[str, list[int]]] = []
    go_on = asyncio.Event()

    def note(name: str, partitions: list[TopicPartition]) -> None:
        heard.append((name, [one.partition for one in partitions]))

    async def revoke(_: object, partitions: list[TopicPartition]) -> None:
        note("revoke", partitions)
        await go_on.wait()

    async with stage.joined(
        on_assign=lambda _, gained: note("assign", gained),
        on_revoke=revoke,
        on_lost=lambda _, lost: note("lost", lost),
    ):
        await stage.tell(RevokeResources(resources=ONE))
        await time_passes(stage.driver.settings.max_poll_interval_ms / 1000)
        stage.driver.inbox.wake()
        await time_passes()
        await stage.tell(GrantResources(resources=ONE))
        await stage.tell(RevokeResources(resources=ONE))
        stage.driver.inbox.put(LoseResources(resources=BOTH, cause="fenced"))
        if is_served:
            await time_passes()
        go_on.set()
        await time_passes(0.2)
    assert heard == [("assign", [0, 1]), ("revoke", [1]), ("lost", [1]), ("lost", [0])]


async def test_callback_does_not_begin_after_a_loss_that_comes_while_the_loop_is_busy(
    stage: AioStage,
) -> None:
    stage.resources = ZERO
    heard: list[tuple[str, list[int]]] = []

    def note(name: str, partitions: list[TopicPartition]) -> None:
        heard.append((name, [one.partition for one in partitions]))

    async with stage.joined(
        on_assign=lambda _, gained: note("assign", gained),
        on_revoke=lambda _, revoked: note("revoke", revoked),
        on_lost=lambda _, lost: note("lost", lost),
    ):
        for notice in (GrantResources(resources=ONE), RevokeResources(resources=ZERO)):
            stage.driver.inbox.put(notice)
            stage.turn()  # the loop is busy, and the polling is not
        stage.driver.inbox.put(LoseResources(resources=BOTH, cause="fenced"))
        await time_passes(0.2)
        assert stage.posted == [LossHandled()]
    assert heard == [("assign", [0]), ("lost", [0])]


@pytest.mark.parametrize("ends_with", ["close", "unsubscribe"])
async def test_loss_does_not_wait_for_the_stop_that_an_end_waits_for(
    stage: AioStage, ends_with: str
) -> None:
    """The application would write its state beside the new owner, up to the limit of the stop."""
    stage.resources = ONE
    heard: list[str] = []
    lost = asyncio.Event()

    async def revoke(_: object, __: object) -> None:
        heard.append("revoke")
        await lost.wait()
        heard.append("end")

    def lose(_: object, __: object) -> None:
        heard.append("lost")
        lost.set()

    async def lose_at_the_end() -> None:
        await time_passes(0.5)
        stage.driver.inbox.put(LoseResources(resources=ONE, cause="fenced"))
        await time_passes(0.5)
        assert heard == ["revoke", "lost", "end"]

    async with stage.joined(on_revoke=revoke, on_lost=lose) as consumer:
        await stage.tell(RevokeResources(resources=ONE))
        loses = asyncio.create_task(lose_at_the_end())
        if ends_with == "unsubscribe":
            consumer.unsubscribe()
            await time_passes(2.0)
    await loses
    assert (stage.posted, stage.committed) == ([LossHandled()], [])
    (stopped,) = (one for one in stage.written if isinstance(one, ResourcesStopped))
    assert (stopped.resources, stopped.reason) == (ONE, StopReason.LOST)


@pytest.mark.parametrize("has_begun", [False, True], ids=["stops then", "was stopping"])
@pytest.mark.parametrize("ends_with", ["close", "unsubscribe"])
async def test_end_waits_for_a_stop_that_hangs_no_longer_than_its_limit(
    stage: AioStage, ends_with: str, has_begun: bool
) -> None:
    """The member stays in the group meanwhile, and no other member works on its partitions."""
    limit_ms = stage.driver.settings.max_poll_interval_ms = 3_000
    stage.resources = ONE

    async def revoke(_: object, __: object) -> None:
        await asyncio.Event().wait()

    async with stage.joined(on_revoke=revoke) as consumer:
        stage.feed(1, 0)
        await consumer.getone()
        if has_begun:
            await stage.tell(RevokeResources(resources=ONE))
        if ends_with == "unsubscribe":
            consumer.unsubscribe()
            await time_passes(4.0)
            assert not consumer.assignment()
    (stopped,) = (one for one in stage.written if isinstance(one, ResourcesStopped))
    assert (stopped.resources, stopped.reason, stage.committed) == (ONE, StopReason.LOST, [])
    assert limit_ms <= stopped.duration_ms < limit_ms + 200
    assert [event for event, _ in stage.driver.warned] == ["stop_never_finished"]


async def test_stop_that_hangs_in_an_end_does_not_wait_for_the_stop_of_a_later_revocation(
    stage: AioStage,
) -> None:
    """Each later revocation would keep the partition from its new owner for one more limit."""
    limit_ms = stage.driver.settings.max_poll_interval_ms = 3_000
    stage.resources = BOTH | ResourceSet({"t": [2]})

    async def revoke(_: object, revoked: list[TopicPartition]) -> None:
        if revoked not in ([P0], [P1]):
            await time_passes(2.0)  # the end waits for this stop, and serves nothing
            return
        if revoked == [P1]:
            stage.driver.inbox.put(RevokeResources(resources=ZERO))
        await asyncio.Event().wait()

    async with stage.joined(on_revoke=revoke) as consumer:
        await stage.tell(RevokeResources(resources=stage.resources - BOTH))
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, stage.driver.inbox.put, RevokeResources(resources=ONE))
        consumer.unsubscribe()
        await time_passes(10.0)
    stops = [one for one in stage.written if isinstance(one, ResourcesStopped)]
    lost = [one for one in stops if one.reason is StopReason.LOST]
    assert [one.resources for one in lost] == [ONE, ZERO]
    assert all(limit_ms <= one.duration_ms < limit_ms + 200 for one in lost)


@pytest.mark.parametrize("hears_of_losses", [False, True])
@pytest.mark.parametrize("ends_with", ["close", "unsubscribe"])
async def test_end_that_waits_for_on_assign_does_not_stop_what_is_lost_meanwhile(
    stage: AioStage, ends_with: str, hears_of_losses: bool
) -> None:
    """The application would write its state beside the new owner of the partition."""
    stage.resources = ONE
    heard: list[str] = []
    go_on = asyncio.Event()

    async def assign(_: object, __: object) -> None:
        await go_on.wait()

    async def lose_at_the_end() -> None:
        await time_passes(0.5)
        stage.driver.inbox.put(BeginWarmups(resources=ZERO))  # a loss does not void it
        stage.driver.inbox.put(LoseResources(resources=ONE, cause="fenced"))
        await time_passes(0.5)
        assert heard == ["lost" if hears_of_losses else "revoke"]
        assert (stage.posted, stage.committed) == ([LossHandled()], [])
        go_on.set()

    lose = {"on_lost": lambda *_: heard.append("lost")} if hears_of_losses else {}
    async with stage.joined(
        on_assign=assign, on_revoke=lambda *_: heard.append("revoke"), **lose
    ) as consumer:
        loses = asyncio.create_task(lose_at_the_end())
        if ends_with == "unsubscribe":
            consumer.unsubscribe()
            await time_passes(2.0)
            assert not consumer.assignment()
    await loses
    assert len(heard) == 1
    stops = [one for one in stage.written if isinstance(one, ResourcesStopped)]
    assert [(one.resources, one.reason) for one in stops] == [(ONE, StopReason.LOST)]


# --- warm-ups: `on_warmup` delays no other callback, and its failure ends no membership -----------


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
