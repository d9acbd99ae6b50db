"""One process of `examples/stateful_counts` in the benchmark `stateful`.

It runs the example itself. It also writes each counted record into a log of the trial harness, and
limits how many changelog records it reads per second, so that a restore takes seconds.

It writes the line `ready`, and begins when it reads a line. Arguments: path of the log, changelog
records per second, then the arguments of the example.
"""

from __future__ import annotations

import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, cast

from attrs import define, field
from confluent_kafka import Message, TopicPartition

from coopgroup import CooperativeConsumer
from examples.stateful_counts.counts import Counts, arguments
from tests.lab.recording import RowLog
from tests.lab.worker import has_ended

PRODUCED: Final = struct.Struct("<q")
PARENT_CHECK_S: Final = 0.2
BURST_S: Final = 0.25


@define
class PacedReader:
    """A consumer that returns at most `rate` messages per second."""

    consumer: Any
    rate: float
    _allowed: float = 0.0
    _at_s: float = field(factory=time.monotonic)

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Return the messages that are due."""
        now = time.monotonic()
        more = (now - self._at_s) * self.rate
        self._allowed, self._at_s = min(self._allowed + more, BURST_S * self.rate), now
        if self._allowed < 1:
            return []
        messages: list[Message] = self.consumer.consume(min(count, int(self._allowed)), timeout)
        self._allowed -= sum(message.error() is None for message in messages)
        return messages

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the consumer has
        return getattr(self.consumer, name)


class Recorded(Counts):
    """The example, with a log."""

    def __init__(self, line: list[str], log_path: Path) -> None:
        super().__init__(arguments(line))
        self._rows = RowLog(log_path)
        self._spells: dict[int, int] = {}

    def count(self, messages: list[Message]) -> None:
        super().count(messages)
        at_ns = time.monotonic_ns()
        for message in [] if self.again else messages:
            number, offset, value = message.partition(), message.offset(), message.value()
            if number is not None and offset is not None and value is not None:
                (produced_ns,) = PRODUCED.unpack_from(value)
                self._rows.append(at_ns, produced_ns, offset, number, self._spells[number])

    def _assign(self, consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._spells[one.partition] = self._spells.get(one.partition, 0) + 1
        super()._assign(consumer, partitions)


def main() -> None:
    """Run the example until told to end."""
    ends, hands_over = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    signal.signal(signal.SIGUSR1, lambda *_: hands_over.set())
    counts = Recorded(sys.argv[3:], Path(sys.argv[1]))
    counts.stores.reader = cast("Any", PacedReader(counts.stores.reader, float(sys.argv[2])))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()  # a new interpreter uses a core for a moment: not in a measured window
    threading.Thread(target=_end_with_parent, args=(ends,), daemon=True).start()
    counts.run(ends, hands_over)


def _end_with_parent(ends: threading.Event) -> None:
    while not has_ended(sys.stdin.fileno()):
        time.sleep(PARENT_CHECK_S)
    ends.set()


if __name__ == "__main__":
    main()
