"""Processing on an event loop in virtual time, on a consumer that plays a script."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import wraps
from itertools import count
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup import ProcessingError
from coopgroup.processing import Retry, Skip
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Limits, Order, Scheduler
from coopgroup.processing.tasks import TaskProcessing
from tests.support.by_hand import by_hand
from tests.support.fake_records import FakeAsyncConsumer, FakeRecord
from tests.support.virtual_loop import run_virtual, time_passes

LONG_MS = 60_000


def records(number: int, count: int, key: bytes | None = b"k") -> list[FakeRecord]:
    return [FakeRecord(number=number, at=at, its_key=key) for at in range(count)]


class Group:
    """A consumer, processing in a task, and a handler that can be held up."""

    def __init__(
        self,
        *script: FakeRecord,
        order: Order = "partition",
        on_error: Any = None,  # noqa: ANN401
        limits: Limits | None = None,
        stop_timeout_ms: int = 5_000,
        hands_over: bool = False,
    ) -> None:
        self.consumer = FakeAsyncConsumer(deque(script))
        self.stop = asyncio.Event()
        self.handled: list[tuple[int, int]] = []
        self.began: list[tuple[int, int]] = []
        self.held: dict[tuple[int, int], asyncio.Event] = {}
        self.cancelled: list[tuple[int, int]] = []
        self.handler: Callable[[Any], Coroutine[Any, Any, None]] = self.handle
        consumer: Any = self.consumer
        self.processing = TaskProcessing(
            consumer,
            self._call,
            on_error or (lambda _: pytest.fail("no handler should fail")),
            Scheduler(order, limits or Limits()),
            Timing(self.stop, stop_timeout_ms, hands_over=hands_over),
            4,
        )

    async def _call(self, record: Any) -> None:  # noqa: ANN401
        await self.handler(record)

    async def handle(self, record: Any) -> None:  # noqa: ANN401
        place = (record.message.partition(), record.message.offset())
        self.began.append(place)
        if place in self.held:
            try:
                await self.held[place].wait()
            except asyncio.CancelledError:
                self.cancelled.append(place)
                raise
        self.handled.append(place)

    def hold(self, number: int, offset: int) -> asyncio.Event:
        return self.held.setdefault((number, offset), asyncio.Event())

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.processing.run())


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with by_hand() as hand:
        run_virtual(hand, story())


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**given: Any) -> None:  # noqa: ANN401  (fixtures and parameters)
        play(lambda: test(**given))

    return run


@in_virtual_time
async def test_records_of_a_partition_are_handled_in_order_and_partitions_side_by_side() -> None:
    group = Group(*records(0, 50), *records(1, 50))
    held = group.hold(0, 10)
    task = group.start()
    await time_passes()
    assert (1, 49) in group.handled
    assert (0, 11) not in group.began
    held.set()
    await time_passes()
    assert len(group.handled) == 100
    group.stop.set()
    await task
    assert [at for number, at in group.handled if number == 0] == list(range(50))
    assert group.consumer.stored == {("t", 0): 50, ("t", 1): 50}
    assert group.consumer.automatic


@in_virtual_time
async def test_revoked_partition_is_given_up_when_its_record_has_ended() -> None:
    group = Group(*records(0, 3), *records(1, 3))
    revoked: list[tuple[int, int | None]] = []

    async def on_revoke(_: object, partitions: Any) -> None:  # noqa: ANN401
        await time_passes(0.01)
        stored = group.consumer.stored
        revoked.extend((one.partition, stored.get(("t", one.partition))) for one in partitions)

    group.consumer.callbacks.on_revoke = on_revoke
    held = group.hold(0, 1)
    task = group.start()
    await time_passes()
    assert (0, 1) in group.began
    assert len(group.handled) == 4
    revocation = asyncio.create_task(group.consumer.revoke_now(0, 2))
    await time_passes()
    assert revoked == [(2, None)]
    assert group.consumer.given_up == {("t", 2): None}
    group.consumer.script.append(FakeRecord(number=1, at=3))
    await time_passes()
    assert (1, 3) in group.handled
    held.set()
    await revocation
    assert group.consumer.given_up["t", 0] == 2
    assert revoked == [(2, None), (0, 2)]
    assert (0, 2) not in group.began
    group.stop.set()
    await task


@in_virtual_time
async def test_handler_is_cancelled_when_its_partition_is_revoked_for_too_long() -> None:
    group = Group(*records(0, 3))
    group.hold(0, 1)
    task = group.start()
    await time_passes()
    assert (0, 1) in group.began
    await group.consumer.revoke_now(0)
    assert group.consumer.given_up == {("t", 0): 1}
    await time_passes()
    assert group.cancelled == [(0, 1)]
    assert group.consumer.warned == ["handler_takes_too_long"]
    group.consumer.script.append(FakeRecord(number=1, at=0))
    await time_passes()
    assert (1, 0) in group.handled  # the worker goes on
    group.stop.set()
    await task


@in_virtual_time
async def test_handler_of_a_lost_record_is_cancelled() -> None:
    group = Group(*records(0, 2), *records(1, 1))
    group.hold(0, 0)
    task = group.start()
    await time_passes()
    assert (0, 0) in group.began
    assert (1, 0) in group.handled
    await group.consumer.lose_now(0)
    await time_passes()
    assert group.cancelled == [(0, 0)]
    group.stop.set()
    await task
    assert group.consumer.stored == {("t", 1): 1}
    assert group.began.count((0, 1)) == 0


@in_virtual_time
async def test_failure_stops_processing_before_its_offset() -> None:
    group = Group(
        *records(0, 5), *records(1, 5), on_error=lambda failure: Retry(attempts=2, backoff_ms=1)
    )
    original = group.handle

    async def handle(record: Any) -> None:  # noqa: ANN401
        if (record.message.partition(), record.message.offset()) == (0, 2):
            raise ValueError("no such account")
        await original(record)

    group.handler = handle
    with pytest.raises(ProcessingError, match=r"t\[0\] at offset 2 was not handled") as caught:
        await group.start()
    assert isinstance(caught.value.__cause__, ValueError)
    assert group.consumer.stored["t", 0] == 2
    assert ("t", 0, 2) in group.consumer.seeks
    assert (0, 3) not in group.began


@in_virtual_time
async def test_failed_record_is_tried_again_and_then_skipped() -> None:
    retry = Retry(attempts=3, backoff_ms=1, otherwise=Skip())
    group = Group(*records(0, 2), on_error=retry)
    attempts: list[int] = []

    async def handle(record: Any) -> None:  # noqa: ANN401
        attempts.append(record.message.offset())
        if record.message.offset() == 0:
            raise OSError("try again")

    group.handler = handle
    task = group.start()
    await time_passes()
    assert group.consumer.stored.get(("t", 0)) == 2
    group.stop.set()
    await task
    assert attempts == [0, 0, 0, 1]
    assert group.consumer.warned == ["record_skipped"]


@in_virtual_time
async def test_retry_that_waits_is_made_at_once_when_its_partition_is_revoked() -> None:
    slow = Retry(attempts=9, backoff_ms=LONG_MS, backoff_max_ms=LONG_MS)
    group = Group(*records(0, 1), on_error=slow)
    attempts = [0]

    async def handle(_: object) -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            raise OSError("try again")

    group.handler = handle
    task = group.start()
    await time_passes()
    assert attempts == [1]
    async with asyncio.timeout(1.0):
        await group.consumer.revoke_now(0)
    assert group.consumer.given_up == {("t", 0): 1}
    group.stop.set()
    await task


@in_virtual_time
async def test_cancelled_processing_cancels_its_handlers_and_commits_what_was_handled() -> None:
    group = Group(*records(0, 3))
    group.hold(0, 1)
    task = group.start()
    await time_passes()
    assert (0, 1) in group.began
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert group.cancelled == [(0, 1)]
    assert group.consumer.stored == {("t", 0): 1}
    assert ("t", 0, 1) in group.consumer.seeks
    assert group.consumer.interceptor is None
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_handler_that_outlasts_the_stop_is_cancelled() -> None:
    group = Group(*records(0, 1))
    group.hold(0, 0)
    task = group.start()
    await time_passes()
    assert (0, 0) in group.began
    group.stop.set()
    await task
    assert group.cancelled == [(0, 0)]
    assert group.consumer.stored == {}


@in_virtual_time
async def test_hand_over_goes_on_until_the_partitions_are_gone() -> None:
    group = Group(*records(0, 1), hands_over=True)
    task = group.start()
    await time_passes()
    assert len(group.handled) == 1
    group.stop.set()
    await task
    assert group.consumer.given_up == {("t", 0): 1, ("t", 1): None, ("t", 2): None}


@in_virtual_time
async def test_pause_of_the_application_outlives_those_of_processing() -> None:
    limits = Limits(records=100, partition_records=10)
    group = Group(*records(0, 10), *records(1, 10), limits=limits)
    held = [group.hold(number, 0) for number in (0, 1)]
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    task = group.start()
    await time_passes()
    assert group.consumer.paused == {("t", 0), ("t", 1)}
    group.consumer.pause(zero, one)
    group.consumer.resume(one)
    assert group.consumer.paused == {("t", 0), ("t", 1)}
    for event in held:
        event.set()
    await time_passes()
    assert group.consumer.paused == {("t", 0)}
    group.stop.set()
    await task
    assert group.consumer.paused == {("t", 0)}


@in_virtual_time
async def test_end_resumes_what_processing_has_paused_and_nothing_else() -> None:
    limits = Limits(records=100, partition_records=10)
    group = Group(*records(0, 10), *records(1, 10), limits=limits)
    for number in (0, 1):
        group.hold(number, 0)
    task = group.start()
    await time_passes()
    assert group.consumer.paused == {("t", 0), ("t", 1)}
    group.consumer.pause(TopicPartition("t", 0))
    group.stop.set()
    await task
    assert group.consumer.paused == {("t", 0)}


@in_virtual_time
async def test_no_more_records_are_taken_than_the_limits_allow_and_other_tasks_run() -> None:
    group = Group(*records(0, 100), limits=Limits(records=10))
    held = group.hold(0, 0)
    task = group.start()
    await time_passes()
    assert (0, 0) in group.began
    await time_passes()
    assert len(group.consumer.script) == 90
    held.set()
    await time_passes()
    assert len(group.handled) == 100
    group.stop.set()
    await task


def test_handler_that_never_waits_lets_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock finds it a quarter of the longest turn later."""
    looks = count()
    monkeypatch.setattr("coopgroup.processing.tasks.monotonic", lambda: 0.0005 * next(looks))

    async def story() -> None:
        group = Group(*records(0, 200))
        seen = set[int]()
        task = group.start()
        while len(group.handled) < 200:
            seen.add(len(group.handled))
            await time_passes(0.0)
        assert len(seen) > 10
        group.stop.set()
        await task

    play(story)


@in_virtual_time
async def test_processing_ends_when_the_consumer_is_closed() -> None:
    group = Group(*records(0, 2))
    task = group.start()
    await time_passes()
    assert len(group.handled) == 2
    group.consumer.is_closed = True
    await task


@in_virtual_time
async def test_handler_whose_own_await_was_cancelled_has_failed() -> None:
    """Nobody cancelled the worker, so `on_error` decides; the offset would never be passed."""
    group = Group(*records(0, 3), on_error=Retry(attempts=2, backoff_ms=1))
    attempts: list[int] = []

    async def handle(record: Any) -> None:  # noqa: ANN401
        attempts.append(record.message.offset())
        if attempts == [0]:
            shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            shared.cancel()
            await shared

    group.handler = handle
    task = group.start()
    await time_passes()
    assert group.consumer.stored.get(("t", 0)) == 3
    group.stop.set()
    await task
    assert attempts == [0, 0, 1, 2]


def test_handler_that_raises_no_exception_of_python_stops_processing() -> None:
    class Abort(BaseException):
        pass

    async def story() -> None:
        group = Group(*records(0, 3))

        async def handle(_: object) -> None:
            raise Abort

        group.handler = handle
        with pytest.raises(ProcessingError, match="at offset 0 was not handled"):
            await group.start()
        assert group.consumer.stored == {}

    play(story)


@pytest.mark.parametrize("is_cancelled", [False, True])
@in_virtual_time
async def test_no_record_begins_after_the_time_to_stop(*, is_cancelled: bool) -> None:
    """Key b's second record comes before key c's, which has begun, so it may still be handled."""
    script = [FakeRecord(at=at, its_key=key) for at, key in enumerate([b"a", b"b", b"b"])]
    script += [FakeRecord(at=at, its_key=b"%d" % at) for at in range(3, 5)]
    group = Group(*script, order="key")
    ends = group.hold(0, 1)
    for offset in (0, 2, 3, 4, 5):
        group.hold(0, offset)
    task = group.start()
    await time_passes()
    assert len(group.began) == 4
    group.consumer.script.append(FakeRecord(at=5, its_key=b"5"))
    await time_passes()
    assert not group.consumer.script
    ends.set()
    await time_passes()
    assert (0, 5) in group.began
    assert (0, 2) not in group.began
    group.hold(0, 2).set()
    if is_cancelled:
        task.cancel()
    group.stop.set()
    await asyncio.wait([task])
    assert (0, 2) not in group.began


@in_virtual_time
async def test_on_revoke_does_not_follow_on_lost() -> None:
    group = Group(*records(0, 2), *records(1, 1))
    heard: list[tuple[str, int]] = []
    callbacks = group.consumer.callbacks
    callbacks.on_revoke = lambda _, them: heard.extend(("revoke", o.partition) for o in them)
    callbacks.on_lost = lambda _, them: heard.extend(("lost", o.partition) for o in them)
    group.hold(0, 0)
    task = group.start()
    await time_passes()
    assert (0, 0) in group.began
    revocation = asyncio.create_task(group.consumer.revoke_now(0, 1))
    await time_passes()
    assert heard == [("revoke", 1)]
    await group.consumer.lose_now(0)
    await revocation
    assert heard == [("revoke", 1), ("lost", 0)]
    group.stop.set()
    await task


@in_virtual_time
async def test_exception_of_on_revoke_gives_up_no_partition_whose_record_is_in_progress() -> None:
    group = Group(*records(0, 2), *records(1, 1))

    def on_revoke(_: object, partitions: Any) -> None:  # noqa: ANN401
        if partitions[0].partition == 1:
            raise OSError("disk full")

    group.consumer.callbacks.on_revoke = on_revoke
    held = group.hold(0, 0)
    task = group.start()
    await time_passes()
    assert (0, 0) in group.began
    assert (1, 0) in group.handled
    revocation = asyncio.create_task(group.consumer.revoke_now(0, 1))
    await time_passes()
    assert ("t", 1) in group.consumer.given_up
    await time_passes()
    assert ("t", 0) not in group.consumer.given_up
    held.set()
    with pytest.raises(OSError, match="disk full"):
        await revocation
    assert group.consumer.given_up["t", 0] == 1
    group.stop.set()
    await task
