"""Local stores that follow a compacted changelog topic, one store for each partition.

A store knows the changelog offset up to which it is complete. It follows the changelog as a warm-up
or a standby, or until an owner may continue from it. All methods belong to the polling thread.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rocksdict import Options, Rdict, WriteBatch

POSITION = b"position"  # other keys begin with "k"


class Store:
    """The values of one partition, complete up to `position` in the changelog."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = Rdict(str(path), Options(raw_mode=True))
        self.position = int(self._db.get(POSITION) or 0)
        self.close = self._db.close

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        value: bytes | None = self._db.get(b"k" + key)
        return value

    def write(self, values: Mapping[bytes, bytes], position: int) -> None:
        """Write values and position in one step: SIGKILL leaves both or neither."""
        batch = WriteBatch(raw_mode=True)
        for key, value in values.items():
            batch.put(b"k" + key, value)
        batch.put(POSITION, b"%d" % position)
        self._db.write(batch)
        self.position = position


class LocalStores(dict[int, Store]):
    """The open stores of a process, by partition."""

    def __init__(self, config: Mapping[str, Any], changelog: str, folder: Path) -> None:
        super().__init__()
        self._changelog, self._folder = changelog, folder
        self._admin = AdminClient({"bootstrap.servers": config["bootstrap.servers"]})
        own = {"enable.partition.eof": True, "fetch.wait.max.ms": 20, "fetch.queue.backoff.ms": 5}
        self.reader = Consumer({**config, **own, "auto.offset.reset": "earliest"})
        self._following: dict[int, int | None] = {}  # owned partitions: until this offset
        self._reading: set[int] = set()
        self._cold: set[int] = set()
        self._finished: set[int] = set()
        self._warm: set[int] = set()

    def __missing__(self, number: int) -> Store:
        """Open a store."""
        return self.setdefault(number, Store(self._folder / str(number)))

    def create_changelog(self, topic: str) -> None:
        """Create the changelog with as many partitions as a topic, if it does not exist."""
        count = len(self._admin.list_topics(topic, 10).topics[topic].partitions)
        new = NewTopic(self._changelog, count, config={"cleanup.policy": "compact"})
        try:
            self._admin.create_topics([new])[self._changelog].result()
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def find_nearly_complete(self, lag_max: int, limit_s: float) -> set[int]:
        """Return the partitions that are complete on disk, after at most `limit_s` of reading."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ends = self._ends(int(path.name) for path in self._folder.iterdir())
        near = [number for number, end in ends.items() if end - self[number].position <= lag_max]
        return set(near) - self.complete(near, limit_s)

    def complete(self, numbers: Iterable[int], limit_s: float) -> set[int]:
        """Read stores up to the present end of the changelog; return those that take longer.

        `follow` continues with these, and returns each of them when it is complete.
        """
        ends = self._ends(numbers)
        for number, end in ends.items():
            if self[number].position >= end:
                self._following.pop(number, None)
            else:
                self._following[number] = end
        self._cold -= ends.keys()
        self._choose()
        until_s = time.monotonic() + limit_s
        while ends.keys() & self._following.keys() and time.monotonic() < until_s:
            self._read(0.01)
        self._finished -= ends.keys()
        return ends.keys() & self._following.keys()

    def keep_warm(self, numbers: Iterable[int]) -> None:
        """Follow the changelog until `cool`; `follow` tells when a store has reached the end."""
        for number in numbers:
            self._following[number] = None
            self._cold.add(number)
        self._choose()

    def cool(self, numbers: Iterable[int]) -> None:
        """Close stores; their files stay."""
        for number in numbers:
            self._following.pop(number, None)
            for some in (self._cold, self._finished, self._warm):
                some.discard(number)
        self._choose()
        for number in numbers:
            if number in self:
                self.pop(number).close()

    def follow(self) -> tuple[set[int], set[int]]:
        """Write new changes into the stores.

        Returns:
            The partitions that `complete` has finished late, and warm-ups that reached the end.
        """
        self._read(0)
        finished, warm = self._finished, self._warm
        self._finished, self._warm = set(), set()
        return finished, warm

    def _read(self, timeout_s: float) -> None:
        changes: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        positions: dict[int, int] = {}
        at_end = set()
        messages: list[Any] = self.reader.consume(5_000, timeout_s)
        for message in messages:
            number, error = message.partition(), message.error()
            if error is None:
                changes[number][message.key()] = message.value()
                positions[number] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                positions[number] = message.offset()  # behind the marker of the last transaction
                at_end.add(number)
        for number in positions.keys() & self._reading:
            self[number].write(changes[number], positions[number])
            until = self._following[number]
            if until is None and number in at_end & self._cold:
                self._cold.remove(number)
                self._warm.add(number)
            elif until is not None and positions[number] >= until:
                del self._following[number]  # from now on the owner writes
                self._finished.add(number)
        self._choose()

    def _choose(self) -> None:
        """Read the changelogs of owned partitions first; warm-ups and standbys wait meanwhile."""
        owned = {number for number, until in self._following.items() if until is not None}
        wanted = owned or set(self._following)
        gone, new = self._reading - wanted, wanted - self._reading
        if gone:
            self.reader.incremental_unassign([Partition(self._changelog, n) for n in gone])
        if new:
            starts = [Partition(self._changelog, n, self[n].position) for n in new]
            self.reader.incremental_assign(starts)
        self._reading = wanted

    def _ends(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the ends of changelog partitions, including open transactions."""
        latest = {Partition(self._changelog, number): OffsetSpec.latest() for number in numbers}
        found = self._admin.list_offsets(latest, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {one.partition: answer.result().offset for one, answer in found.items()}
