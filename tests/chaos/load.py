"""The producer of a run: idempotent, at a steady rate, with a list of acknowledged records."""

import threading
import time
from collections import defaultdict
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.checkers import Partition

PAUSE_S: Final = 0.125
OUTSTANDING_MAX: Final = 20_000
DEATH_S: Final = 30.0


class Load:
    """A thread that produces to each partition of each open topic, eight times a second."""

    def __init__(self, config: dict[str, str]) -> None:
        self.acknowledged: dict[Partition, list[int]] = defaultdict(list)
        self.refused = 0
        self.closed: set[str] = set()
        self._config = config | {
            "enable.idempotence": "true",
            "linger.ms": "5",
            "log_level": "0",
            "message.timeout.ms": "300000",
            "topic.metadata.refresh.interval.ms": "1000",
            "reconnect.backoff.max.ms": "500",
        }
        self._producer = Producer(self._config)
        self._open: dict[str, int] = {}
        self._outstanding: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def topics(self) -> dict[str, int]:
        """Return the open topics and their numbers of partitions with records."""
        with self._lock:
            return dict(self._open)

    @property
    def partitions(self) -> set[Partition]:
        """Return the partitions that get records."""
        return {(topic, one) for topic, count in self.topics.items() for one in range(count)}

    def open(self, topic: str, partitions: int) -> None:
        """Begin to produce to a topic, or to its new partitions."""
        with self._lock:
            self._open[topic] = partitions

    def close_topic(self, topic: str, timeout_s: float = 20.0) -> bool:
        """End a topic; return whether all its records were answered, so that it may be deleted."""
        with self._lock:
            self._open.pop(topic, None)
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if not self._outstanding[topic]:
                self.closed.add(topic)
                return True
            time.sleep(0.05)
        return False

    def finish(self, timeout_s: float) -> int:
        """End the load; return the number of records without an answer in that time."""
        self._is_over.set()
        self._thread.join()
        return self._producer.flush(timeout_s)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._is_over.is_set():
            for topic, partition in sorted(self.partitions):
                self.produce(topic, partition)
            due = max(due + PAUSE_S, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)

    def produce(self, topic: str, partition: int) -> None:
        """Produce one record; only the load's own thread may call this once a topic is open."""
        if sum(self._outstanding.values()) >= OUTSTANDING_MAX:
            return  # no quorum for minutes: the rate drops
        self._outstanding[topic] += 1
        try:
            self._producer.produce(topic, b"chaos", partition=partition, on_delivery=self._answer)
        except KafkaException:  # a fatal error of the idempotent producer: continue with a new one
            self._outstanding[topic] -= 1
            self.refused += 1
            self._producer.flush(DEATH_S)
            self._producer = Producer(self._config)

    def _answer(self, error: KafkaError | None, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None:
            raise AssertionError("an answered record has a topic and a partition")
        self._outstanding[topic] -= 1
        if error is not None or offset is None:
            self.refused += 1
        else:
            self.acknowledged[topic, partition].append(offset)
