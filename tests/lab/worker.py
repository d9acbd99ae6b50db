"""A member of the group under trial: one process, one consumer, one loop.

Run as `python -m tests.lab.worker` with a `WorkerSpec` as the first line of standard
input. It imports everything, writes the event `ready`, and joins at the line `go`. The start of an
interpreter is therefore never part of a measurement. It closes on SIGTERM and at the end of its
standard input, because a worker must not survive its controller. On SIGUSR1 it retires: it hands
over first if its consumer can (`hand_over`), and closes when it owns no partitions.

The application polls, logs each record, and commits its positions synchronously once a second. On
revocation it commits the positions of the revoked partitions. Lost partitions are not committed. A
record counts as handed out when `poll` returns it.
"""

from __future__ import annotations

import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from confluent_kafka import KafkaException, Message, TopicPartition

from tests.lab.consumers import AnyConsumer, build_consumer, load_code
from tests.lab.recording import EventLog, RowLog
from tests.lab.spec import WorkerSpec, load_spec, speaks_kip_848

POLL_S: Final = 0.05
PARENT_CHECK_S: Final = 0.2
HAND_OVER_S_MAX: Final = 10.0
PRODUCED: Final = struct.Struct("<q")


class Worker:
    """The application around one consumer."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._rows = RowLog(Path(f"{spec.log_path}.records"))
        self._events = EventLog(Path(f"{spec.log_path}.events"))
        self._positions: dict[int, int] = {}
        self._spells: dict[int, int] = {}
        self._first_partition = {
            topic: index * spec.partitions_per_topic for index, topic in enumerate(spec.topics)
        }
        self._is_closing = False
        self._is_retiring = False

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Leave the loop after the current record: the handler of SIGTERM."""
        self._is_closing = True

    def retire(self, _signal: int, _frame: FrameType | None) -> None:
        """Leave permanently after the current record: the handler of SIGUSR1."""
        self._is_retiring = True
        self._is_closing = True

    def run(self) -> None:
        """Announce readiness, wait for `go`, consume until told to stop, close."""
        consumer = build_consumer(self._spec) if self._waits_for_go() else None
        if consumer is None:
            return
        self._events.write("started")
        consumer.subscribe(
            list(self._spec.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._consume(consumer, lambda: self._is_closing)
        if self._is_retiring:
            self._hand_over(consumer)
        self._events.write("closing")
        consumer.close()
        self._events.write("closed")
        self._rows.close()
        self._events.close()

    # --- loop -----------------------------------------------------------------------------------

    def _waits_for_go(self) -> bool:
        load_code(self._spec)
        self._events.write("ready")
        return sys.stdin.readline().strip() == "go"

    def _hand_over(self, consumer: AnyConsumer) -> None:
        """Continue until the group has taken over all partitions; skip this if not supported."""
        hand_over = getattr(consumer, "hand_over", None)
        if hand_over is None or speaks_kip_848(self._spec.kind):
            return
        self._is_closing = False
        self._events.write("handing_over")
        hand_over()
        deadline = time.monotonic() + HAND_OVER_S_MAX
        self._consume(
            consumer,
            lambda: self._is_closing or not consumer.assignment() or time.monotonic() > deadline,
        )

    def _consume(self, consumer: AnyConsumer, is_over: Callable[[], bool]) -> None:
        interval_s = self._spec.commit_interval_ms / 1000
        next_commit = time.monotonic() + interval_s
        next_check = time.monotonic() + PARENT_CHECK_S
        while not is_over():
            message = consumer.poll(POLL_S)
            if message is not None:
                self._write_down(message)
            now = time.monotonic()
            if interval_s and now >= next_commit:
                self._commit(consumer, sorted(self._positions))
                next_commit = time.monotonic() + interval_s
            if now >= next_check:
                self._is_closing = self._is_closing or has_ended(sys.stdin.fileno())
                next_check = now + PARENT_CHECK_S

    def _write_down(self, message: Message) -> None:
        at_ns = time.monotonic_ns()
        error = message.error()
        if error is not None:
            self._events.write("consumer_error", error=str(error))
            return
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if topic is None or number is None or offset is None:
            raise AssertionError("a record without an error has a topic, partition and offset")
        value = message.value() or b""
        produced_ns: int = PRODUCED.unpack_from(value)[0] if len(value) >= PRODUCED.size else 0
        partition = self._first_partition[topic] + number
        self._rows.append(at_ns, produced_ns, offset, partition, self._spells.get(partition, 0))
        self._positions[partition] = offset + 1

    # --- commits --------------------------------------------------------------------------------

    def _commit(self, consumer: AnyConsumer, partitions: Sequence[int]) -> None:
        positions = {
            partition: self._positions[partition]
            for partition in partitions
            if partition in self._positions
        }
        if not positions:
            return
        began = time.monotonic()
        reason = self._commit_positions(consumer, positions)
        outcome = "committed" if reason is None else "commit_failed"
        self._events.write(
            outcome,
            took_ms=round((time.monotonic() - began) * 1000, 1),
            positions=sorted(positions.items()),
            reason=reason,
        )

    def _commit_positions(self, consumer: AnyConsumer, positions: dict[int, int]) -> str | None:
        offsets = [self._topic_partition(*item) for item in sorted(positions.items())]
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            return str(error)
        errors = [
            str(answer.error)
            for answer in (answers if isinstance(answers, list) else [])
            if isinstance(answer, TopicPartition) and answer.error is not None
        ]
        return errors[0] if errors else None

    def _topic_partition(self, partition: int, offset: int) -> TopicPartition:
        topic_index, number = divmod(partition, self._spec.partitions_per_topic)
        return TopicPartition(self._spec.topics[topic_index], number, offset)

    # --- callbacks ------------------------------------------------------------------------------

    def _on_assign(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        numbers = self._numbers(partitions)
        for number in numbers:
            self._spells[number] = self._spells.get(number, 0) + 1
            self._positions.pop(number, None)  # later owners have committed new positions
        self._events.write("assigned", partitions=numbers)

    def _on_revoke(self, consumer: AnyConsumer, partitions: list[TopicPartition]) -> None:
        numbers = self._numbers(partitions)
        self._events.write("revoking", partitions=numbers)
        self._commit(consumer, numbers)
        for number in numbers:
            self._positions.pop(number, None)
        self._events.write("revoked", partitions=numbers)

    def _on_lost(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        numbers = self._numbers(partitions)
        for number in numbers:
            self._positions.pop(number, None)
        self._events.write("lost", partitions=numbers)

    def _numbers(self, partitions: list[TopicPartition]) -> list[int]:
        return sorted(self._first_partition[part.topic] + part.partition for part in partitions)


def has_ended(descriptor: int) -> bool:
    """Return whether the other end of a pipe is closed; reads no data."""
    readable, _, _ = select.select([descriptor], [], [], 0)
    return bool(readable)


def main() -> None:
    """Run the worker with the specification from standard input."""
    worker = Worker(load_spec(WorkerSpec, sys.stdin.readline()))
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGUSR1, worker.retire)
    worker.run()


if __name__ == "__main__":
    main()
