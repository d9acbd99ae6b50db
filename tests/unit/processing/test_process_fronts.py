"""Rules of processing that hold in threads and in tasks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, TopicPartition

from coopgroup import ProcessingError
from coopgroup.processing import DeadLetter, Failure, Limits, Retry, Skip, Stop
from tests.support.fake_records import FakeProducer, FakeRecord
from tests.unit.processing.stage import (
    Group,
    Make,
    Story,
    TaskGroup,
    ThreadGroup,
    failing,
    made_in,
    records,
)

LONG_MS = 60_000
WORKERS = 4
TEN = Limits(records=100, partition_records=10)


@pytest.fixture(params=[ThreadGroup, TaskGroup], ids=["threads", "tasks"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with made_in(request.param) as maker:
        yield maker


def test_records_of_a_partition_are_handled_in_order_others_beside(make: Make) -> None:
    group = make(*records(0, 50), *records(1, 50))
    group.hold((0, 10))

    def story() -> Story:
        assert (1, 49) in group.handled
        assert (0, 10) in group.began
        assert (0, 11) not in group.began
        group.release()
        yield

    group.play(story())
    assert [at for number, at in group.handled if number == 0] == list(range(50))
    assert group.consumer.stored == {("t", 0): 50, ("t", 1): 50}
    assert group.consumer.automatic


def test_no_more_records_are_in_progress_than_there_are_workers(make: Make) -> None:
    group = make(*[FakeRecord(at=at) for at in range(9)], order="none", workers=3)
    group.hold(*[(0, at) for at in range(9)])

    def story() -> Story:
        assert group.began == {(0, 0), (0, 1), (0, 2)}
        group.release()
        yield
        assert len(group.handled) == 9

    group.play(story())


def test_revoked_partition_is_given_up_when_its_record_has_ended(make: Make) -> None:
    group = make(*records(0, 3), *records(1, 3))
    stored, revoked = group.consumer.stored, list[tuple[int, int | None]]()
    group.consumer.callbacks.on_revoke = lambda _, them: revoked.extend(
        (one.partition, stored.get(("t", one.partition))) for one in them
    )
    group.hold((0, 1))

    def story() -> Story:
        assert len(group.handled) == 4
        group.revoke(0, 2)
        yield
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


def test_revoked_partition_is_given_up_after_the_limit_at_its_record(make: Make) -> None:
    group = make(*records(0, 3))
    group.hold((0, 1))

    def story() -> Story:
        group.revoke(0)
        yield 4.9
        assert ("t", 0) not in group.consumer.given_up
        yield 0.2
        assert group.consumer.given_up["t", 0] == 1
        assert group.consumer.warned == ["handler_takes_too_long"]
        assert getattr(group, "cancelled", [(0, 1)]) == [(0, 1)]
        group.release()
        group.consumer.script.append(FakeRecord(number=1, at=0))
        yield
        assert (1, 0) in group.handled  # the worker goes on

    group.play(story())
    assert group.consumer.stored["t", 0] == 1


def test_outcome_of_a_lost_record_does_not_count(make: Make) -> None:
    group = make(*records(0, 2), *records(1, 1))
    lost: list[int] = []
    group.consumer.callbacks.on_lost = lambda _, them: lost.extend(one.partition for one in them)
    group.hold((0, 0))

    def story() -> Story:
        assert (1, 0) in group.handled
        group.lose(0)
        yield
        assert getattr(group, "cancelled", [(0, 0)]) == [(0, 0)]
        group.release()
        yield

    group.play(story())
    assert (lost, group.consumer.stored) == ([0], {("t", 1): 1})
    assert group.consumer.warned == ["record_lost_while_handled"]
    assert (0, 1) not in group.began


def test_on_revoke_does_not_follow_on_lost(make: Make) -> None:
    group = make(*records(0, 2), *records(1, 1))
    heard: list[tuple[str, int]] = []
    callbacks = group.consumer.callbacks
    callbacks.on_revoke = lambda _, them: heard.extend(("revoke", one.partition) for one in them)
    callbacks.on_lost = lambda _, them: heard.extend(("lost", one.partition) for one in them)
    group.hold((0, 0))

    def story() -> Story:
        group.revoke(0, 1)
        yield
        assert heard == [("revoke", 1)]
        group.lose(0)
        yield
        group.release()
        yield

    group.play(story())
    assert heard == [("revoke", 1), ("lost", 0)]


def test_failure_stops_processing_before_its_offset_and_others_end(make: Make) -> None:
    group = make(*records(0, 5), *records(1, 5), on_error=Retry(attempts=2, backoff_ms=1))

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
    make: Make, failures: int, *, is_skipped: bool
) -> None:
    retry = Retry(attempts=3, backoff_ms=1_000, otherwise=Skip())
    group = make(*records(0, 2), *records(1, 1), on_error=retry)
    attempts: list[tuple[int, float]] = []
    fail = failing(*[OSError("try again")] * failures)

    def handle(message: FakeRecord) -> None:
        if message.partition() == 0:
            attempts.append((message.offset(), round(group.hand.now_s - began_s, 3)))
            fail(message)

    def story() -> Story:
        assert group.consumer.stored == {("t", 1): 1}  # others go on
        yield 3.0
        yield

    group.handler, began_s = handle, group.hand.now_s
    group.play(story())
    assert attempts == [(0, 0.0), (0, 1.0), (0, 3.0), (1, 3.0)]
    assert group.consumer.stored["t", 0] == 2
    assert group.consumer.warned == (["record_skipped"] if is_skipped else [])


@pytest.mark.parametrize("is_again_bad", [False, True])
def test_retry_that_waits_is_made_once_and_at_once_when_its_partition_is_revoked(
    make: Make, *, is_again_bad: bool
) -> None:
    slow = Retry(attempts=9, backoff_ms=LONG_MS, backoff_max_ms=LONG_MS)
    group = make(*records(0, 1), on_error=slow)
    group.handler = failing(*[OSError("try again")] * (1 + is_again_bad))

    def story() -> Story:
        group.revoke(0)
        began_s = group.hand.now_s
        yield
        assert group.consumer.given_up == {("t", 0): None if is_again_bad else 1}
        assert group.hand.now_s - began_s < 1.0

    group.play(story())


def test_retry_of_a_lost_record_is_not_made(make: Make) -> None:
    group = make(*records(0, 1), on_error=Retry(backoff_ms=1_000))
    attempts: list[FakeRecord] = []

    def handle(message: FakeRecord) -> None:
        attempts.append(message)
        raise OSError("try again")

    def story() -> Story:
        group.lose(0)
        yield 2.0
        yield

    group.handler = handle
    group.play(story())
    assert len(attempts) == 1


def test_lost_record_that_waits_for_a_retry_frees_its_worker(make: Make) -> None:
    slow = Retry(attempts=9, backoff_ms=LONG_MS, backoff_max_ms=LONG_MS)
    group = make(*records(0, 1), *records(1, 1), on_error=slow, workers=1)

    def handle(message: FakeRecord) -> None:
        if message.partition() == 0:
            raise OSError("try again")
        group.handle(message)

    def story() -> Story:
        assert group.handled == []
        group.lose(0)
        yield
        assert group.handled == [(1, 0)]

    group.handler = handle
    group.play(story())


def test_dead_letter_of_a_revoked_partition_is_sent_before_it_is_given_up(make: Make) -> None:
    producer = FakeProducer()
    letter = DeadLetter(producer, "failed")
    slow = Retry(attempts=2, backoff_ms=LONG_MS, backoff_max_ms=LONG_MS, otherwise=letter)
    group = make(*records(0, 2), on_error=slow)
    group.handler = failing(OSError("bad"), OSError("bad"))

    def story() -> Story:
        group.revoke(0)
        yield
        yield
        assert group.consumer.given_up == {("t", 0): 1}

    group.play(story())
    assert [one["topic"] for one in producer.sent] == ["failed"]
    assert group.consumer.warned == ["record_dead_lettered"]


def test_processing_goes_on_after_a_record_that_is_too_large_for_its_dead_letter(
    make: Make,
) -> None:
    producer = FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), bytes_max=1_000)
    large = FakeRecord(at=0, its_value=bytes(2_000))
    group = make(large, FakeRecord(at=1), on_error=DeadLetter(producer, "failed"))
    group.handler = failing(OSError("bad"))
    group.play()
    assert group.consumer.stored == {("t", 0): 2}
    assert group.consumer.warned == ["dead_letter_shortened", "record_dead_lettered"]


class Unspeakable(Exception):  # noqa: N818
    def __repr__(self) -> str:
        raise OSError("no text")


def test_error_without_a_text_is_an_error_as_any_other(make: Make) -> None:
    group = make(*records(0, 2), on_error=lambda one: (Skip(), Stop())[one.message.offset()])
    group.handler = failing(Unspeakable(), Unspeakable())
    with pytest.raises(ProcessingError, match="Unspeakable, whose text raises OSError") as caught:
        group.play()
    assert isinstance(caught.value.__cause__, Unspeakable)
    assert group.consumer.warned == ["record_skipped"]


def test_refused_dead_letter_stops_processing(make: Make) -> None:
    producer = FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    group = make(*records(0, 2), on_error=DeadLetter(producer, "failed"))
    group.handler = failing(OSError("bad"))
    with pytest.raises(ProcessingError, match="MSG_SIZE_TOO_LARGE"):
        group.play()
    assert group.consumer.stored == {}


def test_callable_decides_by_failure(make: Make) -> None:
    seen: list[Failure] = []

    def on_error(failure: Failure) -> Skip | Stop:
        seen.append(failure)
        return Skip() if failure.message.offset() == 0 else Stop()

    group = make(*records(0, 2), on_error=on_error)
    group.handler = failing(LookupError(), LookupError())
    with pytest.raises(ProcessingError):
        group.play()
    assert [(one.message.offset(), one.attempt) for one in seen] == [(0, 1), (1, 1)]
    assert group.consumer.stored == {("t", 0): 1}


class Abort(BaseException):
    """No `Exception` of Python."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LookupError(), "result of on_error: got 'again', expected Retry(…)"),
        (Abort(), "at offset 0 was not handled: Abort()"),
    ],
)
def test_failure_without_an_answer_stops_it(make: Make, error: BaseException, message: str) -> None:
    group = make(*records(0, 3), on_error=lambda _: "again")
    group.handler = failing(error)
    with pytest.raises(ProcessingError) as caught:
        group.play()
    assert message in str(caught.value)
    assert group.consumer.stored == {}


@pytest.mark.parametrize("is_released", [True, False])
def test_pauses_of_the_application_outlast_processing(make: Make, *, is_released: bool) -> None:
    group = make(*records(0, 10), *records(1, 10), limits=TEN)
    group.hold((0, 0), (1, 0))
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)

    def story() -> Story:
        assert group.consumer.paused == {("t", 0), ("t", 1)}
        group.pause(zero, one)
        group.resume(one)
        assert group.consumer.paused == {("t", 0), ("t", 1)}
        if is_released:
            group.release()
            yield
            assert group.consumer.paused == {("t", 0)}

    group.play(story())
    assert group.consumer.paused == {("t", 0)}


def test_no_more_records_are_taken_than_the_limits_allow(make: Make) -> None:
    group = make(*records(0, 100), limits=Limits(records=10))
    group.hold((0, 0))

    def story() -> Story:
        for _ in range(3):
            yield
            assert len(group.consumer.script) == 90
        group.release()
        yield
        assert len(group.handled) == 100

    group.play(story())


FIVE_BEHIND = Limits(records=100, partition_records=10, handled_behind=5)


@pytest.mark.parametrize("order", ["key", "none"])
def test_partition_waits_for_a_record_that_many_were_handled_behind(make: Make, order: str) -> None:
    group = make(order=order, limits=FIVE_BEHIND)
    slow, fast = [FakeRecord(at=0, its_key=b"slow")], records(1, 5)
    group.hold((0, 0))

    def story() -> Story:
        group.consumer.script.extend(slow)
        for at in range(1, 6):
            yield
            assert group.consumer.paused == set()
            group.consumer.script.append(FakeRecord(at=at, its_key=None))
        yield
        yield
        assert group.consumer.paused == {("t", 0)}
        assert group.consumer.warned == ["partition_waits_for_record"]
        group.consumer.script.extend(fast)  # other partitions go on
        yield
        yield
        assert (1, 4) in group.handled
        assert ("t", 0) not in group.consumer.stored
        group.release()
        yield
        assert group.consumer.paused == set()
        assert group.consumer.stored["t", 0] == 6

    group.play(story())
    assert group.consumer.warned == ["partition_waits_for_record"]


@pytest.mark.parametrize("ends_by", ["outcome", "revocation", "loss", "stop"])
def test_partition_at_its_limit_of_handled_records_ends_as_any_other(
    make: Make, ends_by: str
) -> None:
    """A record that waits for another attempt is one that many others pass, too."""
    pause_ms = 1_000 if ends_by == "outcome" else LONG_MS
    retry = Retry(attempts=2, backoff_ms=pause_ms, backoff_max_ms=LONG_MS, otherwise=Skip())
    behind = [FakeRecord(at=at, its_key=None) for at in range(1, 9)]
    group = make(FakeRecord(at=0), *behind, order="key", on_error=retry, limits=FIVE_BEHIND)
    fail = failing(OSError("try again"))

    def handle(message: FakeRecord) -> None:
        if message.offset() == 0:
            fail(message)
        group.handle(message)

    def story() -> Story:
        yield
        assert (len(group.handled), group.consumer.paused) == (8, {("t", 0)})
        match ends_by:
            case "outcome":
                yield 1.0
                yield
                assert group.consumer.paused == set()
            case "revocation":
                group.revoke(0)
                yield
                assert group.consumer.given_up == {("t", 0): 9}
            case "loss":
                group.lose(0)
                yield
                assert group.consumer.given_up == {}
            case _:
                pass  # the end of the story stops processing

    group.handler = handle
    group.play(story())
    assert group.consumer.stored == ({} if ends_by == "loss" else {("t", 0): 9})


@pytest.mark.parametrize("order", ["key", "none"])
def test_values_go_when_their_records_are_handled(make: Make, order: str) -> None:
    """One slow record would keep the values of thousands behind it."""
    group = make(order=order, workers=WORKERS)
    behind = [FakeRecord(at=at, its_key=None) for at in range(1, 101)]
    group.consumer.script.extend([FakeRecord(at=0), *behind])
    kept = [weakref.ref(one) for one in behind]
    behind.clear()
    group.hold((0, 0))
    group.handler = lambda _: None

    def story() -> Story:
        yield
        gc.collect()
        assert sum(one() is not None for one in kept) <= WORKERS
        group.release()
        yield

    group.play(story())


def test_processing_ends_when_the_consumer_is_closed(make: Make) -> None:
    group = make(*records(0, 2))

    def story() -> Story:
        assert len(group.handled) == 2
        group.consumer.is_closed = True
        yield 1.0
        assert group.running.done()  # a thread does not come here: its poll raises

    group.play(story())


@pytest.mark.parametrize("kind", [ThreadGroup, TaskGroup])
def test_handlers_are_measured_instead_of_the_polls(kind: type[Group]) -> None:
    """One handler of 5 ms at a time handles 200 records a second."""
    with made_in(kind, has_own_jobs=False) as make:
        group = make(*[FakeRecord(number=at % 2, at=at // 2) for at in range(120)], workers=2)

        def handle(message: FakeRecord) -> None:
            group.hand.now_s += 0.005
            group.handle(message)
            if len(group.handled) == 100:
                group.stop.set()

        group.handler = handle
        group.play()
    meter = group.consumer._parts.driver.meter  # noqa: SLF001
    assert meter.rate_per_s == pytest.approx(200)
    assert not meter.is_elsewhere
