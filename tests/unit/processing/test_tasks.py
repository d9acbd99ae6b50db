"""Processing on an event loop in virtual time, on a consumer that plays a script."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.processing import Retry
from coopgroup.processing.attachment import Attachment
from tests.support.fake_records import FakeAsyncConsumer, FakeRecord
from tests.support.virtual_loop import time_passes
from tests.unit.processing.stage import Make, Story, TaskGroup, made_in, records


@pytest.fixture
def make() -> Iterator[Make]:
    with made_in(TaskGroup) as maker:
        yield maker


def test_cancelled_processing_cancels_its_handlers_and_commits_what_was_handled(make: Make) -> None:
    group = make(*records(0, 3))
    group.hold((0, 1))

    def story() -> Story:
        assert (0, 1) in group.began
        group.running.cancel()
        yield
        assert len(asyncio.all_tasks()) == 1

    with pytest.raises(asyncio.CancelledError):
        group.play(story())
    assert group.cancelled == [(0, 1)]
    assert group.consumer.stored == {("t", 0): 1}
    assert ("t", 0, 1) in group.consumer.seeks
    assert group.consumer.interceptor is None


def test_handler_that_outlasts_the_stop_is_cancelled(make: Make) -> None:
    group = make(*records(0, 1))
    group.hold((0, 0))
    group.play()
    assert group.began == {(0, 0)}
    assert (group.cancelled, group.consumer.stored) == ([(0, 0)], {})


def test_hand_over_goes_on_until_the_partitions_are_gone(make: Make) -> None:
    group = make(*records(0, 1), hands_over=True)
    group.play()
    assert group.consumer.given_up == {("t", 0): 1, ("t", 1): None, ("t", 2): None}


def test_loss_of_a_revoked_partition_keeps_the_offsets_of_the_others(make: Make) -> None:
    group = make(*records(0, 1), *records(1, 1))
    group.hold((0, 0), (1, 0))

    def story() -> Story:
        group.revoke(0)
        yield
        group.release((1, 0))
        group.lose(0)
        yield

    group.play(story())
    assert group.consumer.stored == {("t", 1): 1}


def test_busy_handler_lets_other_tasks_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock finds it a quarter of the longest turn later."""
    looks = count()
    monkeypatch.setattr("coopgroup.processing.tasks.monotonic", lambda: 0.0005 * next(looks))
    group = make(*records(0, 200))
    seen = set[int]()

    async def watch() -> None:
        while len(group.handled) < 200:
            seen.add(len(group.handled))
            await time_passes(0.0)

    def handle(message: FakeRecord) -> None:
        if not group.handled:
            watching.append(asyncio.create_task(watch()))
        group.handle(message)

    watching: list[asyncio.Task[None]] = []
    group.handler = handle
    group.play()
    assert len(seen) > 10


def test_handler_whose_own_await_was_cancelled_has_failed(make: Make) -> None:
    """Nobody cancelled the worker, so `on_error` decides; the offset would never be passed."""
    group = make(*records(0, 3), on_error=Retry(attempts=2, backoff_ms=1))
    attempts: list[int] = []

    def handle(message: FakeRecord) -> object:
        attempts.append(message.offset())
        if attempts != [0]:
            return None
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shared.cancel()
        return shared

    group.handler = handle
    group.play()
    assert group.consumer.stored["t", 0] == 3
    assert attempts == [0, 0, 1, 2]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_no_record_begins_after_the_time_to_stop(make: Make, *, is_cancelled: bool) -> None:
    """Key b's second record comes before key c's, which has begun, so it may still be handled."""
    script = [FakeRecord(at=at, its_key=key) for at, key in enumerate([b"a", b"b", b"b"])]
    script += [FakeRecord(at=at, its_key=b"%d" % at) for at in range(3, 5)]
    group = make(*script, order="key")
    group.hold(*[(0, at) for at in range(6)])

    def story() -> Story:
        assert len(group.began) == 4
        group.consumer.script.append(FakeRecord(at=5, its_key=b"5"))
        yield
        assert not group.consumer.script
        group.release((0, 1))
        yield
        assert (0, 5) in group.began
        assert (0, 2) not in group.began
        group.release((0, 2))
        if is_cancelled:
            group.running.cancel()

    if is_cancelled:
        with pytest.raises(asyncio.CancelledError):
            group.play(story())
    else:
        group.play(story())
    assert (0, 2) not in group.began


def test_exception_of_on_revoke_gives_up_no_partition_in_progress(make: Make) -> None:
    group = make(*records(0, 2), *records(1, 1))

    def on_revoke(_: object, partitions: Any) -> None:  # noqa: ANN401
        if partitions[0].partition == 1:
            raise OSError("disk full")

    group.consumer.callbacks.on_revoke = on_revoke
    group.hold((0, 0))

    def story() -> Story:
        group.revoke(0, 1)
        yield
        assert ("t", 1) in group.consumer.given_up
        yield
        assert ("t", 0) not in group.consumer.given_up
        group.release()
        yield
        with pytest.raises(OSError, match="disk full"):
            group.revocation.result()
        assert group.consumer.given_up["t", 0] == 1

    group.play(story())


def test_processing_that_begins_soon_after_another_commits_only_what_is_stored() -> None:
    """The polling thread makes the calls of both later; a position passes records in flight."""
    consumer: Any = FakeAsyncConsumer()
    calls: deque[Callable[[], None]] = deque()
    consumer.call_later = calls.append

    def make_calls() -> None:
        while calls:
            calls.popleft()()

    def attach() -> Attachment:
        attachment = Attachment.of_tasks(consumer)
        attachment.attach(lambda *_: None, lambda *_: None, dict)
        return attachment

    first = attach()
    make_calls()
    first.detach((), is_complete=True)
    second = attach()
    make_calls()
    assert not consumer.automatic
    second.detach((), is_complete=True)
    make_calls()
    assert consumer.automatic


def test_partition_whose_stop_outlasts_processing_commits_only_what_is_stored() -> None:
    consumer: Any = FakeAsyncConsumer()
    attachment = Attachment.of_tasks(consumer)
    attachment.attach(lambda *_: None, lambda *_: None, dict)
    consumer.stopping = ResourceSet({"t": [1]})
    attachment.detach((), is_complete=True)
    assert consumer.automatic
    assert consumer.stored_only == ResourceSet({"t": [1]})
