"""Shared helpers for the tests of `CooperativeConsumer` on real brokers.

Two ways to have a group: `playing` gives worker processes (`tests.lab`) that a test
may kill or freeze. A `Crew` polls several consumers of this process in turn, for everything else.
Assignments and actions of a group are read from its telemetry, never from logs.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.telemetry import Envelope, Record, from_json
from coopgroup.testing import KafkaCluster
from tests.lab.analysis import TrialLog
from tests.lab.controller import Trial
from tests.lab.group import Group
from tests.support.growing_file import whole_lines
from tests.support.inner import inner
from tests.support.waiting import WAIT_S_MAX, wait_for

QUIET_S: Final = 0.8
FAST: Final[Mapping[str, Any]] = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 300}
_OF_PROTOCOL: Final[Mapping[str, Mapping[str, Any]]] = {
    "classic": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}
_EXPECTED: Final = {KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN_TOPIC_OR_PART}
_Kind = TypeVar("_Kind", bound=Record)


def unique(word: str) -> str:
    """Return a name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:8]}"


def read_telemetry(path: Path) -> list[Envelope]:
    """Return everything written so far."""
    return [from_json(json.loads(line)) for line in whole_lines(path)]


def produce(cluster: KafkaCluster, topic: str, counts: Sequence[int]) -> None:
    """Write `counts[p]` records to partition p; they are acknowledged when this returns."""
    producer = Producer(cluster.client_config() | {"linger.ms": 5})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(WAIT_S_MAX) == 0


@contextmanager
def polling(*consumers: Any) -> Iterator[None]:  # noqa: ANN401  (ours, and others)
    """Poll in a thread, as an application does; ignore records and refusals."""
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            for one in consumers:
                try:
                    one.poll(0.05)
                except KafkaException:
                    time.sleep(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# --- processes ----------------------------------------------------------------------------------


@define(kw_only=True)
class Player:
    """A group of worker processes, its producer, and its logs.

    Attributes:
        telemetry_path: file that all members append to.
    """

    trial: Trial
    group: Group
    telemetry_path: Path

    def settle(self, *, fair: bool = True, quiet_s: float = QUIET_S) -> None:
        assert self.group.wait_settled(quiet_s=quiet_s, fair=fair), "the group did not settle"

    def telemetry(self, kind: type[_Kind]) -> list[tuple[str, _Kind]]:
        """Return the records of a kind so far, each with the name of the member that wrote it."""
        return [
            (_name_of(envelope.member), envelope.record)
            for envelope in read_telemetry(self.telemetry_path)
            if isinstance(envelope.record, kind)
        ]

    def envelopes(self) -> list[Envelope]:
        return read_telemetry(self.telemetry_path)

    def log(self) -> TrialLog:
        """Finish the trial, and return its log of records."""
        return self.group.log()


def _name_of(member_id: str) -> str:
    """Return the client id: a broker appends a random part of 36 characters to make a member id."""
    return member_id[:-37]


@contextmanager
def playing(
    cluster: KafkaCluster,
    *,
    kind: str = "coopgroup-simple",
    partitions: int = 12,
    rate: float = 50.0,
    extra_config: Mapping[str, object] | None = None,
    **settings: Any,  # noqa: ANN401  (fields of WorkerSpec, checked by it)
) -> Iterator[Player]:
    """Yield a group of processes on a topic with a steady producer."""
    topic = unique("live")
    cluster.create_topic(topic, partitions)
    trial = Trial(
        client_config=cluster.client_config(), topics=[topic], partitions_per_topic=partitions
    )
    with trial:
        telemetry_path = trial.folder / "telemetry.jsonl"
        group = trial.group(
            kind,
            group_id=unique("group"),
            extra_config={
                "coopgroup.telemetry.file": str(telemetry_path),
                **(extra_config or {}),
            },
            **{**FAST, "commit_interval_ms": 200, **settings},
        )
        trial.start_producer(rate_per_partition=rate)
        yield Player(trial=trial, group=group, telemetry_path=telemetry_path)


# --- consumers of this process ------------------------------------------------------------------


@define
class Crew:
    """Consumers of one group in this process, polled in turn by the test's thread.

    Attributes:
        folder: for telemetry.
        protocol: the group protocol of the members.
        messages: the messages of each consumer, in order.
    """

    cluster: KafkaCluster
    folder: Path
    group_id: str = field(factory=lambda: unique("crew"))
    protocol: Literal["classic", "consumer"] = "classic"
    members: dict[str, CooperativeConsumer] = field(factory=dict, init=False)
    messages: dict[str, list[Message]] = field(factory=dict, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the open consumers; ignore exceptions of their callbacks."""
        for name in sorted(self.members):
            try:
                self.members[name].close()
            except RuntimeError:
                continue

    def add(
        self,
        name: str,
        *,
        configuration: Mapping[str, Any] | None = None,
        policy: Any = None,  # noqa: ANN401  (a test's own policy)
        assignor: Any = None,  # noqa: ANN401  (a test's own assignor)
    ) -> CooperativeConsumer:
        """Make a consumer that is not subscribed yet."""
        consumer = CooperativeConsumer(
            {
                **self.cluster.client_config(),
                **_OF_PROTOCOL[self.protocol],
                "group.id": self.group_id,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                "coopgroup.telemetry.file": str(self.folder / f"{name}.jsonl"),
                **(configuration or {}),
            },
            policy=policy,
            assignor=assignor,
        )
        self.members[name] = consumer
        self.messages[name] = []
        return consumer

    def remove(self, name: str) -> None:
        self.members.pop(name).close()

    def poll(self, timeout_s: float = 0.01) -> None:
        for name, consumer in sorted(self.members.items()):
            for message in consumer.consume(100, timeout_s):
                error = message.error()
                if error is None:
                    self.messages[name].append(message)
                # A story may stall, or subscribe to a topic that is created later.
                elif error.code() not in _EXPECTED:
                    raise AssertionError(error.str())

    def until(
        self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S_MAX
    ) -> None:
        wait_for(condition, what, timeout_s, self.poll)

    def during(self, duration_s: float) -> None:
        deadline = time.monotonic() + duration_s
        while time.monotonic() < deadline:
            self.poll()

    def held(self, name: str) -> list[tuple[str, int]]:
        return sorted((one.topic, one.partition) for one in self.members[name].assignment())

    def counts(self) -> list[int]:
        """Return how many partitions each consumer owns, by name."""
        return [len(self.held(name)) for name in sorted(self.members)]

    def share(self, *topics: tuple[str, int]) -> bool:
        """Return whether all partitions of (topic, count) are owned once, evenly in total."""
        wanted = sorted((topic, number) for topic, count in topics for number in range(count))
        held = [self.held(name) for name in sorted(self.members)]
        together = sorted(one for partitions in held for one in partitions)
        sizes = [len(partitions) for partitions in held]
        return together == wanted and max(sizes) - min(sizes) <= len(topics)

    def telemetry(self, name: str, kind: type[_Kind]) -> list[_Kind]:
        """Return the records of a kind that a consumer wrote so far."""
        return [
            envelope.record
            for envelope in self.envelopes(name)
            if isinstance(envelope.record, kind)
        ]

    def envelopes(self, name: str) -> list[Envelope]:
        """Return the telemetry of a consumer; another thread writes it, so that it may wait."""
        consumer = self.members.get(name)
        if consumer is not None:
            assert inner(consumer, "_driver", "sink", "_file").flush(WAIT_S_MAX)
        return read_telemetry(self.folder / f"{name}.jsonl")

    def generation(self, name: str) -> int:
        return self.envelopes(name)[-1].generation

    def committed(self, topic: str, partitions: int) -> list[int]:
        """Return the committed offset of each partition; -1001 for none."""
        consumer = next(iter(self.members.values()))
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [one.offset for one in consumer.committed(wanted, 10)]
