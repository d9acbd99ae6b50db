"""Groups of our members and members of other clients, on a real broker.

`MixedGroup` starts and stops members of five kinds by name, under load. A ledger has the partitions
that each member got and gave up, and its records.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from attrs import define, field
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from coopgroup import CooperativeConsumer, SimplePolicy
from coopgroup.telemetry import Record, RoundDecided
from coopgroup.testing import KafkaCluster
from tests.support.java_members import JavaMembers
from tests.support.ledger import Ledger
from tests.support.live_group import read_telemetry, unique
from tests.support.polled_members import KafkaPythonConsumer, PolledMember
from tests.support.waiting import wait_for

PARTITIONS: Final = 6
SETTLED_S: Final = 0.3  # longer than a heartbeat: a pending round has begun
# A stop-the-world rebalance lasts longer, also on a machine that is four times slower.
_PAUSE_MS_MAX: Final = 2_000.0
_RATE_PER_S: Final = 20.0  # records per partition
_Kind = TypeVar("_Kind", bound=Record)
_JAVA_ASSIGNORS: Final[Mapping[str, str]] = {
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
}
_PYTHON_ASSIGNORS: Final[Mapping[str, type]] = {
    "cooperative-sticky": CooperativeStickyAssignor,
    "range": RangePartitionAssignor,
}
FAST_BROKER: Final[Mapping[str, str]] = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings of a broker whose members of KIP-848 send a heartbeat five times a second."""
_COMMON: Final[Mapping[str, str]] = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "200",
    "max.poll.interval.ms": "30000",
    "auto.commit.interval.ms": "300",
}


@define(eq=False)
class MixedGroup:
    """A group, its topic with a steady producer, and its members by name.

    Attributes:
        java: the process of Java's members; None for a group without any.
        folder: for telemetry of our members.
    """

    cluster: KafkaCluster
    java: JavaMembers | None
    folder: Path
    group_id: str = field(factory=lambda: unique("mixed"))
    topic: str = field(factory=lambda: unique("mixed"))
    ledger: Ledger = field(factory=Ledger)
    _polled: dict[str, PolledMember] = field(factory=dict, init=False)
    _in_java: set[str] = field(factory=set, init=False)
    _load_ends: threading.Event = field(factory=threading.Event, init=False)
    _load: threading.Thread = field(init=False)
    _produced: dict[int, int] = field(
        factory=lambda: dict.fromkeys(range(PARTITIONS), 0), init=False
    )

    def __enter__(self) -> Self:
        self.cluster.create_topic(self.topic, PARTITIONS)
        self._load = threading.Thread(target=self._produce, daemon=True)
        self._load.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._load_ends.set()
        for name in (*self._polled, *self._in_java):
            self.stop(name)
        self._load.join(60)

    # --- members ---------------------------------------------------------------------------------

    def ours(
        self,
        name: str,
        protocols: str = "",
        *,
        policy: Any = None,  # noqa: ANN401  (any policy)
        topics: list[str] | None = None,
        **settings: object,
    ) -> CooperativeConsumer:
        consumer = CooperativeConsumer(
            self._settings(settings)
            | {"coopgroup.telemetry.file": str(self.folder / f"{name}.jsonl")}
            | ({"coopgroup.protocols": protocols} if protocols else {}),
            policy=policy or SimplePolicy(),
        )
        self._start(name, consumer, topics)
        return consumer

    def librdkafka(self, name: str, strategy: str, **settings: object) -> None:
        more = {"partition.assignment.strategy": strategy, "log_level": 3}
        self._start(name, Consumer(self._settings(settings) | more), None)

    def kip848(self, name: str) -> None:
        """Start a member of librdkafka whose partitions the broker assigns."""
        self._start(name, Consumer(self._of_kip848({}) | {"log_level": 0}), None)

    def consumer(self, name: str, **settings: object) -> CooperativeConsumer:
        """Start a member of ours whose partitions the broker assigns."""
        telemetry = {"coopgroup.telemetry.file": str(self.folder / f"{name}.jsonl")}
        consumer = CooperativeConsumer(self._of_kip848(settings) | telemetry)
        self._start(name, consumer, None)
        return consumer

    def _of_kip848(self, more: Mapping[str, object]) -> dict[str, Any]:
        common = {key: value for key, value in self._settings({}).items() if key not in _COMMON}
        own = {"group.protocol": "consumer", "auto.commit.interval.ms": 300}
        return {**common, **own, **{key.replace("_", "."): more[key] for key in more}}

    def kafka_python(self, name: str, strategy: str) -> None:
        settings = {
            **{key.replace(".", "_"): int(value) for key, value in _COMMON.items()},
            "bootstrap_servers": self.cluster.client_config()["bootstrap.servers"],
            "group_id": self.group_id,
            "auto_offset_reset": "earliest",
        }
        self._start(name, KafkaPythonConsumer(_PYTHON_ASSIGNORS[strategy], settings), None)

    def java_client(self, name: str, strategy: str, **settings: str) -> None:
        """Start a member of Kafka's Java client; several strategies are joined by commas."""
        assignors = ",".join(_JAVA_ASSIGNORS[one] for one in strategy.split(","))
        config = {
            **_COMMON,
            "bootstrap.servers": self.cluster.client_config()["bootstrap.servers"],
            "group.id": self.group_id,
            "partition.assignment.strategy": assignors,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        assert self.java is not None
        self._in_java.add(name)
        self.java.start(f"{self.group_id}/{name}", self.topic, config, self.ledger)

    def stop(self, name: str) -> None:
        if name in self._polled:
            self._polled.pop(name).stop()
            return
        assert self.java is not None
        self._in_java.discard(name)
        mine = f"{self.group_id}/{name}"
        self.java.stop(mine)
        wait_for(lambda: mine in self.ledger.stopped, f"{name} leaves")

    def _start(self, name: str, consumer: Any, topics: list[str] | None) -> None:  # noqa: ANN401
        member = PolledMember(name, self.ledger, consumer, topics or [self.topic])
        self._polled[name] = member
        member.start()

    def _settings(self, more: Mapping[str, object]) -> dict[str, Any]:
        return {
            **self.cluster.client_config(),
            **_COMMON,
            "group.id": self.group_id,
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def subscribe(self, name: str, *topics: str) -> None:
        """Change the subscription of a member of this process."""
        member = self._polled[name]
        self.call(name, lambda: member.subscribe(list(topics)))

    def call(self, name: str, action: Callable[[], object]) -> None:
        """Run an action on the thread that polls a member of this process."""
        self._polled[name].calls.put(action)

    def stall(self, name: str, duration_s: float) -> None:
        """Stop the polls of a member of this process for a while."""
        self.call(name, lambda: time.sleep(duration_s))

    # --- what is to be seen ----------------------------------------------------------------------

    def shares(self) -> dict[str, list[int]]:
        """Return the partitions of each member, by the name that it was started with."""
        return {
            name.removeprefix(f"{self.group_id}/"): share
            for name, share in self.ledger.shares().items()
        }

    def topics_of(self, name: str) -> set[str]:
        """Return the topics of the partitions that a member of this process owns."""
        return {one.topic for one in self._polled[name].consumer.assignment()}

    def records(self, name: str, kind: type[_Kind]) -> list[_Kind]:
        """Return the telemetry of a kind that a member of ours has written so far."""
        written = read_telemetry(self.folder / f"{name}.jsonl")
        return [one.record for one in written if isinstance(one.record, kind)]

    def rounds_led(self, name: str) -> int:
        return len(self.records(name, RoundDecided))

    def check_kept(self, since_s: float, *names: str) -> None:
        """Assert that members have revoked no partition since then and worked all the time."""
        now_s = time.monotonic()
        for name in names:
            assert self.ledger.given_up_between(name, since_s, now_s) == []
            for partition in self.ledger.held_throughout(name, since_s):
                pause_ms = self.ledger.pause_ms(name, partition, since_s, now_s)
                assert pause_ms < _PAUSE_MS_MAX, (name, partition, pause_ms)

    def protocol(self) -> str:
        admin = AdminClient({**self.cluster.client_config()})
        found = admin.describe_consumer_groups([self.group_id])[self.group_id].result(60)
        return str(found.partition_assignor)

    def settle(self, *names: str, protocol: str | None = None) -> None:
        """Wait until exactly these members share all partitions evenly, in a protocol, if any."""
        since_s = [time.monotonic()]
        last: list[dict[str, list[int]]] = [{}]

        def is_settled() -> bool:
            assert not self.ledger.failed, self.ledger.failed
            shares = self.shares()
            if shares != last[0]:
                since_s[0], last[0] = time.monotonic(), shares
            return self.is_even(*names) and time.monotonic() - since_s[0] >= SETTLED_S

        try:
            wait_for(is_settled, f"{names} share all")
        except AssertionError as error:
            raise AssertionError(f"{error}; shares are {self.shares()}") from None
        assert protocol is None or self.protocol() == protocol

    def finish(self) -> None:
        """End the load; check that every record was handed out, never by two owners."""
        self._load_ends.set()
        self._load.join(60)
        ends = dict(self._produced)
        wait_for(lambda: not self.ledger.missing(ends), "all records are handed out")
        assert self.ledger.double_owners() == []

    def is_even(self, *names: str) -> bool:
        """Return whether exactly these members share all partitions evenly."""
        shares = self.shares()
        sizes = [len(share) for share in shares.values()]
        together = sorted(itertools.chain.from_iterable(shares.values()))
        return (
            sorted(shares) == sorted(names)
            and together == list(range(PARTITIONS))
            and max(sizes) - min(sizes) <= 1
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, what)

    def _produce(self) -> None:
        producer = Producer(self.cluster.client_config() | {"linger.ms": 0})

        def acknowledged(error: object, message: Any) -> None:  # noqa: ANN401
            if error is None:
                end = message.offset() + 1
                self._produced[message.partition()] = max(self._produced[message.partition()], end)

        while not self._load_ends.wait(1 / _RATE_PER_S):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"x", partition=partition, on_delivery=acknowledged)
            producer.poll(0)
        producer.flush(60)
