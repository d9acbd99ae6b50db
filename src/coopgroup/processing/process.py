"""`process` and `run`: the front of `coopgroup.processing`."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, overload

from confluent_kafka import Message

from coopgroup.aio.consumer import AsyncCooperativeConsumer
from coopgroup.aio.records import ConsumerRecord
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.processing.failures import OnError, Stop, check_count, check_on_error
from coopgroup.processing.running import StopSignal, Timing, stop_at_signals
from coopgroup.processing.scheduler import Limits, Order, Scheduler
from coopgroup.processing.tasks import TaskProcessing
from coopgroup.processing.threads import ThreadProcessing

DEFAULT_LIMITS: Final = Limits()
STOP: Final = Stop()
_WORKERS: Final = 8
_CONCURRENCY: Final = 32
_SUBSCRIBED: Final = "one that is subscribed: call its subscribe before"


@overload
def process(
    consumer: CooperativeConsumer,
    handle: Callable[[Message], object],
    *,
    order: Order = "partition",
    workers: int = _WORKERS,
    limits: Limits = DEFAULT_LIMITS,
    on_error: OnError = STOP,
    stop: StopSignal | None = None,
    stop_timeout_ms: int = 30_000,
) -> None: ...


@overload
def process(
    consumer: AsyncCooperativeConsumer,
    handle: Callable[[ConsumerRecord], Awaitable[object]],
    *,
    order: Order = "partition",
    concurrency: int = _CONCURRENCY,
    limits: Limits = DEFAULT_LIMITS,
    on_error: OnError = STOP,
    stop: StopSignal | None = None,
    stop_timeout_ms: int = 30_000,
) -> Coroutine[Any, Any, None]: ...


def process(  # noqa: PLR0913  (the options of a whole pipeline)
    consumer: CooperativeConsumer | AsyncCooperativeConsumer,
    handle: Callable[[Any], object],
    *,
    order: Order = "partition",
    workers: int | None = None,
    concurrency: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    on_error: OnError = STOP,
    stop: StopSignal | None = None,
    stop_timeout_ms: int = 30_000,
) -> Coroutine[Any, Any, None] | None:
    """Handle the records of a subscribed consumer side by side.

    With a `CooperativeConsumer` handlers run in threads, and the calling thread goes on polling.
    With an `AsyncCooperativeConsumer` handlers are coroutines on its loop, and the result must be
    awaited. A slow handler never costs the membership. An offset is committed only when it and all
    earlier ones of its partition have been handled: after a crash each record is handled at least
    once. If a partition is given up, its records in flight end first; all other partitions go on.
    `on_revoke` runs for a partition after its records in flight have ended.

    Args:
        consumer: a subscribed consumer with `enable.auto.commit`, the default. Nothing else may
            poll it meanwhile.
        handle: called with each record: a `confluent_kafka.Message` in a thread, or a
            `ConsumerRecord` on the loop. What it returns is ignored, apart from awaiting it.
        order: records that are handled one after the other: those of a "partition", those of a
            "key" within a partition, or "none". Records without a key have no order with "key".
        workers: number of threads, and so of records that are handled side by side; 8 by default.
        concurrency: the same on a loop; 32 by default.
        limits: how many records and bytes may be in flight.
        on_error: what happens to a record whose handler raised an exception: `Stop()`, `Skip()`,
            `Retry(…)`, `DeadLetter(producer, topic)`, or a callable that gets the `Failure` and
            returns one of these.
        stop: set it to end processing; such as a `threading.Event` or `asyncio.Event`.
        stop_timeout_ms: how long records in flight may take to end, when a partition is given up
            and when processing ends. After that a coroutine is cancelled. A thread cannot be
            interrupted: its record may be handled again elsewhere while it still runs here.

    Raises:
        ConfigurationError: an argument is wrong, or the consumer is not subscribed, or does not
            commit by itself.
        ProcessingError: a record was not handled; its cause is the exception of the handler.
        KafkaException: the group refused this member permanently, or a partition failed.
    """
    timing = Timing(stop, stop_timeout_ms, hands_over=False)
    counts = {"workers": workers, "concurrency": concurrency}
    return _process(consumer, handle, Scheduler(order, limits), counts, on_error, timing)


def run(  # noqa: PLR0913  (the options of a whole pipeline)
    consumer: CooperativeConsumer | AsyncCooperativeConsumer,
    topics: list[str],
    handle: Callable[[Any], object],
    *,
    order: Order = "partition",
    workers: int | None = None,
    concurrency: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    on_error: OnError = STOP,
    stop_timeout_ms: int = 25_000,
) -> None:
    """Subscribe, handle records, and end properly at SIGTERM or Ctrl-C.

    At the signal, records continue until the group has taken over all partitions. With
    `group.protocol=consumer` they do not, because no leader moves the partitions. Then records in
    flight end, their offsets are committed, and the consumer is closed. A second signal acts as if
    no handler was installed. Call this in the main thread. With an `AsyncCooperativeConsumer` it
    runs an event loop of its own.

    Args:
        consumer: a new consumer with `enable.auto.commit`, the default; it is closed at the end.
        topics: as for `subscribe`.
        handle: as for `process`.
        order: as for `process`.
        workers: as for `process`.
        concurrency: as for `process`.
        limits: as for `process`.
        on_error: as for `process`.
        stop_timeout_ms: how long everything after the signal may take. Keep it below the time
            after which the process is killed, `terminationGracePeriodSeconds` on Kubernetes.

    Raises:
        ConfigurationError: an argument is wrong, or this is not the main thread.
        ProcessingError: as for `process`.
        KafkaException: as for `process`.
    """
    stop = threading.Event()
    has_leader = consumer._settings.member.has_leader  # noqa: SLF001  (both are coopgroup's)
    timing = Timing(stop, stop_timeout_ms, hands_over=has_leader)
    counts = {"workers": workers, "concurrency": concurrency}
    scheduler = Scheduler(order, limits)
    begin = partial(_process, consumer, handle, scheduler, counts, on_error, timing)
    if isinstance(consumer, AsyncCooperativeConsumer):
        with stop_at_signals(stop.set):
            asyncio.run(_run(consumer, topics, begin))
        return
    with stop_at_signals(stop.set), consumer:  # the first signal does not interrupt the close
        consumer.subscribe(topics)
        begin()


async def _run(
    consumer: AsyncCooperativeConsumer,
    topics: list[str],
    begin: Callable[[], Coroutine[Any, Any, None] | None],
) -> None:
    consumer.subscribe(topics)
    async with consumer:
        processing = begin()
        assert processing is not None
        await processing


def _process(
    consumer: CooperativeConsumer | AsyncCooperativeConsumer,
    handle: Callable[[Any], object],
    scheduler: Scheduler,
    counts: dict[str, int | None],
    on_error: OnError,
    timing: Timing,
) -> Coroutine[Any, Any, None] | None:
    is_async = isinstance(consumer, AsyncCooperativeConsumer)
    wanted, other = ("concurrency", "workers") if is_async else ("workers", "concurrency")
    if counts[other] is not None:
        raise ConfigurationError(
            other, counts[other], f"no such option for this consumer: use {wanted}"
        )
    usual = _CONCURRENCY if is_async else _WORKERS
    count = usual if (given := counts[wanted]) is None else given
    check_count(wanted, count)
    if not callable(handle):
        raise ConfigurationError("handle", handle, "a callable that takes a record")
    check_on_error(on_error)
    if isinstance(consumer, AsyncCooperativeConsumer):
        if not consumer.subscription():
            raise ConfigurationError("consumer", consumer, _SUBSCRIBED)
        return TaskProcessing(consumer, handle, on_error, scheduler, timing, count).run()
    if inspect.iscoroutinefunction(handle):
        raise ConfigurationError(
            "handle", handle, "a plain function: coroutines need an AsyncCooperativeConsumer"
        )
    if consumer._parts.subscription.is_empty:  # noqa: SLF001  (both are coopgroup's)
        raise ConfigurationError("consumer", consumer, _SUBSCRIBED)
    ThreadProcessing(consumer, handle, on_error, scheduler, timing, count).run()
    return None
