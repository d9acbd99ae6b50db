"""The records that the model of the group coordinator writes into `__consumer_offsets`.

`WritingCoordinator` replaces the coordinator of a simulation. It appends to a `Log` what Kafka's
coordinator appends, in the same order and bytes: commits, their tombstones, and the records of
groups. A group of KIP-848 has the keys 3 to 8, and 16. A conversion deletes the records of one
protocol and writes the records of the other protocol. The log also has the truth: the members and
owners after each change.

A simulation never creates a topic again under its name. So the topic `orders~2` of a simulation is
written as `orders`, with another id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from attrs import define, evolve, field, frozen

from coopgroup.core.model import ResourceSet
from coopgroup.pipeline.topic.codec import (
    ConsumerKey,
    ConsumerKind,
    ConsumerValue,
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TopicPartitions,
    topic_id_text,
)
from coopgroup.pipeline.topic.consumer_groups import BROKER
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    decode_kafka_assignment,
    decode_subscription,
    encode_kafka_assignment,
    encode_subscription,
)
from coopgroup.simulator.coordinator import GroupCoordinator
from coopgroup.simulator.coordinator.consumer_group import ConsumerGroup, ConsumerSeat
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState, Seat
from tests.support.internal_topic import (
    encode_consumer_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)

if TYPE_CHECKING:
    from coopgroup.core.model.group_api import OffsetCommitRequest

Owned = Mapping[str, frozenset[tuple[str, int]]]
_Parts = dict[tuple[ConsumerKind, str], ConsumerValue]
_BORN: Final = tuple(
    ConsumerKind[one]
    for one in ("MEMBER", "REGEX", "TOPICS", "GROUP", "TARGET_OF_MEMBER", "TARGET", "ASSIGNMENT")
)
"""The order in which the coordinator writes; it deletes in the reverse order."""
_ID: Final = re.compile(r"-(00000000-0000-0000-0000-)?[0-9a-f]+$")


@frozen(kw_only=True)
class Known:
    """A group as its coordinator knew it, from a time on.

    Attributes:
        at_ms: end of the round, or time of the change.
        generation: generation or epoch; `None` if the group was removed.
        owned: owned partitions by member id.
        topics: subscribed topics by member id.
    """

    at_ms: int
    generation: int | None
    protocol: str | None = None
    owned: Owned = field(factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(factory=dict)


def client_of(member_id: str) -> str:
    """Return the name of the process behind a member id of the simulator."""
    return _ID.sub("", member_id)


@define(kw_only=True)
class Log:
    """The records of one group, and the truth about it.

    Attributes:
        group: group id.
        pattern: regular expression of the members of KIP-848; `None` if they name their topics.
        has_topics: whether the broker is a Kafka 4.0, which writes the names of topics.
        is_eager: whether classic members use an assignor that stops everything.
        records: time, key and value of each record; without a value it is a tombstone.
        known: the truth about members and owners.
        commits: the truth about commits: time, partition and offset; without one it was deleted.
        generations: time and number of each generation or epoch.
    """

    group: str
    pattern: str | None = None
    has_topics: bool = False
    is_eager: bool = False
    records: list[tuple[int, bytes, bytes | None]] = field(factory=list)
    known: list[Known] = field(factory=list)
    commits: list[tuple[int, tuple[str, int], int | None]] = field(factory=list)
    generations: list[tuple[int, int]] = field(factory=list)
    _parts: _Parts = field(factory=dict)
    _newest: dict[str, str] = field(factory=dict)

    def topic(self, name: str) -> str:
        """Return the name of a topic of the simulation; each group has topics of its own."""
        return f"{self.group}.{name.partition('~')[0]}"

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic of the simulation."""
        return UUID(bytes=hashlib.md5(f"{self.group}.{name}".encode()).digest())  # noqa: S324

    def topic_id_text(self, name: str) -> str:
        """Return the same in the form of Kafka's tools."""
        return topic_id_text(self.topic_id(name).bytes)

    def named(self, resources: ResourceSet) -> frozenset[tuple[str, int]]:
        """Return partitions of the simulation under their names."""
        return frozenset((self.topic(name), number) for name, number in resources)

    def commit(self, at_ms: int, name: str, partition: int, offset: int | None) -> None:
        """Append a commit, or its deletion."""
        topic = self.topic(name)
        key = encode_key(OffsetKey(group=self.group, topic=topic, partition=partition))
        value = None
        if offset is not None:
            said = OffsetValue(committed=offset, commit_ms=at_ms, topic_id=self.topic_id(name))
            value = encode_offset_value(said)
        self.records.append((at_ms, key, value))
        self.commits.append((at_ms, (topic, partition), offset))

    # --- classic groups --------------------------------------------------------------------------

    def classic(self, at_ms: int, group: ClassicGroup, state_ms: int) -> None:
        """Append the state of a classic group."""
        name = group.protocol_name
        members = tuple(self._classic_member(seat, name) for seat in group.seats.values())
        value = GroupValue(
            protocol_type="consumer",
            generation=group.generation,
            protocol=("range" if self.is_eager else name) or None if members else None,
            leader=group.leader_id or None,
            state_ms=state_ms,
            members=members,
        )
        key = encode_key(GroupKey(group=self.group))
        self.records.append((at_ms, key, encode_group_value(value)))
        given = {one.member_id: _assigned(one.assignment) for one in members}
        is_again = bool(self.known) and self.known[-1].generation == group.generation
        self.known.append(
            Known(
                at_ms=at_ms if is_again else state_ms,
                generation=group.generation,
                protocol=value.protocol,
                owned={member: frozenset(one) for member, one in given.items()},
                topics={
                    one.member_id: decode_subscription(one.subscription).topics for one in members
                },
            )
        )

    def _classic_member(self, seat: Seat, protocol: str) -> GroupMember:
        said = decode_subscription(seat.metadata(protocol), skips_rest=True)
        topics = sorted({self.topic(name) for name in said.topics})
        held = ResourceSet.from_pairs(sorted(self.named(_assigned(seat.assignment))))
        return GroupMember(
            member_id=seat.member_id,
            instance_id=seat.instance_id,
            client_id=client_of(seat.member_id),
            client_host=f"/host-of-{client_of(seat.member_id)}",
            rebalance_timeout_ms=seat.rebalance_ms,
            session_timeout_ms=seat.session_ms,
            subscription=encode_subscription(Subscription(topics=tuple(topics))),
            assignment=encode_kafka_assignment(KafkaAssignment(assigned=held)),
        )

    def remove_classic(self, at_ms: int) -> None:
        """Append the tombstone of a classic group."""
        self.records.append((at_ms, encode_key(GroupKey(group=self.group)), None))

    # --- groups of KIP-848 -----------------------------------------------------------------------

    def consumer(self, at_ms: int, group: ConsumerGroup) -> None:
        """Append the records that have changed in a group of KIP-848."""
        parts = dict(self._parts_of(group))
        self._replace(at_ms, parts)
        by_name = group.topics.by_name
        for target in map(by_name, group.target.values()):
            self._newest |= {self.topic(name): name for name in target.names}
        known = Known(
            at_ms=at_ms,
            generation=group.generation,
            protocol=BROKER,
            owned={
                name: self.named(self._existing(by_name(seat.assigned | seat.revoking)))
                for name, seat in group.seats.items()
            },
            topics={
                name: tuple(sorted({self.topic(one) for one in self._topics_of(group, seat)}))
                for name, seat in group.seats.items()
            },
        )
        if not self.known or evolve(known, at_ms=0) != evolve(self.known[-1], at_ms=0):
            self.known.append(known)

    def _existing(self, resources: ResourceSet) -> ResourceSet:
        """Return partitions without those of an earlier topic of the same name."""
        names = [one for one in resources.names if self._newest.get(self.topic(one), one) == one]
        return resources.restrict_names(names)

    def remove_consumer(self, at_ms: int) -> None:
        """Append the tombstones of a group of KIP-848."""
        self._replace(at_ms, {})

    def _replace(self, at_ms: int, parts: _Parts) -> None:
        place = {kind: number for number, kind in enumerate(_BORN)}
        gone = sorted(self._parts.keys() - parts, key=lambda one: (-place[one[0]], one[1]))
        new = [one for one in parts if parts[one] != self._parts.get(one)]
        for one in (*gone, *sorted(new, key=lambda one: (place[one[0]], one[1]))):
            kind, name = one
            key = encode_key(ConsumerKey(group=self.group, kind=kind, name=name))
            value = parts.get(one)
            content = None if value is None else encode_consumer_value(kind, value)
            self.records.append((at_ms, key, content))
        self._parts = parts

    def _parts_of(self, group: ConsumerGroup) -> Iterator[tuple[Any, ConsumerValue]]:
        by_name = group.topics.by_name
        existing = by_name(group.topics.existing())
        for name, seat in group.seats.items():
            regex = None if seat.is_classic else self.pattern
            topics = () if regex else tuple(sorted({self.topic(one) for one in seat.topics}))
            member = ConsumerValue(
                instance_id=seat.instance_id,
                client_id=client_of(name),
                client_host=f"/host-of-{client_of(name)}",
                topics=topics,
                regex=regex,
                rebalance_timeout_ms=seat.rebalance_ms,
                is_classic=seat.is_classic,
                session_timeout_ms=seat.session_ms if seat.is_classic else None,
            )
            yield (ConsumerKind.MEMBER, name), member
            if regex is not None:
                found = sorted({self.topic(one) for one in self._topics_of(group, seat)})
                yield (ConsumerKind.REGEX, regex), ConsumerValue(topics=tuple(found))
            target = self._by_topic(by_name(group.target.get(name, ResourceSet())))
            yield (ConsumerKind.TARGET_OF_MEMBER, name), ConsumerValue(partitions=target)
            held = ConsumerValue(
                epoch=seat.epoch,
                partitions=self._by_topic(by_name(seat.assigned)),
                revoking=self._by_topic(by_name(seat.revoking)),
            )
            yield (ConsumerKind.ASSIGNMENT, name), held
        if self.has_topics:
            names = tuple((self.topic_id_text(one), self.topic(one)) for one in existing.names)
            yield (ConsumerKind.TOPICS, ""), ConsumerValue(names=names)
        yield (ConsumerKind.GROUP, ""), ConsumerValue(epoch=group.generation)
        yield (ConsumerKind.TARGET, ""), ConsumerValue(epoch=group.target_epoch)

    def _topics_of(self, group: ConsumerGroup, seat: ConsumerSeat) -> list[str]:
        """Return the topics of a member; those that match an expression must exist."""
        is_matched = self.pattern is not None and not seat.is_classic
        names = group.topics.by_name(group.topics.existing()).names if is_matched else seat.topics
        return [name for name in seat.topics if name in names]

    def _by_topic(self, resources: ResourceSet) -> tuple[TopicPartitions, ...]:
        return tuple(
            TopicPartitions(topic_id=self.topic_id_text(name), partitions=tuple(numbers.tolist()))
            for name, numbers in resources.items()
        )


def _assigned(content: bytes) -> ResourceSet:
    return decode_kafka_assignment(content).assigned if content else ResourceSet()


@define(kw_only=True, eq=False)
class WritingCoordinator(GroupCoordinator):
    """A coordinator that appends the records of its group to a log.

    Attributes:
        log: gets the records.
    """

    log: Log
    _written: ClassicGroup | ConsumerGroup | None = None
    _completed: dict[int, int] = field(factory=dict)
    _topics: frozenset[str] = frozenset()
    _state_ms: int = 0

    def receive(self, token: Any, request: Any, now_ms: int, *, client_id: str = "client") -> None:  # noqa: ANN401
        """Process a request, and write what it changed."""
        self._delete_offsets(now_ms)
        super().receive(token, request, now_ms, client_id=client_id)
        self._append()

    def advance(self, now_ms: int) -> None:
        """Advance the time, and write what it changed."""
        self._delete_offsets(now_ms)
        super().advance(now_ms)
        self._append()

    def _topic_names(self) -> frozenset[str]:
        """Return the names of existing topics; the coordinator knows them by id."""
        names = self.names()
        return frozenset(names.get(one, one) for one in self.existing().names)

    def _commit(self, request: OffsetCommitRequest) -> None:
        names = self._topic_names()
        for row in request.offsets:
            # A broker refuses commits to a topic that was deleted.
            if row[0] in names:
                self.log.commit(self.group.now_ms, row[0], row[1], row[2])
        super()._commit(request)

    def _delete_offsets(self, now_ms: int) -> None:
        """Delete the offsets of topics that were deleted."""
        names = self._topic_names()
        gone, self._topics = self._topics - names, names
        for name, partition in sorted(self.committed):
            if name in gone:
                self.log.commit(now_ms, name, partition, None)
        self.committed = {one: at for one, at in self.committed.items() if one[0] not in gone}

    def _append(self) -> None:
        group, before, log = self.group, self._written, self.log
        at_ms, stored = group.now_ms, self._stored
        if not log.generations or log.generations[-1][1] != group.generation:
            log.generations.append((at_ms, group.generation))
        if isinstance(group, ClassicGroup) and group.state is GroupState.COMPLETING:
            self._completed.setdefault(group.generation, at_ms)
        if isinstance(group, ConsumerGroup):
            if isinstance(before, ClassicGroup):
                log.remove_classic(at_ms)
            log.consumer(at_ms, group)
            self._written = group
        elif isinstance(before, ConsumerGroup):
            log.remove_consumer(at_ms)
            self._begin_classic(group, at_ms)
        elif before is None and group.exists:
            self._begin_classic(group, at_ms)
        elif before is not None and stored is not before:
            assert isinstance(stored, ClassicGroup)
            state_ms = self._completed.pop(stored.generation, None)
            if state_ms is None:
                # The state did not change: a static member has another id. Or the group is empty.
                is_same = isinstance(before, ClassicGroup) and bool(stored.seats)
                state_ms = self._state_ms if is_same else at_ms
            log.classic(at_ms, stored, state_ms)
            self._written, self._state_ms = stored, at_ms

    def _begin_classic(self, group: ClassicGroup, at_ms: int) -> None:
        """Write a group that is new, or was converted."""
        self._completed.clear()
        self._stored = group.stored()
        self.log.classic(at_ms, self._stored, at_ms)
        self._written = self._stored
