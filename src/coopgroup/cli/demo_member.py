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
import time
from contextlib import suppress
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coopgroup import policies
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
_COMMIT_S: Final = 1.0


class _Member:
    def __init__(self, topic: str, log: str) -> None:
        self._topic = topic
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._positions: dict[int, int] = {}
        self._spells: dict[int, int] = {}
        self._is_closing = False

    def close(self, *_: object) -> None:
        self._is_closing = True

    def run(self, consumer: Any) -> None:  # noqa: ANN401 - of two kinds
        consumer.subscribe(
            [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )
        due_s = time.monotonic() + _COMMIT_S
        while not self._is_closing and not select.select([sys.stdin], [], [], 0)[0]:
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                produced_ns = PRODUCED.unpack(message.value())[0]
                self._write(message.offset(), message.partition(), produced_ns)
                self._positions[message.partition()] = message.offset() + 1
            if time.monotonic() >= due_s:
                self._commit(consumer, list(self._positions))
                due_s = time.monotonic() + _COMMIT_S
        consumer.close()

    def _write(self, offset: int, partition: int, produced_ns: int = 0) -> None:
        spell = self._spells.get(partition, 0)
        row = (time.monotonic_ns(), produced_ns, offset, partition, spell)
        os.write(self._log, _PACKED.pack(*row))

    def _commit(self, consumer: Any, partitions: list[int]) -> None:  # noqa: ANN401 - as above
        read = [one for one in partitions if one in self._positions]
        offsets = [TopicPartition(self._topic, one, self._positions[one]) for one in read]
        if offsets:
            with suppress(KafkaException):  # the next owner gets these records again
                consumer.commit(offsets=offsets, asynchronous=False)

    def _assign(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._spells[one.partition] = self._spells.get(one.partition, 0) + 1
        self._mark(partitions, ASSIGNED)

    def _revoke(self, consumer: object, partitions: list[TopicPartition]) -> None:
        self._commit(consumer, [one.partition for one in partitions])
        self._mark(partitions, REVOKED)

    def _lose(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        self._mark(partitions, LOST)

    def _mark(self, partitions: list[TopicPartition], mark: int) -> None:
        for one in partitions:
            self._positions.pop(one.partition, None)
            self._write(mark, one.partition)


def main(topic: str, log: str, config: str, policy: str = "", arguments: str = "") -> None:
    """Run a member of our group with a policy, or of an eager group without one."""
    member = _Member(topic, log)
    signal.signal(signal.SIGTERM, member.close)
    if sys.stdin.readline():
        settings = json.loads(config)
        if policy:
            made = getattr(policies, policy)(**json.loads(arguments))
            member.run(CooperativeConsumer(settings, policy=made))
        else:
            member.run(Consumer(settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
