"""Processing with worker threads, on a consumer that plays a script."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer, ProcessingError
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.errors import ConfigurationError
from coopgroup.processing import Failure, Limits, Retry, Skip, Stop, process
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Scheduler
from coopgroup.processing.threads import ThreadProcessing
from tests.support.fake_records import FakeConsumer, FakeRecord

WAIT_S = 10.0


class Group:
    """A consumer with processing in a thread of its own, and a handler that can be held up."""

    def __init__(self, *records: FakeRecord, **options: Any) -> None:  # noqa: ANN401
        self.consumer = FakeConsumer(deque(records))
        self.stop = threading.Event()
        self.handled: list[tuple[int, int]] = []
        self.held: dict[tuple[int, int], threading.Event] = {}
        self.began: list[tuple[int, int]] = []
        self.options = {"workers": 4, "stop": self.stop, "stop_timeout_ms": 5_000, **options}
        self.error: BaseException | None = None
        self.handler: Callable[[FakeRecord], None] = self.handle
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        consumer: Any = self.consumer
        handler: Any = self.handler
        try:
            process(consumer, handler, **self.options)
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def hold(self, number: int, offset: int) -> threading.Event:
        return self.held.setdefault((number, offset), threading.Event())

    def handle(self, message: FakeRecord) -> None:
        place = (message.partition(), message.offset())
        self.began.append(place)
        if place in self.held:
            assert self.held[place].wait(WAIT_S)
        self.handled.append(place)

    def start(self) -> None:
        self.thread.start()

    def call(self, act: Callable[[], object]) -> None:
        """Let the group act on the polling thread, and wait for it."""
        done = threading.Event()
        self.consumer.script.extend([act, done.set])
        assert done.wait(WAIT_S)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def records(number: int, count: int, key: bytes | None = b"k") -> list[FakeRecord]:
    return [FakeRecord(number=number, at=at, its_key=key) for at in range(count)]


def test_records_of_a_partition_are_handled_in_order_and_partitions_side_by_side() -> None:
    group = Group(*records(0, 50), *records(1, 50))
    held = group.hold(0, 10)
    group.start()
    wait_until(lambda: (1, 49) in group.handled)
    assert (0, 10) in group.began
    assert (0, 11) not in group.began
    held.set()
    wait_until(lambda: len(group.handled) == 100)
    group.end()

    assert group.error is None
    assert [at for number, at in group.handled if number == 0] == list(range(50))
    assert group.consumer.stored == {("t", 0): 50, ("t", 1): 50}
    assert group.consumer.automatic


def test_keys_are_handled_side_by_side_and_offsets_wait_for_the_lowest() -> None:
    first = FakeRecord(at=0, its_key=b"slow")
    group = Group(first, *[FakeRecord(at=at, its_key=b"fast") for at in range(1, 20)], order="key")
    held = group.hold(0, 0)
    group.start()
    wait_until(lambda: len(group.handled) == 19)
    assert group.consumer.stored == {}
    held.set()
    wait_until(lambda: group.consumer.stored == {("t", 0): 20})
    group.end()


def test_revoked_partition_is_given_up_when_its_record_has_ended_and_others_go_on() -> None:
    group = Group(*records(0, 3), *records(1, 3))
    revoked: list[tuple[int, int | None]] = []
    group.consumer.callbacks.on_revoke = lambda _, partitions: revoked.extend(
        (one.partition, group.consumer.stored.get(("t", one.partition))) for one in partitions
    )
    held = group.hold(0, 1)
    group.start()
    wait_until(lambda: (0, 1) in group.began and len(group.handled) == 4)
    group.call(lambda: group.consumer.revoke(0, 2))
    assert group.consumer.given_up == {("t", 2): None}
    assert revoked == [(2, None)]
    group.consumer.script.extend([FakeRecord(number=1, at=3)])
    wait_until(lambda: (1, 3) in group.handled)
    held.set()
    wait_until(lambda: ("t", 0) in group.consumer.given_up)

    assert group.consumer.given_up["t", 0] == 2
    assert revoked == [(2, None), (0, 2)]
    assert (0, 2) not in group.began
    group.end()


def test_revoked_partition_is_given_up_after_the_limit_with_the_offset_before_its_record() -> None:
    group = Group(*records(0, 3), stop_timeout_ms=50)
    held = group.hold(0, 1)
    group.start()
    wait_until(lambda: (0, 1) in group.began)
    group.call(lambda: group.consumer.revoke(0))
    wait_until(lambda: ("t", 0) in group.consumer.given_up)
    assert group.consumer.given_up["t", 0] == 1
    assert group.consumer.warned == ["handler_takes_too_long"]
    held.set()
    group.end()
    assert group.consumer.stored["t", 0] == 1


def test_close_waits_for_the_records_in_progress() -> None:
    group = Group(*records(0, 2))
    held = group.hold(0, 0)
    group.start()
    wait_until(lambda: (0, 0) in group.began)
    group.consumer.is_closing = True
    threading.Timer(0.05, held.set).start()
    group.call(lambda: group.consumer.revoke(0))
    assert group.consumer.given_up["t", 0] == 1
    group.end()


def test_outcome_of_a_lost_record_does_not_count() -> None:
    group = Group(*records(0, 2))
    lost: list[int] = []
    group.consumer.callbacks.on_lost = lambda _, partitions: lost.extend(
        one.partition for one in partitions
    )
    held = group.hold(0, 0)
    group.start()
    wait_until(lambda: (0, 0) in group.began)
    group.call(lambda: group.consumer.lose(0))
    held.set()
    group.end()

    assert (lost, group.consumer.stored) == ([0], {})
    assert (0, 1) not in group.began
    assert group.consumer.warned == ["record_lost_while_handled"]


def test_failure_stops_processing_before_its_offset_and_others_end() -> None:
    group = Group(*records(0, 5), *records(1, 5))
    original = group.handle

    def handle(message: FakeRecord) -> None:
        if (message.partition(), message.offset()) == (0, 2):
            raise ValueError("no such account")
        original(message)

    group.handler = handle
    group.start()
    group.thread.join(WAIT_S)

    assert isinstance(group.error, ProcessingError)
    assert str(group.error) == "t[0] at offset 2 was not handled: ValueError('no such account')"
    assert isinstance(group.error.__cause__, ValueError)
    assert group.consumer.stored["t", 0] == 2
    assert ("t", 0, 2) in group.consumer.seeks
    assert (0, 3) not in group.began
    assert group.consumer.interceptor is None


@pytest.mark.parametrize(("failures", "is_skipped"), [(2, False), (3, True)])
def test_failed_record_is_tried_again_and_then_skipped(failures: int, *, is_skipped: bool) -> None:
    group = Group(*records(0, 2), on_error=Retry(attempts=3, backoff_ms=1, otherwise=Skip()))
    original, left = group.handle, [failures]

    def handle(message: FakeRecord) -> None:
        if message.offset() == 0 and left[0]:
            left[0] -= 1
            raise OSError("try again")
        original(message)

    group.handler = handle
    group.start()
    wait_until(lambda: group.consumer.stored.get(("t", 0)) == 2)
    group.end()

    assert group.handled == [(0, 1)] if is_skipped else [(0, 0), (0, 1)]
    assert group.consumer.warned == (["record_skipped"] if is_skipped else [])


def test_retry_that_waits_is_made_at_once_when_its_partition_is_revoked() -> None:
    group = Group(
        *records(0, 1), on_error=Retry(attempts=9, backoff_ms=60_000, backoff_max_ms=60_000)
    )
    original, attempts = group.handle, [0]

    def handle(message: FakeRecord) -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            raise OSError("try again")
        original(message)

    group.handler = handle
    group.start()
    wait_until(lambda: attempts == [1])
    group.call(lambda: group.consumer.revoke(0))
    wait_until(lambda: group.consumer.given_up == {("t", 0): 1})
    group.end()


def test_callable_decides_by_failure() -> None:
    seen: list[Failure] = []

    def on_error(failure: Failure) -> Skip | Stop:
        seen.append(failure)
        return Skip() if failure.message.offset() == 0 else Stop()

    group = Group(*records(0, 2), on_error=on_error)

    def handle(message: FakeRecord) -> None:
        raise LookupError(message.offset())

    group.handler = handle
    group.start()
    group.thread.join(WAIT_S)

    assert [(one.message.offset(), one.attempt) for one in seen] == [(0, 1), (1, 1)]
    assert isinstance(group.error, ProcessingError)
    assert group.consumer.stored == {("t", 0): 1}


def test_wrong_answer_of_on_error_stops_processing() -> None:
    group = Group(*records(0, 1), on_error=lambda _: "again")

    def handle(_: FakeRecord) -> None:
        raise LookupError

    group.handler = handle
    group.start()
    group.thread.join(WAIT_S)
    assert isinstance(group.error, ProcessingError)
    assert "result of on_error: got 'again', expected Retry(…)" in str(group.error)


def test_partition_at_its_limit_is_paused_and_resumed() -> None:
    group = Group(*records(0, 10), limits=Limits(records=100, partition_records=10))
    held = group.hold(0, 0)
    group.start()
    wait_until(lambda: group.consumer.paused == {("t", 0)})
    held.set()
    wait_until(lambda: not group.consumer.paused)
    group.end()


def test_pause_of_the_application_outlives_those_of_processing() -> None:
    limits = Limits(records=100, partition_records=10)
    group = Group(*records(0, 10), *records(1, 10), limits=limits)
    held = [group.hold(number, 0) for number in (0, 1)]
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    group.start()
    wait_until(lambda: group.consumer.paused == {("t", 0), ("t", 1)})
    group.call(lambda: group.consumer.pause([zero]))
    group.call(lambda: group.consumer.pause([one]))
    group.call(lambda: group.consumer.resume([one]))
    assert group.consumer.paused == {("t", 0), ("t", 1)}
    for event in held:
        event.set()
    wait_until(lambda: group.consumer.paused == {("t", 0)})
    group.end()
    assert group.consumer.paused == {("t", 0)}


def test_end_resumes_what_processing_has_paused_and_nothing_else() -> None:
    limits = Limits(records=100, partition_records=10)
    group = Group(*records(0, 10), *records(1, 10), limits=limits, stop_timeout_ms=50)
    held = [group.hold(number, 0) for number in (0, 1)]
    group.start()
    wait_until(lambda: group.consumer.paused == {("t", 0), ("t", 1)})
    group.call(lambda: group.consumer.pause([TopicPartition("t", 0)]))
    group.end()
    assert group.consumer.paused == {("t", 0)}
    for event in held:
        event.set()


def test_no_more_records_are_taken_than_the_limits_allow() -> None:
    group = Group(*records(0, 100), limits=Limits(records=10))
    held = group.hold(0, 0)
    group.start()
    wait_until(lambda: (0, 0) in group.began)
    time.sleep(0.05)  # time to take too many
    assert len(group.consumer.script) == 90
    held.set()
    wait_until(lambda: len(group.handled) == 100)
    group.end()


def test_exit_of_a_handler_stops_processing() -> None:
    group = Group(*records(0, 1))

    def handle(_: FakeRecord) -> None:
        raise SystemExit(3)

    group.handler = handle
    group.start()
    group.thread.join(WAIT_S)
    assert isinstance(group.error, ProcessingError)
    assert isinstance(group.error.__cause__, SystemExit)


def test_exception_of_a_callback_ends_processing_with_what_was_handled() -> None:
    group = Group(*records(0, 2))

    def fail() -> None:
        raise ZeroDivisionError

    group.start()
    wait_until(lambda: len(group.handled) == 2)
    group.consumer.script.append(fail)
    group.thread.join(WAIT_S)
    assert isinstance(group.error, ZeroDivisionError)
    assert group.consumer.stored == {("t", 0): 2}


def test_ctrl_c_leaves_commits_to_what_was_handled() -> None:
    """A record may have been on its way: a commit of positions would pass it."""
    group = Group()

    def interrupt() -> None:
        raise KeyboardInterrupt

    group.start()
    group.consumer.script.append(interrupt)
    group.thread.join(WAIT_S)
    assert isinstance(group.error, KeyboardInterrupt)
    assert not group.consumer.automatic


def test_processing_ends_when_the_consumer_is_closed() -> None:
    group = Group(*records(0, 2))
    group.start()
    wait_until(lambda: len(group.handled) == 2)
    group.consumer.is_closed = True
    group.thread.join(WAIT_S)
    assert group.error is None


def test_consumer_without_commits_is_refused() -> None:
    consumer: Any = FakeConsumer()
    consumer.interval_ms = None
    with pytest.raises(
        ConfigurationError, match=r"enable\.auto\.commit: got 'false', expected true"
    ):
        process(consumer, print)


def test_consumer_without_a_subscription_is_refused() -> None:
    """It would wait for ever."""
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    with (
        CooperativeConsumer(config) as consumer,
        pytest.raises(ConfigurationError, match="expected one that is subscribed"),
    ):
        process(consumer, print)
    with pytest.raises(ConfigurationError, match="expected one that is subscribed"):
        asyncio.run(process(AsyncCooperativeConsumer(config), asyncio.sleep))  # type: ignore[arg-type]


def test_consumer_is_processed_once_at_a_time() -> None:
    group = Group()
    group.start()
    wait_until(lambda: group.consumer.interceptor is not None)
    consumer: Any = group.consumer
    with pytest.raises(ConfigurationError, match="not processed already"):
        process(consumer, print)
    group.end()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: got 0, expected a whole number above 0"),
        ({"stop_timeout_ms": True}, "stop_timeout_ms: got True, expected a whole number above 0"),
        ({"order": "keys"}, "order: got 'keys', expected 'partition', 'key' or 'none'"),
        ({"on_error": "skip"}, "on_error: got 'skip', expected Retry"),
    ],
)
def test_wrong_argument_is_refused(options: dict[str, Any], message: str) -> None:
    consumer: Any = FakeConsumer()
    with pytest.raises(ConfigurationError) as caught:
        process(consumer, print, **options)
    assert str(caught.value).startswith(message)
    assert consumer.interceptor is None


def test_partition_whose_handler_never_ends_has_its_on_revoke_when_processing_stops() -> None:
    group = Group(*records(0, 2))
    revoked: list[int] = []
    group.consumer.callbacks.on_revoke = lambda _, partitions: revoked.extend(
        one.partition for one in partitions
    )
    held = group.hold(0, 0)
    consumer: Any = group.consumer
    handle: Any = group.handle
    timing = Timing(group.stop, 100, hands_over=True)
    scheduler = Scheduler("partition", Limits())
    processing = ThreadProcessing(consumer, handle, Stop(), scheduler, timing, 4)
    group.thread = threading.Thread(target=processing.run, daemon=True)
    group.start()
    wait_until(lambda: (0, 0) in group.began)
    group.end()
    assert sorted(revoked) == [0, 1, 2]
    assert group.consumer.given_up["t", 0] is None
    assert group.consumer.warned == ["handler_takes_too_long"]
    held.set()


def test_coroutine_of_a_handler_in_a_thread_does_not_count_as_handled() -> None:
    async def work(_: object) -> None: ...

    def call(function: Any, record: object) -> Any:  # noqa: ANN401
        return function(record)

    group = Group(*records(0, 1))
    group.handler = partial(call, work)
    group.start()
    group.thread.join(WAIT_S)
    assert isinstance(group.error, ProcessingError)
    assert "coroutines need an AsyncCooperativeConsumer" in str(group.error)
    assert group.consumer.stored == {}


def test_offsets_of_handled_records_are_committed_at_the_end() -> None:
    """The consumer has no position after the seek, so a later `close` commits nothing."""
    group = Group(*records(0, 900))
    original = group.handle

    def handle(message: FakeRecord) -> None:
        original(message)
        if message.offset() == 1:
            group.stop.set()
        if message.offset() >= 1:
            time.sleep(0.01)

    group.handler = handle
    group.start()
    group.thread.join(WAIT_S)
    count = len(group.handled)
    assert 2 <= count < 900
    assert group.consumer.committed == {("t", 0): count}
    assert group.consumer.seeks == [("t", 0, count)]
    assert group.consumer.automatic


def test_bytes_in_flight_pass_their_limit_by_one_record_at_most() -> None:
    large = [FakeRecord(at=at, its_value=bytes(1_000)) for at in range(100)]
    group = Group(*large, limits=Limits(bytes=10_500))
    held = group.hold(0, 0)
    group.start()
    wait_until(lambda: (0, 0) in group.began)
    time.sleep(0.05)  # time to take too many
    assert len(group.consumer.script) == 89
    held.set()
    wait_until(lambda: len(group.handled) == 100)
    group.end()
