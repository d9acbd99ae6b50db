"""Consumers with `group.protocol=consumer` (KIP-848) beside a `Crew`, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from attrs import define, field
from confluent_kafka import Consumer, KafkaError, TopicPartition

from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew
from tests.support.waiting import WAIT_S_MAX, wait_for

FAST_BROKER: Final[Mapping[str, str]] = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings of a broker whose members of KIP-848 send a heartbeat five times a second."""


@define(eq=False)
class Guest:
    """A consumer of confluent_kafka, which counts what it holds.

    Attributes:
        held: owned partitions.
        lost: partitions that it lost, in order.
        errors: codes of the errors that it returned, in order.
        read: (partition, offset) of the records that it handed out, in order.
    """

    consumer: Consumer
    held: set[tuple[str, int]] = field(factory=set)
    lost: list[tuple[str, int]] = field(factory=list)
    errors: list[int] = field(factory=list)
    read: list[tuple[int | None, int | None]] = field(factory=list)

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe(
            [topic], on_assign=self._taken, on_revoke=self._given, on_lost=self._lost
        )

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.005):
            error = message.error()
            if error is None:
                self.read.append((message.partition(), message.offset()))
            elif error.code() != KafkaError._PARTITION_EOF:
                self.errors.append(error.code())

    def _taken(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.held |= {(one.topic, one.partition) for one in partitions}
        consumer.incremental_assign(partitions)

    def _given(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.held -= {(one.topic, one.partition) for one in partitions}
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += [(one.topic, one.partition) for one in partitions]
        self._given(consumer, partitions)


@define(eq=False)
class MixedCrew:
    """A `Crew` and its guests in one group, polled in turn by the test's thread."""

    cluster: KafkaCluster
    folder: Path
    topic: str
    partitions: int
    ours: Crew = field(init=False)
    guests: dict[str, Guest] = field(factory=dict, init=False)
    gone: dict[str, Guest] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.ours = Crew(self.cluster, self.folder)

    def __enter__(self) -> Self:
        self.cluster.create_topic(self.topic, self.partitions)
        return self

    def __exit__(self, *details: object) -> None:
        for name in sorted(self.guests):
            self.leave(name)
        self.ours.__exit__(*details)

    def join(self, name: str, **configuration: Any) -> None:  # noqa: ANN401  (of any key)
        """Start a member of coopgroup; underscores in names of keys stand for dots."""
        given = {key.replace("_", "."): value for key, value in configuration.items()}
        self.ours.add(name, configuration=given).subscribe([self.topic])

    def visit(self, name: str, **configuration: Any) -> Guest:  # noqa: ANN401  (of any key)
        """Start a consumer of confluent_kafka, with KIP-848 if the configuration says nothing."""
        given = {key.replace("_", "."): value for key, value in configuration.items()}
        consumer = Consumer(
            {
                **self.cluster.client_config(),
                "group.id": self.ours.group_id,
                "group.protocol": "consumer",
                "client.id": name,
                "auto.offset.reset": "earliest",
                **given,
            }
        )
        self.guests[name] = Guest(consumer)
        self.guests[name].subscribe(self.topic)
        return self.guests[name]

    def leave(self, name: str) -> None:
        """Close a member of either kind."""
        guest = self.guests.pop(name, None)
        if guest is None:
            self.ours.remove(name)
        else:
            guest.consumer.close()
            self.gone[name] = guest

    def shares(self) -> dict[str, list[int]]:
        """Return the partitions of each member."""
        found = {name: [one for _, one in self.ours.held(name)] for name in self.ours.members}
        return found | {
            name: sorted(one for _, one in guest.held) for name, guest in self.guests.items()
        }

    def is_even(self) -> bool:
        """Return whether each partition has one reader, and the shares differ by at most one."""
        shares = list(self.shares().values())
        sizes = [len(share) for share in shares]
        together = sorted(one for share in shares for one in share)
        return together == list(range(self.partitions)) and max(sizes) - min(sizes) <= 1

    def poll(self) -> None:
        self.ours.poll(0.002)
        for guest in tuple(self.guests.values()):
            guest.poll()

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_for(condition, f"{what}: {self.shares()}", WAIT_S_MAX, self.poll)

    def until_even(self, what: str = "even shares") -> None:
        self.until(self.is_even, what)
