"""Counts per key in local stores that move between processes without an outage.

    pip install rocksdict
    python -m examples.stateful_counts.counts --bootstrap localhost:9092 --name c1 orders

Start several processes, each with its own name. Each keeps the counts of its partitions in RocksDB,
and writes each change into a compacted changelog topic. Others follow the changelog: as a warm-up
before a partition moves to them, or as a standby. SIGTERM ends a process that will return. After
SIGUSR1 its partitions move to other processes first. docs/policies.md explains the example.

Each record is counted exactly once, also after SIGKILL. One transaction contains the counts and the
offsets of a batch. Afterwards the store gets the batch and its end in the changelog in one step. So
a store is never ahead of the changelog. A new owner counts when its store has reached the end of
the changelog; this includes transactions that were still open when the partition was assigned.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Partition

from coopgroup import CooperativeConsumer, DeferredPolicy
from coopgroup.policies import Warmup

from .local_stores import LocalStores

POLL_S = 0.05
REPORT_S = 5.0
WARM_LAG = 1_000  # a store on disk that lacks more changes than this is cold
CATCH_UP_S = 0.1  # how long an assignment may wait for the last changes of a warm store


class Counts:
    """One process: its stores, and the loop that counts."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._topic, self._changelog = given.topic, f"{given.group}-changelog"
        config = {"bootstrap.servers": given.bootstrap, "group.id": given.group}
        self.stores = LocalStores(config, self._changelog, given.state / given.name)
        self._producer = Producer(
            {
                "bootstrap.servers": given.bootstrap,
                "transactional.id": f"{given.group}-{given.name}",
                # If SIGKILL leaves a transaction open, it blocks the next owner for this time.
                "transaction.timeout.ms": 5_000,
            }
        )
        self._consumer = CooperativeConsumer(
            {
                **config,
                "client.id": given.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **dict(one.split("=", 1) for one in given.set),
            },
            policy=DeferredPolicy(warmup=Warmup(standbys=given.standbys)),
        )
        self.again: list[Any] = []
        self._counted = 0

    def run(self, ends: threading.Event, hands_over: threading.Event) -> None:
        """Count until told to end."""
        self.stores.create_changelog(self._topic)
        self._producer.init_transactions()
        found = self.stores.find_nearly_complete(WARM_LAG, CATCH_UP_S * 10)
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._assign,
            on_revoke=self._revoke,
            on_warmup=lambda _, partitions: self.stores.keep_warm(_numbers(partitions)),
            on_warmup_cancelled=lambda _, partitions: self.stores.cool(_numbers(partitions)),
            warm=self._partitions(found),
        )
        is_leaving = False
        report_s = time.monotonic()
        with self._consumer as consumer:
            while not ends.is_set() and not (is_leaving and not consumer.assignment()):
                more = consumer.consume(500, 0 if self.again else POLL_S)
                self.count(self.again + more)
                finished, warm = self.stores.follow()
                if finished:
                    consumer.resume(self._partitions(finished))
                if warm:
                    consumer.warmed_up(self._partitions(warm))
                if hands_over.is_set() and not is_leaving:
                    is_leaving = True
                    consumer.hand_over()
                if time.monotonic() >= report_s:
                    report_s += REPORT_S
                    owned, warm = _numbers(consumer.assignment()), _numbers(consumer.warmups())
                    print(f"counted {self._counted}; owns {owned}; warm-ups {warm}", flush=True)

    # --- counting -------------------------------------------------------------------------------

    def count(self, messages: list[Any]) -> None:
        """Count a batch: changelog and offsets in one transaction, then the stores."""
        self.again = []
        changes: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        end: dict[int, int] = {}
        for message in messages:
            if message.error() is None:
                number, key = message.partition(), message.key() or b""
                before = changes[number].get(key) or self.stores[number].get(key) or b"0"
                changes[number][key] = b"%d" % (int(before) + 1)
                end[number] = message.offset() + 1
        if not changes:
            return
        try:
            positions = self._commit(changes, end)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise  # for example, another process has this name
            self._producer.abort_transaction()
            self.again = messages  # the generation has changed: count them again under the new one
            return
        for number, position in positions.items():
            self.stores[number].write(changes[number], position)
        self._counted += len(messages)

    def _commit(
        self, changes: Mapping[int, Mapping[bytes, bytes]], end: Mapping[int, int]
    ) -> dict[int, int]:
        positions: dict[int, int] = {}

        def delivered(_: KafkaError | None, message: Message) -> None:
            positions[message.partition() or 0] = (message.offset() or 0) + 1

        self._producer.begin_transaction()
        for number, changed in changes.items():
            for key, count in changed.items():
                self._producer.produce(
                    self._changelog, count, key, partition=number, on_delivery=delivered
                )
        self._producer.flush()  # a new owner that sees these offsets must also see these counts
        self._producer.send_offsets_to_transaction(
            [Partition(self._topic, *one) for one in end.items()],
            self._consumer.consumer_group_metadata(),
        )
        self._producer.commit_transaction()
        return positions

    # --- what the group says --------------------------------------------------------------------

    def _assign(self, consumer: CooperativeConsumer, partitions: list[Partition]) -> None:
        cold = self.stores.complete(_numbers(partitions), CATCH_UP_S)
        consumer.pause(self._partitions(cold))  # the other partitions do not wait for their restore

    def _revoke(self, consumer: CooperativeConsumer, partitions: list[Partition]) -> None:
        gone = _numbers(partitions)
        self.again = [message for message in self.again if message.partition() not in gone]
        self.stores.cool(gone - _numbers(consumer.warmups()))  # the others stay warm

    def _partitions(self, numbers: Iterable[int]) -> list[Partition]:
        return [Partition(self._topic, number) for number in numbers]


def _numbers(partitions: list[Partition]) -> set[int]:
    return {one.partition for one in partitions}


def arguments(line: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description="counts the records of each key")
    parser.add_argument("topic", help="topic with the records to count")
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of a broker")
    parser.add_argument("--group", default="counts", help="name of the group")
    parser.add_argument("--name", required=True, help="name of this process")
    parser.add_argument("--state", type=Path, default=Path("state"), help="folder of the stores")
    parser.add_argument("--standbys", type=int, default=0, help="warm processes per partition")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args(line)


def main() -> None:
    """Run until told to end."""
    ends, hands_over = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    signal.signal(signal.SIGINT, lambda *_: ends.set())
    signal.signal(signal.SIGUSR1, lambda *_: hands_over.set())
    Counts(arguments()).run(ends, hands_over)


if __name__ == "__main__":
    main()
