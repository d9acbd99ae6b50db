"""The producer of a trial: first a backlog, then a constant rate into every partition.

Run as `python -m tests.lab.producer` with a `ProducerSpec` as the first line of
standard input. It writes the backlog, waits for the line `go`, then produces one record into each
partition per tick. It ends when standard input ends, after every record was acknowledged.

A record carries the moment of its production, on the clock that all processes share. This separates
waits from the production rate. A late tick is not made up: the rate is constant, not the sum.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.lab.recording import RowLog
from tests.lab.spec import ProducerSpec, load_spec
from tests.lab.worker import has_ended

FLUSH_S: Final = 30.0
QUEUE_WAIT_S: Final = 0.05
VALUE_BYTES: Final = 64
HEAD: Final = struct.Struct("<qq")  # moment of production, running number


class PacedProducer:
    """Produces records and logs the broker's acknowledgements."""

    def __init__(self, spec: ProducerSpec) -> None:
        self._spec = spec
        self._rows = RowLog(Path(f"{spec.log_path}.records"))
        self._padding = bytes(VALUE_BYTES - HEAD.size)
        self._count = 0
        self._counts = [0] * (len(spec.topics) * spec.partitions_per_topic)
        self._refused = 0
        self._producer = Producer(
            {
                **spec.client_config,
                "linger.ms": 1,
                "acks": "all",
                "max.in.flight.requests.per.connection": 1,  # order without idempotence
            }
        )

    def run(self, is_ended: Callable[[], bool]) -> None:
        """Produce at the specified rate until `is_ended`, then wait for answers."""
        interval_ns = round(1e9 / self._spec.rate_per_partition)
        partitions = range(len(self._spec.topics) * self._spec.partitions_per_topic)
        next_ns = time.monotonic_ns()
        while not is_ended():
            for partition in partitions:
                self._produce(partition)
            next_ns = max(next_ns + interval_ns, time.monotonic_ns() - interval_ns)
            self._producer.poll(max(0, next_ns - time.monotonic_ns()) / 1e9)
            while (rest_ns := next_ns - time.monotonic_ns()) > 0:  # poll returns at an answer
                self._producer.poll(rest_ns / 1e9)
        self.flush()
        self._rows.close()

    def write_backlog(self) -> None:
        """Write the backlog and wait until it is acknowledged."""
        for partition, count in enumerate(self._spec.backlog):
            for _ in range(count):
                self._produce(partition)
        self.flush()

    def flush(self) -> None:
        """Wait for all answers.

        Raises:
            RuntimeError: records were refused or not acknowledged in time.
        """
        left = self._producer.flush(FLUSH_S)
        if left or self._refused:
            raise RuntimeError(f"{left} records not acknowledged, {self._refused} refused")

    def _produce(self, partition: int) -> None:
        topic_index, number = divmod(partition, self._spec.partitions_per_topic)
        produced_ns = time.monotonic_ns()
        self._count += 1

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._refused += 1
                return
            self._rows.append(time.monotonic_ns(), produced_ns, offset, partition)

        value = HEAD.pack(produced_ns, self._count) + self._padding
        key = self._next_key(partition)
        while True:
            try:
                self._producer.produce(
                    self._spec.topics[topic_index],
                    value,
                    key,
                    partition=number,
                    on_delivery=on_delivery,
                )
            except BufferError:
                self._producer.poll(QUEUE_WAIT_S)
            else:
                return

    def _next_key(self, partition: int) -> str | None:
        if not self._spec.keys:
            return None
        key = self._counts[partition] % self._spec.keys
        self._counts[partition] += 1
        return f"{partition}-{key}"


def main() -> None:
    """Run the producer with the specification from standard input."""
    producer = PacedProducer(load_spec(ProducerSpec, sys.stdin.readline()))
    producer.write_backlog()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.readline().strip() == "go":
        producer.run(lambda: has_ended(sys.stdin.fileno()))


if __name__ == "__main__":
    main()
