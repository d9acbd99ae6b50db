"""Joins orders with their payments: both have the number of the order as key.

    python examples/paid_orders.py --bootstrap localhost:9092 --group paid

Start as many as you like. An order and its payment have the same key. If both topics have the same
number of partitions, and their producers the same partitioner, the two are in partitions of one
number, and `co_partition` gives these to one process. A record waits in memory for its partner, and
nothing behind it is committed. So a new owner reads it again, and no pair is lost.
"""

from __future__ import annotations

import argparse
import signal
from typing import Any

from confluent_kafka import Message, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.policies import SimplePolicy, Warmup

ORDERS, PAYMENTS = "orders", "payments"
COMMIT_EVERY = 20  # batches


class Join:
    """The records of the owned partitions that are not committed yet.

    A record and its partner are committed together. If one of a pair were read again alone, it
    would wait for ever.
    """

    def __init__(self) -> None:
        """Begin without partitions."""
        self._waiting: dict[tuple[str, int], dict[bytes, Message]] = {}
        self._pairs: dict[int, list[dict[str, int]]] = {}  # offsets by topic, of each partition
        self._next: dict[tuple[str, int], int] = {}

    def add(self, record: Message) -> None:
        """Print the pair of an order and its payment if the partner waits; else wait."""
        topic, index, key = record.topic() or "", record.partition() or 0, record.key() or b""
        self._next[topic, index] = (record.offset() or 0) + 1
        other = PAYMENTS if topic == ORDERS else ORDERS
        partner = self._waiting.get((other, index), {}).pop(key, None)
        if partner is None:
            self._waiting.setdefault((topic, index), {})[key] = record
            return
        pair = {topic: record, other: partner}
        offsets = {name: one.offset() or 0 for name, one in pair.items()}
        self._pairs.setdefault(index, []).append(offsets)
        said = [(pair[name].value() or b"").decode() for name in (ORDERS, PAYMENTS)]
        print(f"order {key.decode()}: {said[0]}, paid with {said[1]}", flush=True)

    def offsets(self) -> list[TopicPartition]:
        """Return what can be committed: no record that waits, and no pair by half."""
        found = []
        for index in {index for _, index in self._next}:
            ends = {topic: self._end_of(topic, index) for topic in (ORDERS, PAYMENTS)}
            pairs = self._pairs.get(index, [])
            while halves := [one for one in pairs if len({one[t] < ends[t] for t in ends}) > 1]:
                for one in halves:
                    ends = {topic: min(end, one[topic]) for topic, end in ends.items()}
            self._pairs[index] = [one for one in pairs if one[ORDERS] >= ends[ORDERS]]
            found += [
                TopicPartition(topic, index, end)
                for topic, end in ends.items()
                if (topic, index) in self._next
            ]
        return found

    def _end_of(self, topic: str, index: int) -> int:
        waiting = [one.offset() or 0 for one in self._waiting.get((topic, index), {}).values()]
        return min(waiting, default=self._next.get((topic, index), 0))

    def give_up(self, consumer: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        """Commit, and forget the partitions: they go to another process."""
        gone = {(one.topic, one.partition) for one in partitions}
        offsets = [one for one in self.offsets() if (one.topic, one.partition) in gone]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=False)
        self.forget(consumer, partitions)

    def forget(self, _consumer: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        """Forget partitions that another process may have by now."""
        for one in partitions:
            self._next.pop((one.topic, one.partition), None)
            self._waiting.pop((one.topic, one.partition), None)
            self._pairs.pop(one.partition, None)


def main() -> None:
    """Read the arguments and work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--group", default="paid")
    arguments = parser.parse_args()
    config = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    join, batches = Join(), 0
    policy = SimplePolicy(warmup=Warmup(co_partition=[(ORDERS, PAYMENTS)]))
    with CooperativeConsumer(config, policy=policy) as consumer:
        consumer.subscribe([ORDERS, PAYMENTS], on_revoke=join.give_up, on_lost=join.forget)
        while not signals:
            for record in consumer.consume(500, timeout=0.5):
                if record.error() is None:
                    join.add(record)
            batches += 1
            if batches % COMMIT_EVERY == 0 and (offsets := join.offsets()):
                consumer.commit(offsets=offsets)


if __name__ == "__main__":
    main()
