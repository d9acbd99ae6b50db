"""A member of a group of `coopgroup demo`, in a process of its own.

It joins at a line on standard input, so the start of an interpreter is no part of the story. It
closes at SIGTERM, and at the end of standard input, because it must not survive the demonstration.

It writes a row for each record that `poll` returns, and for each partition in a callback. A written
row survives the process, which may be killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from coopgroup.kafka.consumer import CooperativeConsumer

ROW: Final = np.dtype("<i8, <i8, <i8, <i4, <i4")
ROW.names = ("at_ns", "produced_ns", "offset", "partition", "spell")
"""A record that the application got. `spell` counts the assignments of the partition to the
process. A negative `offset` is one of the marks below."""
ASSIGNED: Final = -1
REVOKED: Final = -2
LOST: Final = -3
PRODUCED: Final = struct.Struct("<q")
"""The value of a record: the time of its production."""
_PACKED: Final = struct.Struct("<qqqii")
_POLL_S: Final = 0.05


def main(topic: str, log: str, config: str, policy: str) -> None:
    """Run a member of our group with a policy, or of an eager group without one ("null")."""
    rows = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    spells: Counter[int] = Counter()
    closing = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: closing.set())

    def write(offset: int, partition: int, produced_ns: int = 0) -> None:
        row = (time.monotonic_ns(), produced_ns, offset, partition, spells[partition])
        os.write(rows, _PACKED.pack(*row))

    def marker(mark: int) -> Callable[[object, list[TopicPartition]], None]:
        def note(_consumer: object, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                spells[one.partition] += mark == ASSIGNED
                write(mark, one.partition)

        return note

    if not sys.stdin.readline():
        return
    settings, chosen = json.loads(config), json.loads(policy)
    consumer: Any = CooperativeConsumer(settings, policy=chosen) if chosen else Consumer(settings)
    consumer.subscribe(
        [topic], on_assign=marker(ASSIGNED), on_revoke=marker(REVOKED), on_lost=marker(LOST)
    )
    while not closing.is_set() and not select.select([sys.stdin], [], [], 0)[0]:
        message = consumer.poll(_POLL_S)
        if message is not None and message.error() is None:
            write(message.offset(), message.partition(), PRODUCED.unpack(message.value())[0])
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
