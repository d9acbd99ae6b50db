"""Processing in worker threads, turned by hand, on a consumer that plays a script.

A test tells a story: a generator that goes on, at each `yield`, when nothing else can happen. A
record that the test holds is in progress: its job has begun in the scheduler, and was not run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup import ProcessingError
from coopgroup.errors import ConfigurationError
from coopgroup.processing import Failure, Limits, Retry, Skip, Stop, process
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Scheduler
from coopgroup.processing.threads import ThreadProcessing
from tests.support.by_hand import Hand, by_hand
from tests.support.fake_records import FakeRecord
from tests.unit.processing.thread_stage import Group, records

LONG_MS = 60_000


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    """Give each record a job of its own, which the test can hold."""

    def work_one(self: Any, *given: Any, **more: Any) -> None:  # noqa: ANN401  (those of `_work`)
        following = self._handle(*given, **{"attempt": 1, "is_last": False} | more)
        if following is not None:
            self._worker.submit(partial(self._work, following))

    monkeypatch.setattr(ThreadProcessing, "_work", work_one)
    with by_hand(waits=True) as made:
        yield made


def failing(*errors: BaseException) -> Callable[[FakeRecord], None]:
    """Return a handler that raises these errors, each once, and then does nothing."""
    left = list(errors)

    def handle(_: FakeRecord) -> None:
        if left:
            raise left.pop(0)

    return handle


def test_records_of_a_partition_are_handled_in_order_and_partitions_side_by_side(
    hand: Hand,
) -> None:
    group = Group(hand, *records(0, 50), *records(1, 50))
    group.hold((0, 10))

    def story() -> Iterator[None]:
        yield
        assert (1, 49) in group.handled
        assert (0, 10) in group.began
        assert (0, 11) not in group.began
        group.release()
        yield

    group.play(story())
    assert [at for number, at in group.handled if number == 0] == list(range(50))
    assert group.consumer.stored == {("t", 0): 50, ("t", 1): 50}
    assert group.consumer.automatic


def test_no_more_records_are_in_progress_than_there_are_workers(hand: Hand) -> None:
    group = Group(hand, *[FakeRecord(at=at) for at in range(9)], order="none", workers=3)
    group.hold(*[(0, at) for at in range(9)])

    def story() -> Iterator[None]:
        yield
        assert group.began == {(0, 0), (0, 1), (0, 2)}
        group.release()
        yield
        assert len(group.handled) == 9

    group.play(story())


def test_revoked_partition_is_given_up_when_its_record_has_ended_and_others_go_on(
    hand: Hand,
) -> None:
    group = Group(hand, *records(0, 3), *records(1, 3))
    revoked: list[tuple[int, int | None]] = []
    group.consumer.callbacks.on_revoke = lambda _, partitions: revoked.extend(
        (one.partition, group.consumer.stored.get(("t", one.partition))) for one in partitions
    )
    group.hold((0, 1))

    def story() -> Iterator[None]:
        yield
        assert len(group.handled) == 4
        group.consumer.revoke(0, 2)
        assert group.consumer.given_up == {("t", 2): None}
        assert revoked == [(2, None)]
        group.consumer.script.append(FakeRecord(number=1, at=3))
        yield
        assert (1, 3) in group.handled
        group.release()
        yield
        assert group.consumer.given_up["t", 0] == 2
        assert revoked == [(2, None), (0, 2)]
        assert (0, 2) not in group.began

    group.play(story())


def test_revoked_partition_is_given_up_after_the_limit_with_the_offset_before_its_record(
    hand: Hand,
) -> None:
    group = Group(hand, *records(0, 3))
    group.hold((0, 1))

    def story() -> Iterator[None]:
        yield
        group.consumer.revoke(0)
        hand.advance(4.9)
        yield
        assert ("t", 0) not in group.consumer.given_up
        hand.advance(0.1)
        yield
        assert group.consumer.given_up["t", 0] == 1
        assert group.consumer.warned == ["handler_takes_too_long"]
        group.release()
        yield

    group.play(story())
    assert group.consumer.stored["t", 0] == 1


def test_close_waits_for_the_records_in_progress(hand: Hand) -> None:
    group = Group(hand, *records(0, 2))
    group.hold((0, 0))

    def story() -> Iterator[None]:
        yield
        group.consumer.is_closing = True
        group.release()  # it ends while the revocation waits for it
        group.consumer.revoke(0)
        assert group.consumer.given_up["t", 0] == 1

    group.play(story())


def test_outcome_of_a_lost_record_does_not_count(hand: Hand) -> None:
    group = Group(hand, *records(0, 2))
    lost: list[int] = []
    group.consumer.callbacks.on_lost = lambda _, partitions: lost.extend(
        one.partition for one in partitions
    )

    def lose(message: FakeRecord) -> None:
        group.handle(message)
        group.consumer.lose(0)

    group.handler = lose
    group.play()
    assert (lost, group.consumer.stored) == ([0], {})
    assert group.handled == [(0, 0)]
    assert group.consumer.warned == ["record_lost_while_handled"]


def test_failure_stops_processing_before_its_offset_and_others_end(hand: Hand) -> None:
    group = Group(hand, *records(0, 5), *records(1, 5))

    def handle(message: FakeRecord) -> None:
        if (message.partition(), message.offset()) == (0, 2):
            raise ValueError("no such account")
        group.handle(message)

    group.handler = handle
    with pytest.raises(ProcessingError) as caught:
        group.play()
    assert str(caught.value) == "t[0] at offset 2 was not handled: ValueError('no such account')"
    assert isinstance(caught.value.__cause__, ValueError)
    assert group.consumer.stored["t", 0] == 2
    assert ("t", 0, 2) in group.consumer.seeks
    assert (0, 3) not in group.began
    assert group.consumer.interceptor is None


@pytest.mark.parametrize(("failures", "is_skipped"), [(2, False), (3, True)])
def test_failed_record_is_tried_again_after_pauses_and_then_skipped(
    hand: Hand, failures: int, *, is_skipped: bool
) -> None:
    group = Group(
        hand,
        *records(0, 2),
        *records(1, 1),
        on_error=Retry(attempts=3, backoff_ms=1_000, otherwise=Skip()),
    )
    attempts, left = list[tuple[int, float]](), [failures]

    def handle(message: FakeRecord) -> None:
        if message.partition() == 0:
            attempts.append((message.offset(), hand.now_s - began_s))
            if left[0]:
                left[0] -= 1
                raise OSError("try again")

    def story() -> Iterator[None]:
        yield
        assert group.consumer.stored == {("t", 1): 1}  # others go on
        hand.advance(3.0)
        yield

    group.handler, began_s = handle, hand.now_s
    group.play(story())
    assert attempts == [(0, 0.0), (0, 1.0), (0, 3.0), (1, 3.0)]
    assert group.consumer.stored["t", 0] == 2
    assert group.consumer.warned == (["record_skipped"] if is_skipped else [])


@pytest.mark.parametrize("is_again_bad", [False, True])
def test_retry_that_waits_is_made_once_and_at_once_when_its_partition_is_revoked(
    hand: Hand, *, is_again_bad: bool
) -> None:
    slow = Retry(attempts=9, backoff_ms=LONG_MS, backoff_max_ms=LONG_MS)
    group = Group(hand, *records(0, 1), on_error=slow)
    group.handler = failing(*[OSError("try again")] * (1 + is_again_bad))

    def story() -> Iterator[None]:
        yield
        group.consumer.revoke(0)
        began_s = hand.now_s
        yield
        assert group.consumer.given_up == {("t", 0): None if is_again_bad else 1}
        assert hand.now_s - began_s < 1.0

    group.play(story())


def test_retry_of_a_lost_record_is_not_made(hand: Hand) -> None:
    group = Group(hand, *records(0, 1), on_error=Retry(backoff_ms=1_000))
    attempts = list[FakeRecord]()

    def handle(message: FakeRecord) -> None:
        attempts.append(message)
        raise OSError("try again")

    def story() -> Iterator[None]:
        yield
        group.consumer.lose(0)
        hand.advance(2.0)
        yield

    group.handler = handle
    group.play(story())
    assert len(attempts) == 1


def test_callable_decides_by_failure(hand: Hand) -> None:
    seen: list[Failure] = []

    def on_error(failure: Failure) -> Skip | Stop:
        seen.append(failure)
        return Skip() if failure.message.offset() == 0 else Stop()

    group = Group(hand, *records(0, 2), on_error=on_error)
    group.handler = failing(LookupError(), LookupError())
    with pytest.raises(ProcessingError):
        group.play()
    assert [(one.message.offset(), one.attempt) for one in seen] == [(0, 1), (1, 1)]
    assert group.consumer.stored == {("t", 0): 1}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LookupError(), "result of on_error: got 'again', expected Retry(…)"),
        (SystemExit(3), "SystemExit(3)"),
    ],
)
def test_failure_without_an_answer_stops_processing(
    hand: Hand, error: BaseException, message: str
) -> None:
    group = Group(hand, *records(0, 1), on_error=lambda _: "again")
    group.handler = failing(error)
    with pytest.raises(ProcessingError) as caught:
        group.play()
    assert message in str(caught.value)


def test_partition_at_its_limit_is_paused_beside_the_pauses_of_the_application(
    hand: Hand,
) -> None:
    limits = Limits(records=100, partition_records=10)
    group = Group(hand, *records(0, 10), *records(1, 10), limits=limits)
    group.hold((0, 0), (1, 0))
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)

    def story() -> Iterator[None]:
        yield
        assert group.consumer.paused == {("t", 0), ("t", 1)}
        group.consumer.pause([zero, one])
        group.consumer.resume([one])
        assert group.consumer.paused == {("t", 0), ("t", 1)}
        group.release()
        yield
        assert group.consumer.paused == {("t", 0)}

    group.play(story())
    assert group.consumer.paused == {("t", 0)}


def test_end_resumes_what_processing_has_paused_and_nothing_else(hand: Hand) -> None:
    limits = Limits(records=100, partition_records=10)
    group = Group(hand, *records(0, 10), *records(1, 10), limits=limits)
    group.hold((0, 0), (1, 0))

    def story() -> Iterator[None]:
        yield
        assert group.consumer.paused == {("t", 0), ("t", 1)}
        group.consumer.pause([TopicPartition("t", 0)])

    group.play(story())
    assert group.consumer.paused == {("t", 0)}


@pytest.mark.parametrize(
    ("value", "limits", "taken"),
    [(b"12345", Limits(records=10), 10), (bytes(1_000), Limits(bytes=10_500), 11)],
)
def test_no_more_records_are_taken_than_the_limits_allow(
    hand: Hand, value: bytes, limits: Limits, taken: int
) -> None:
    """Bytes may pass their limit by one record, whose size is not known before."""
    group = Group(hand, *[FakeRecord(at=at, its_value=value) for at in range(100)], limits=limits)
    group.hold((0, 0))

    def story() -> Iterator[None]:
        for _ in range(3):
            yield
            assert len(group.consumer.script) == 100 - taken
        group.release()
        yield
        assert len(group.handled) == 100

    group.play(story())


@pytest.mark.parametrize(("error", "is_complete"), [(OSError, True), (KeyboardInterrupt, False)])
def test_exception_in_a_poll_ends_processing_with_what_was_handled(
    hand: Hand, error: type[BaseException], *, is_complete: bool
) -> None:
    """At Ctrl-C a record may have been on its way: a commit of positions would pass it."""
    group = Group(hand, *records(0, 2))

    def story() -> Iterator[None]:
        yield
        raise error

    with pytest.raises(error):
        group.play(story())
    assert group.consumer.stored == {("t", 0): 2}
    assert group.consumer.automatic is is_complete


def test_record_that_gets_no_thread_ends_processing_and_is_not_passed(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(hand, *records(0, 1))

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    began_s = hand.now_s
    with monkeypatch.context() as patch:
        patch.setattr("coopgroup.worker.Worker.submit", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            group.play()
    assert hand.now_s == began_s
    assert group.consumer.seeks == [("t", 0, 0)]


def test_processing_ends_when_the_consumer_is_closed(hand: Hand) -> None:
    group = Group(hand, *records(0, 2))

    def story() -> Iterator[None]:
        yield
        assert len(group.handled) == 2
        group.consumer.is_closed = True
        yield

    group.play(story())
    assert not group.stop.is_set()


def test_consumer_is_processed_once_at_a_time(hand: Hand) -> None:
    group = Group(hand)

    def story() -> Iterator[None]:
        consumer: Any = group.consumer
        with pytest.raises(ConfigurationError, match="not processed already"):
            process(consumer, print)
        yield

    group.play(story())


def test_partition_whose_handler_never_ends_has_its_on_revoke_when_processing_stops(
    hand: Hand,
) -> None:
    group = Group(hand, *records(0, 2))
    revoked: list[int] = []
    group.consumer.callbacks.on_revoke = lambda _, partitions: revoked.extend(
        one.partition for one in partitions
    )
    group.hold((0, 0))
    consumer: Any = group.consumer
    handle: Any = group.handle
    timing = Timing(group.stop, 100, hands_over=True)
    scheduler = Scheduler("partition", Limits())
    processing = ThreadProcessing(consumer, handle, Stop(), scheduler, timing, 4)
    group.play(run=processing.run)
    assert sorted(revoked) == [0, 1, 2]
    assert group.consumer.given_up["t", 0] is None
    assert group.consumer.warned == ["handler_takes_too_long"]


def test_coroutine_of_a_handler_in_a_thread_does_not_count_as_handled(hand: Hand) -> None:
    async def work() -> None: ...

    def handle(_: FakeRecord) -> object:
        return work()

    group = Group(hand, *records(0, 1))
    group.handler = handle
    with pytest.raises(ProcessingError, match="coroutines need an AsyncCooperativeConsumer"):
        group.play()
    assert group.consumer.stored == {}


def test_offsets_of_handled_records_are_committed_at_the_end(hand: Hand) -> None:
    """The consumer has no position after the seek, so a later `close` commits nothing."""
    group = Group(hand, *records(0, 900))

    def handle(message: FakeRecord) -> None:
        group.handle(message)
        if message.offset() == 1:
            group.stop.set()

    group.handler = handle
    group.play()
    assert group.handled == [(0, 0), (0, 1), (0, 2)]  # the third one had begun
    assert group.consumer.committed == {("t", 0): 3}
    assert group.consumer.seeks == [("t", 0, 3)]
    assert group.consumer.automatic
