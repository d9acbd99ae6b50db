"""Groups in which members of ours live beside those of Kafka's own clients, on a real broker.

`MixedGroup` starts and stops members of three kinds by name, under load, and `Ledger` writes down
what each was given, gave up and was handed out, on one clock. Members of ours and of librdkafka are
threads of this process; those of the Java client live in one process of Java for all tests.
"""

from __future__ import annotations

import itertools
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from attrs import define, field, frozen
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from coopgroup import CooperativeConsumer, SimplePolicy
from coopgroup.errors import CoopgroupError
from coopgroup.telemetry import RoundLed
from coopgroup.testing import KafkaCluster
from coopgroup.testing.maven import fetch_kafka
from tests.support.live_group import read_telemetry, unique, wait_for

__all__ = ["JavaMembers", "Ledger", "MixedGroup", "java_members"]

PARTITIONS: Final = 6
SETTLED_S: Final = 0.5
_RATE_PER_S: Final = 20.0  # records in each partition
_SOURCE: Final = Path(__file__).parents[1] / "interop" / "java_members" / "Members.java"
_JAVA_ASSIGNORS: Final[Mapping[str, str]] = {
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
}
_COMMON: Final[Mapping[str, str]] = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "200",
    "max.poll.interval.ms": "30000",
    "auto.commit.interval.ms": "300",
}


# --- what happened ------------------------------------------------------------------------------


@frozen
class Held:
    """A member's time with a partition; `until_s` is None while it lasts."""

    name: str
    partition: int
    since_s: float
    until_s: float | None


@define(eq=False)
class Ledger:
    """What happened, on the machine's monotonic clock; any thread may write.

    Attributes:
        held: times with partitions, in order of their beginning.
        handed: (time, member, partition, offset) of each record, in order of writing.
        lost: (member, partition) of everything that was lost.
        failed: members that met an error, and which.
        stopped: members that have ended.
    """

    held: list[Held] = field(factory=list)
    handed: list[tuple[float, str, int, int]] = field(factory=list)
    lost: list[tuple[str, int]] = field(factory=list)
    failed: dict[str, str] = field(factory=dict)
    stopped: set[str] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)

    def take(self, name: str, partitions: list[int], at_s: float) -> None:
        """A member begins with partitions."""
        with self._lock:
            self.held += [Held(name, partition, at_s, None) for partition in partitions]

    def give(self, name: str, partitions: list[int], at_s: float, *, lost: bool = False) -> None:
        """A member ends with partitions."""
        with self._lock:
            for number, one in enumerate(self.held):
                mine = one.name == name and one.partition in partitions
                if mine and one.until_s is None:
                    self.held[number] = Held(name, one.partition, one.since_s, at_s)
            if lost:
                self.lost += [(name, partition) for partition in partitions]

    def hand(self, name: str, partition: int, offsets: range, at_s: float) -> None:
        """A member is handed out records."""
        with self._lock:
            self.handed += [(at_s, name, partition, offset) for offset in offsets]

    def shares(self) -> dict[str, list[int]]:
        """What each member has now, for members that have something."""
        found: dict[str, list[int]] = defaultdict(list)
        with self._lock:
            for one in self.held:
                if one.until_s is None:
                    found[one.name].append(one.partition)
        return {name: sorted(share) for name, share in sorted(found.items())}

    def double_owners(self) -> list[tuple[Held, Held]]:
        """Pairs of times with one partition that overlap."""
        with self._lock:
            times = sorted(self.held, key=lambda one: (one.partition, one.since_s))
        return [
            (one, two)
            for one, two in itertools.pairwise(times)
            if one.partition == two.partition and (one.until_s is None or one.until_s > two.since_s)
        ]

    def given_up_between(self, name: str, since_s: float, until_s: float) -> list[int]:
        """What a member gave up in a time, sorted."""
        with self._lock:
            return sorted(
                one.partition
                for one in self.held
                if one.name == name and one.until_s is not None and since_s <= one.until_s < until_s
            )

    def held_throughout(self, name: str, since_s: float) -> list[int]:
        """What a member has had since a time, sorted."""
        with self._lock:
            return sorted(
                one.partition
                for one in self.held
                if one.name == name and one.until_s is None and one.since_s < since_s
            )

    def pause_ms(self, name: str, partition: int, since_s: float, until_s: float) -> float:
        """The longest time without a record of a partition that a member has all the while."""
        with self._lock:
            times = [
                at_s
                for at_s, member, number, _ in self.handed
                if member == name and number == partition and since_s <= at_s <= until_s
            ]
        points = [since_s, *times, until_s]
        return 1000 * max(after - before for before, after in itertools.pairwise(points))

    def missing(self, ends: Mapping[int, int]) -> list[tuple[int, int]]:
        """(partition, offset) of what nobody was handed out, of all below these ends."""
        with self._lock:
            seen = {(partition, offset) for _, _, partition, offset in self.handed}
        return [
            (partition, offset)
            for partition, end in sorted(ends.items())
            for offset in range(end)
            if (partition, offset) not in seen
        ]

    def repeated(self) -> int:
        """How many records were handed out more than once, each further time counted."""
        with self._lock:
            return len(self.handed) - len({(p, offset) for _, _, p, offset in self.handed})


# --- Java ---------------------------------------------------------------------------------------


@define(eq=False)
class JavaMembers:
    """The process of Java; ledgers are those of the groups that its members are in."""

    _process: subprocess.Popen[str]
    _ledgers: dict[str, Ledger] = field(factory=dict)
    ready: threading.Event = field(factory=threading.Event)

    def start(self, name: str, topic: str, settings: Mapping[str, str], ledger: Ledger) -> None:
        """Start a member; the name is one that no member had before."""
        self._ledgers[name] = ledger
        self._say(f"start {name} {topic} " + " ".join(f"{k}={v}" for k, v in settings.items()))

    def stop(self, name: str) -> None:
        """Close a member."""
        self._say(f"stop {name}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def listen(self) -> None:
        """Take what the process says until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, *words = line.split()
            if name == "ready":
                self.ready.set()
            elif name in self._ledgers:
                _write_down(self._ledgers[name], name, words)


def _write_down(ledger: Ledger, name: str, words: list[str]) -> None:
    match words:
        case ["taken", nanos, numbers]:
            ledger.take(name, _numbers(numbers), int(nanos) / 1e9)
        case ["given" | "lost" as how, nanos, numbers]:
            ledger.give(name, _numbers(numbers), int(nanos) / 1e9, lost=how == "lost")
        case ["handed", nanos, *ranges]:
            for one in ranges:
                partition, _, offsets = one.partition(":")
                first, _, last = offsets.partition("-")
                records = range(int(first), int(last) + 1)
                ledger.hand(name, int(partition), records, int(nanos) / 1e9)
        case ["failed", message]:
            ledger.failed[name] = message
        case ["stopped"]:
            ledger.stopped.add(name)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


@contextmanager
def java_members() -> Iterator[JavaMembers]:
    """A process of Java for members, without any yet."""
    java = shutil.which("java")
    assert java is not None
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [
                java,
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                fetch_kafka().classpath,
                str(_SOURCE),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        members = JavaMembers(process)
        listener = threading.Thread(target=members.listen, daemon=True)
        listener.start()
        try:
            assert members.ready.wait(60), "the program of Java does not start"
            yield members
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(20)
            finally:
                process.kill()
            listener.join(5)
            assert process.stdout is not None
            process.stdout.close()


# --- members of this process --------------------------------------------------------------------


@define(eq=False)
class _PolledMember:
    """A consumer with the methods of confluent_kafka's, polled on a thread of its own."""

    name: str
    ledger: Ledger
    consumer: Any
    topics: list[str]
    calls: queue.SimpleQueue[Callable[[], object]] = field(factory=queue.SimpleQueue)
    _leaves: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        """Subscribe and poll."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe, on the thread that polls."""
        self.consumer.subscribe(
            topics, on_assign=self._taken, on_revoke=self._given, on_lost=self._lost
        )

    def stop(self) -> None:
        """Close the consumer."""
        self._leaves.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), f"{self.name} does not close"

    def _run(self) -> None:
        try:
            self.subscribe(self.topics)
            while not self._leaves.is_set():
                if not self.calls.empty():
                    self.calls.get()()
                for message in self.consumer.consume(200, 0.02):
                    if message.error() is None:
                        offset = message.offset()
                        records = range(offset, offset + 1)
                        at_s = time.monotonic()
                        self.ledger.hand(self.name, message.partition(), records, at_s)
        except (KafkaException, CoopgroupError) as error:
            self.ledger.failed[self.name] = str(error)
        finally:
            self.consumer.close()
            self.ledger.stopped.add(self.name)

    def _taken(self, _: object, partitions: list[Any]) -> None:
        self.ledger.take(self.name, [one.partition for one in partitions], time.monotonic())

    def _given(self, _: object, partitions: list[Any]) -> None:
        self.ledger.give(self.name, [one.partition for one in partitions], time.monotonic())

    def _lost(self, _: object, partitions: list[Any]) -> None:
        lost = [one.partition for one in partitions]
        self.ledger.give(self.name, lost, time.monotonic(), lost=True)


@define(eq=False)
class MixedGroup:
    """A group, its topic with a steady producer, and its members by name.

    Attributes:
        cluster: where.
        java: the process of Java's members.
        folder: for telemetry of members of ours.
        group_id: the group.
        topic: what it shares.
        ledger: what happened.
    """

    cluster: KafkaCluster
    java: JavaMembers
    folder: Path
    group_id: str = field(factory=lambda: unique("mixed"))
    topic: str = field(factory=lambda: unique("mixed"))
    ledger: Ledger = field(factory=Ledger)
    _polled: dict[str, _PolledMember] = field(factory=dict, init=False)
    _in_java: set[str] = field(factory=set, init=False)
    _load_ends: threading.Event = field(factory=threading.Event, init=False)
    _load: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        """Make the topic, and begin to produce."""
        self.cluster.create_topic(self.topic, PARTITIONS)
        self._load = threading.Thread(target=self._produce, daemon=True)
        self._load.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._load_ends.set()
        for name in (*self._polled, *self._in_java):
            self.stop(name)
        self._load.join(10)

    # --- members ---------------------------------------------------------------------------------

    def ours(
        self,
        name: str,
        protocols: str,
        *,
        policy: Any = None,  # noqa: ANN401  (any policy)
        topics: list[str] | None = None,
        **settings: object,
    ) -> CooperativeConsumer:
        """Start a member of ours that offers these protocols."""
        consumer = CooperativeConsumer(
            self._settings(settings)
            | {
                "coopgroup.protocols": protocols,
                "coopgroup.telemetry.file": str(self.folder / f"{name}.jsonl"),
            },
            policy=policy or SimplePolicy(),
        )
        self._start(name, consumer, topics)
        return consumer

    def librdkafka(self, name: str, strategy: str, **settings: object) -> None:
        """Start a member of librdkafka."""
        more = {"partition.assignment.strategy": strategy, "log_level": 3}
        self._start(name, Consumer(self._settings(settings) | more), None)

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
        self._in_java.add(name)
        self.java.start(f"{self.group_id}/{name}", self.topic, config, self.ledger)

    def stop(self, name: str) -> None:
        """Close a member, and wait until it has left."""
        if name in self._polled:
            self._polled.pop(name).stop()
            mine = name
        else:
            self._in_java.discard(name)
            mine = f"{self.group_id}/{name}"
            self.java.stop(mine)
            wait_for(lambda: mine in self.ledger.stopped, f"{name} leaves")
        # What a client closes without a word it has given up all the same.
        self.ledger.give(mine, list(range(PARTITIONS)), time.monotonic())

    def _start(self, name: str, consumer: Any, topics: list[str] | None) -> None:  # noqa: ANN401
        member = _PolledMember(name, self.ledger, consumer, topics or [self.topic])
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
        """Have a member of this process subscribe anew."""
        member = self._polled[name]
        member.calls.put(lambda: member.subscribe(list(topics)))

    def stall(self, name: str, duration_s: float) -> None:
        """Have a member of this process not poll for a while."""
        self._polled[name].calls.put(lambda: time.sleep(duration_s))

    # --- what is to be seen ----------------------------------------------------------------------

    def shares(self) -> dict[str, list[int]]:
        """What each member has now, by the name that it was started with."""
        return {
            name.removeprefix(f"{self.group_id}/"): share
            for name, share in self.ledger.shares().items()
        }

    def rounds_led(self, name: str) -> int:
        """How many rounds a member of ours has led."""
        written = read_telemetry(self.folder / f"{name}.jsonl")
        return sum(isinstance(envelope.record, RoundLed) for envelope in written)

    def protocol(self) -> str:
        """The protocol that the group speaks, as the broker says."""
        admin = AdminClient(self.cluster.client_config())
        found = admin.describe_consumer_groups([self.group_id])[self.group_id].result(10)
        return str(found.partition_assignor)

    def settle(self, *names: str, protocol: str, timeout_s: float = 30.0) -> None:
        """Wait until exactly these members share all partitions evenly, in a protocol."""
        since_s = [time.monotonic()]
        last: list[dict[str, list[int]]] = [{}]

        def is_settled() -> bool:
            assert not self.ledger.failed, self.ledger.failed
            shares = self.shares()
            if shares != last[0]:
                since_s[0], last[0] = time.monotonic(), shares
            sizes = [len(share) for share in shares.values()]
            together = sorted(itertools.chain.from_iterable(shares.values()))
            return (
                sorted(shares) == sorted(names)
                and together == list(range(PARTITIONS))
                and max(sizes) - min(sizes) <= 1
                and time.monotonic() - since_s[0] >= SETTLED_S
            )

        try:
            wait_for(is_settled, f"{names} share all", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; shares are {self.shares()}") from None
        assert self.protocol() == protocol

    def finish(self) -> None:
        """End the load; everything must have been handed out, never by two at once."""
        self._load_ends.set()
        self._load.join(10)
        ends = self._ends()
        wait_for(lambda: not self.ledger.missing(ends), "all records are handed out", 20)
        assert self.ledger.double_owners() == []

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        """Wait for something."""
        wait_for(condition, what, timeout_s)

    def _ends(self) -> dict[int, int]:
        return dict(self._produced)

    _produced: dict[int, int] = field(
        factory=lambda: dict.fromkeys(range(PARTITIONS), 0), init=False
    )

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
        producer.flush(10)
