"""`process` and `run`: the front of `coopgroup.processing`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import Message

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.processing.failures import OnError, Stop, check_on_error
from coopgroup.processing.running import stop_at_signals
from coopgroup.processing.scheduler import Limits, Order, Scheduler
from coopgroup.processing.threads import StopSignal, ThreadProcessing, Timing

__all__ = ["process", "run"]

DEFAULT_LIMITS: Final = Limits()
STOP: Final = Stop()


def process(
    consumer: CooperativeConsumer,
    handle: Callable[[Message], object],
    *,
    order: Order = "partition",
    workers: int = 8,
    limits: Limits = DEFAULT_LIMITS,
    on_error: OnError = STOP,
    stop: StopSignal | None = None,
    stop_timeout_ms: int = 30_000,
) -> None:
    """Handle the records of a subscribed consumer in worker threads.

    The calling thread goes on polling, so a slow handler never costs the membership. An offset is
    committed only when it and all earlier ones of its partition have been handled: after a crash
    each record is handled at least once. If a partition is given up, its records in flight end
    first; all other partitions go on. The consumer's callbacks run on the calling thread, and
    `on_revoke` runs for a partition after its records in flight have ended.

    Args:
        consumer: a subscribed consumer with `enable.auto.commit`, the default. Nothing else may
            poll it meanwhile.
        handle: called with each record, in any of the worker threads. What it returns is ignored.
        order: records that are handled one after the other: those of a "partition", those of a
            "key" within a partition, or "none". Records without a key have no order with "key".
        workers: number of threads, and so of records that are handled side by side.
        limits: how many records and bytes may be in flight.
        on_error: what happens to a record whose handler raised an exception: `Stop()`, `Skip()`,
            `Retry(…)`, `DeadLetter(producer, topic)`, or a callable that gets the `Failure` and
            returns one of these.
        stop: set it to end processing; such as a `threading.Event`.
        stop_timeout_ms: how long records in flight may take to end, when a partition is given up
            and when processing ends. A thread cannot be interrupted: later than this its record
            may be handled again elsewhere while it still runs here.

    Raises:
        ConfigurationError: an argument is wrong, or the consumer does not commit by itself.
        ProcessingError: a record was not handled; its cause is the exception of the handler.
        KafkaException: the group refused this member permanently, or a partition failed.
    """
    _process(
        consumer,
        handle,
        Scheduler(order, limits),
        _checked("workers", workers),
        on_error,
        Timing(stop, _checked("stop_timeout_ms", stop_timeout_ms), hands_over=False),
    )


def run(
    consumer: CooperativeConsumer,
    topics: list[str],
    handle: Callable[[Message], object],
    *,
    order: Order = "partition",
    workers: int = 8,
    limits: Limits = DEFAULT_LIMITS,
    on_error: OnError = STOP,
    stop_timeout_ms: int = 25_000,
) -> None:
    """Subscribe, handle records, and end properly at SIGTERM or Ctrl-C.

    At the signal, records continue until the group has taken over all partitions. Then records in
    flight end, their offsets are committed, and the consumer is closed. A second signal acts as if
    no handler was installed. Call this in the main thread.

    Args:
        consumer: a new consumer with `enable.auto.commit`, the default; it is closed at the end.
        topics: as for `CooperativeConsumer.subscribe`.
        handle: as for `process`.
        order: as for `process`.
        workers: as for `process`.
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
    scheduler = Scheduler(order, limits)
    timing = Timing(stop, _checked("stop_timeout_ms", stop_timeout_ms), hands_over=True)
    _checked("workers", workers)
    with consumer, stop_at_signals(stop.set):
        consumer.subscribe(topics)
        _process(consumer, handle, scheduler, workers, on_error, timing)


def _process(
    consumer: CooperativeConsumer,
    handle: Callable[[Message], object],
    scheduler: Scheduler,
    workers: int,
    on_error: OnError,
    timing: Timing,
) -> None:
    if not callable(handle):
        raise ConfigurationError("handle", handle, "a callable that takes a record")
    check_on_error(on_error)
    ThreadProcessing(consumer, handle, on_error, scheduler, timing, workers).run()


def _checked(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(name, value, "a whole number above 0")
    return value
