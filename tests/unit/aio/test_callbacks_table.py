"""The table of callbacks on the page of the consumer holds for the consumers of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from attrs import define, field

from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.core.member.effects import GrantResources, LoseResources, RevokeResources
from coopgroup.core.member.events import CommitRequested, LossHandled, RevocationCompleted
from coopgroup.core.model import EMPTY
from coopgroup.kafka.callbacks.listener import Callbacks
from coopgroup.kafka.callbacks.pending_revocations import PutOff
from coopgroup.telemetry import ResourcesStarted, StopReason
from docs.callback_table import RULES, Effect, Input, Phase, Rule
from tests.support.by_hand import Hand, by_hand
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import P0, AioStage, staged
from tests.unit.kafka.fakes import record
from tests.unit.kafka.notice_stage import ZERO, Stage

LIMIT_S: Final = 60.0
NAMES: Final = {Effect.ASSIGN: "on_assign", Effect.REVOKE: "on_revoke", Effect.LOSE: "on_lost"}
CALLS: Final = {name: effect for effect, name in NAMES.items()}
ANSWERS: Final = (LossHandled, RevocationCompleted)
REASONS: Final = {
    StopReason.REVOKED: Effect.REVOKED,
    StopReason.LOST: Effect.ENDED,
    StopReason.CLOSED: None,
}
NOTICES: Final[dict[Input, Any]] = {
    Input.REVOKED: RevokeResources(resources=ZERO),
    Input.LOST: LoseResources(resources=ZERO, cause="session expired"),
}
ASSIGNED: Final = GrantResources(resources=ZERO)


class Noted(list[object]):
    """The effects since the input, up to the first callback or commit.

    It is also the list of the events for the group.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule
        self.found: list[Effect] = []
        self.on_commit: Callable[[], None] = lambda: None
        self._is_on = False

    def begin(self) -> None:
        self._is_on = True

    def note(self, effect: Effect | None) -> None:
        if effect is None or not self._is_on:
            return
        self.found.append(effect)
        self._is_on = effect not in {*NAMES, Effect.COMMIT}

    def write(self, told: Any) -> None:  # noqa: ANN401 - a record of telemetry
        is_start = isinstance(told, ResourcesStarted)
        self.note(Effect.STARTED if is_start else REASONS[told.reason])

    def append(self, event: object) -> None:
        super().append(event)
        if isinstance(event, CommitRequested):
            self.note(Effect.COMMIT)
            self.on_commit()
        elif isinstance(event, ANSWERS):
            self.note(Effect.ANSWER)

    def check(self, *ignored: Effect) -> None:
        besides = {*ignored}
        if self.rule.phase is Phase.STARTING and self.rule.input is not Input.STARTED:
            besides.add(Effect.STARTED)  # `on_assign` ends, too
        if self.rule.input is Input.CLOSED:
            besides.add(Effect.ANSWER)  # the group is left
        found = dict.fromkeys(self.found)  # a loss during a commit is answered besides
        assert [one for one in found if one not in besides] == [*self.rule.effects]


# --- the consumer that is polled ------------------------------------------------------------------


@define(eq=False)
class Polled:
    """A consumer without threads; `inside` has what happens in a callback."""

    rule: Rule
    hand: Hand
    noted: Noted
    stage: Stage = field(factory=Stage)
    inside: dict[str, Callable[[], object]] = field(factory=dict)
    stops: list[PutOff | None] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        own = {name: partial(self.called, name) for name in CALLS}
        self.stage.listener.callbacks = Callbacks(**own)
        self.stage.listener.write = self.noted.write
        self.stage.driver.posted = self.noted

    def called(self, name: str, *_: object) -> None:
        self.noted.note(CALLS[name])
        self.inside.pop(name, lambda: None)()

    def tell(self, *notices: Any) -> None:  # noqa: ANN401 - those of a group
        for one in notices:
            self.stage.driver.inbox.put(one)
        self.stage.listener.serve()

    def put_off(self) -> None:
        self.stops.append(self.stage.listener.revoke_later([P0]))

    def act(self) -> None:
        self.noted.begin()
        inbox, listener = self.stage.driver.inbox, self.stage.listener
        match self.rule.input:
            case Input.CLOSED:
                listener.give_up()
            case Input.OVERDUE:
                self.hand.now_s += LIMIT_S
                inbox.wake()
            case Input.STOPPED:
                assert self.stops[0] is not None
                listener.finish_revoke(self.stops[0])
            case one if one in NOTICES:
                inbox.put(NOTICES[one])
            case _:
                pass  # the callback, or the commit, ends

    def begin(self) -> None:
        self.tell(ASSIGNED)
        self.stage.librdkafka.feed([record(0, 10)])
        self.stage.fetching.fetch(10, 0)
        self.stage.fetching.record_buffer.take(10)

    def play(self) -> None:
        match self.rule.phase:
            case Phase.ASSIGNED:
                self.stage.driver.inbox.put(ASSIGNED)
                self.act()
            case Phase.STARTING:
                self.inside["on_assign"] = self.act
                self.tell(ASSIGNED)
            case Phase.WORKING:
                self.begin()
                self.act()
            case Phase.STOPPING:
                self.begin()
                self.inside["on_revoke"] = self.put_off
                self.tell(NOTICES[Input.REVOKED])
                self.act()
            case Phase.COMMITTING:
                self.begin()
                self.noted.on_commit = self.act
                self.tell(NOTICES[Input.REVOKED])
            case _:
                self.begin()
                self.inside["on_lost"] = self.act
                self.tell(NOTICES[Input.LOST])
        self.tell()


def test_rules_hold_for_a_consumer_that_is_polled(subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(phase=rule.phase, input=rule.input), by_hand() as hand:
            noted = Noted(rule)
            Polled(rule, hand, noted).play()
            noted.check()


# --- the consumer of asyncio ----------------------------------------------------------------------


@define(eq=False)
class OnLoop:
    """A consumer in virtual time; `held` has the callbacks that wait."""

    rule: Rule
    stage: AioStage
    noted: Noted
    held: dict[str, asyncio.Event] = field(factory=dict)
    closing: list[asyncio.Task[None]] = field(factory=list)

    async def called(self, name: str, *_: object) -> None:
        self.noted.note(CALLS[name])
        if name in self.held:
            await self.held.pop(name).wait()

    async def act(self, consumer: AsyncCooperativeConsumer) -> None:
        self.noted.begin()
        inbox = self.stage.driver.inbox
        match self.rule.input:
            case Input.CLOSED:
                self.closing.append(asyncio.create_task(consumer.close()))
            case Input.OVERDUE:
                await time_passes(LIMIT_S)
                inbox.wake()
            case one if one in NOTICES:
                inbox.put(NOTICES[one])
            case _:
                return  # the callback, or the commit, ends
        await time_passes()

    async def act_in(self, name: str, notice: Any, consumer: AsyncCooperativeConsumer) -> None:  # noqa: ANN401 - of a group
        """Act while a callback runs, and then let it end."""
        self.held[name] = ends = asyncio.Event()
        await self.stage.tell(notice)
        await self.act(consumer)
        ends.set()

    async def begin(self, consumer: AsyncCooperativeConsumer) -> None:
        await self.stage.tell(ASSIGNED)
        self.stage.feed(0, 10)
        await consumer.getone()

    async def play(self) -> None:
        own = {name: partial(self.called, name) for name in CALLS}
        async with self.stage.joined(**own) as consumer:
            self.stage.listener.write = self.noted.write
            self.stage.driver.posted = self.noted
            match self.rule.phase:
                case Phase.ASSIGNED:
                    self.stage.driver.inbox.put(ASSIGNED)
                    await self.act(consumer)
                case Phase.STARTING:
                    await self.act_in("on_assign", ASSIGNED, consumer)
                case Phase.WORKING:
                    await self.begin(consumer)
                    await self.act(consumer)
                case Phase.STOPPING:
                    await self.begin(consumer)
                    await self.act_in("on_revoke", NOTICES[Input.REVOKED], consumer)
                case Phase.COMMITTING:
                    await self.begin(consumer)
                    self.noted.on_commit = self.act_at_commit
                    await self.stage.tell(NOTICES[Input.REVOKED])
                case _:
                    await self.begin(consumer)
                    await self.act_in("on_lost", NOTICES[Input.LOST], consumer)
            await time_passes()
            # The group does not wait for `on_lost` of an overdue stop.
            is_overdue = self.rule.input is Input.OVERDUE
            self.noted.check(*([Effect.ENDED, Effect.ANSWER] if is_overdue else []))

    def act_at_commit(self) -> None:
        """Act on the polling thread, which waits for the commit."""
        self.noted.begin()
        if self.rule.input is Input.LOST:
            self.stage.driver.inbox.put(NOTICES[Input.LOST])


def test_rules_hold_for_a_consumer_of_asyncio(subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(phase=rule.phase, input=rule.input), staged() as stage:
            stage.resources = EMPTY
            stage.run(OnLoop(rule, stage, Noted(rule)).play())
