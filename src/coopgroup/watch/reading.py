"""Read a group from the brokers.

librdkafka's admin client describes groups of any client, KIP-848 included. Assignments of coopgroup
begin like those of Kafka, so it reads them, too. Generation and rate of our members are in their
subscriptions, which only our own request shows (`kafka.rpc.describing`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import attrs
from attrs import define, field
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.settings import OWN_PROTOCOL
from coopgroup.kafka.config.shown_values import shown_configuration
from coopgroup.kafka.records.partitions import first_offset
from coopgroup.kafka.rpc.describing import describe_group
from coopgroup.kafka.rpc.questions import DescribedMember
from coopgroup.protocol import decode_subscription, decode_user_data
from coopgroup.watch.values import GroupView, MemberView, PartitionView, total_lag

__all__ = ["GroupReader"]

_Key = tuple[str, int]
_CLASSIC: Final = "classic"
# Connecting for subscriptions costs more than all other questions.
_TOLD_S: Final = 5.0
_NO_GROUP: Final = "GROUP_ID_NOT_FOUND"
_DEAD: Final = "DEAD"
_EXISTS: Final = "a group that exists"
_OF_CONSUMERS: Final = "a group of consumers; this is one of named resources, or of another kind"
_NO_CONSUMERS: Final = "is not a consumer group"
# Before Kafka 4, coordinators name no assignments while members of a classic group join or sync.
_WITHOUT_ASSIGNMENTS: Final = ("PREPARING_REBALANCING", "COMPLETING_REBALANCING")


@define(eq=False)
class GroupReader:
    """Reads one group again and again.

    Attributes:
        group: its name.
        configuration: connection keys of librdkafka.
        connection: the same for our own requests.
        timeout_s: time limit of each request.
        offset_reset: "latest" or "earliest", if all consumers of the group have this
            `auto.offset.reset`; None if it is unknown.
    """

    group: str
    configuration: Mapping[str, Any] = field(repr=shown_configuration)
    connection: ConnectionSettings
    timeout_s: float = 10.0
    offset_reset: str | None = None
    _admin: AdminClient | None = field(default=None, init=False)
    _consumer: Consumer | None = field(
        default=None, init=False
    )  # it asks for ends, and never joins
    _told_members: Mapping[str, DescribedMember] = field(factory=dict, init=False)
    _told_at_s: float = field(default=-math.inf, init=False)
    # The owners of the last look at which the coordinator named them.
    _owned: dict[_Key, str] = field(factory=dict, init=False)
    # All partitions of the group's topics, and when they were last asked for.
    _existing: frozenset[_Key] = field(default=frozenset(), init=False)
    _existing_at_s: float = field(default=-math.inf, init=False)

    def read(self) -> GroupView:
        """Return the group of this moment.

        Raises:
            ConfigurationError: the brokers do not answer, or refuse.
        """
        if self._admin is None:
            self._admin = AdminClient(dict(self.configuration))
        try:
            return self._read(self._admin)
        except KafkaException as error:
            cause = error.args[0]
            if cause.name() == _NO_GROUP:
                raise ConfigurationError("GROUP", self.group, _EXISTS) from None
            if _NO_CONSUMERS in cause.str():
                raise ConfigurationError("GROUP", self.group, _OF_CONSUMERS) from None
            servers = self.configuration.get("bootstrap.servers")
            raise ConfigurationError(
                "bootstrap.servers", servers, f"brokers that answer ({cause.str()})"
            ) from None

    def _read(self, admin: AdminClient) -> GroupView:
        asked = admin.describe_consumer_groups([self.group], request_timeout=self.timeout_s)
        committed_later = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.group)], request_timeout=self.timeout_s
        )
        described: Any = _first(asked).result()
        committed = _committed(_first(committed_later).result())
        if described.state.name == _DEAD and not committed:
            raise ConfigurationError("GROUP", self.group, _EXISTS)
        kind = getattr(getattr(described, "type", None), "name", _CLASSIC).lower()
        owners = _owners(described.members, "assignment")
        is_hidden = not owners and described.state.name in _WITHOUT_ASSIGNMENTS
        if is_hidden:
            members = {one.member_id for one in described.members}
            owners = {key: owner for key, owner in self._owned.items() if owner in members}
        else:
            self._owned = owners
        targets = _owners(described.members, "target_assignment")
        keys = self._with_existing(admin, {*self._owned, *targets, *committed})
        ends = self._offsets(admin, keys, OFFSET_END)
        # Partitions that were read to their end need no more; these are most of them.
        behind = [key for key in keys if key in ends and committed.get(key) != ends[key]]
        begins = self._offsets(admin, behind, OFFSET_BEGINNING)
        partitions = tuple(
            attrs.evolve(
                _partition(key, owners.get(key, ""), targets),
                end=ends.get(key),
                committed=committed.get(key),
                lag=self._lag(committed.get(key), begins.get(key), ends.get(key)),
            )
            for key in keys
        )
        if is_hidden:
            partitions = tuple(attrs.evolve(one, state="rebalancing") for one in partitions)
        told = self._told(described) if kind == _CLASSIC else {}
        owned: dict[str, list[PartitionView]] = {}
        for partition in partitions:
            owned.setdefault(partition.owner, []).append(partition)
        shown = (
            _member(one, told.get(one.member_id), owned.get(one.member_id, ()))
            for one in described.members
        )
        coordinator = described.coordinator
        return GroupView(
            group=self.group,
            at_ms=time.time_ns() // 1_000_000,
            state=described.state.name.lower().replace("_", " "),
            kind=kind,
            assignor=described.partition_assignor or "",
            coordinator=f"{coordinator.host}:{coordinator.port}" if coordinator else "",
            members=tuple(sorted(shown, key=lambda one: (one.name, one.member_id))),
            partitions=partitions,
        )

    def _with_existing(self, admin: AdminClient, known: set[_Key]) -> list[_Key]:
        """Add the partitions of the same topics that have neither an owner nor a commit."""
        topics = {topic for topic, _ in known}
        is_new = not topics <= {topic for topic, _ in self._existing}
        if topics and (is_new or now_s() - self._existing_at_s >= _TOLD_S):
            found: dict[str, Future[Any]] = {}
            with suppress(KafkaException, ValueError):  # named resources are no topics
                found = admin.describe_topics(
                    TopicCollection(sorted(topics)), request_timeout=self.timeout_s
                )
            existing = set()
            for topic, future in found.items():
                with suppress(KafkaException):  # the topic was deleted, or may not be read
                    existing |= {(topic, one.id) for one in future.result().partitions}
            self._existing, self._existing_at_s = frozenset(existing), now_s()
        return sorted(known | {key for key in self._existing if key[0] in topics})

    def _lag(self, committed: int | None, begin: int | None, end: int | None) -> int | None:
        if end is None:
            return None
        if committed is not None and (0 if begin is None else begin) <= committed <= end:
            return end - committed
        if self.offset_reset is None or begin is None:
            return None
        return end - first_offset(-1, begin, end, self.offset_reset)

    def _offsets(self, admin: AdminClient, keys: list[_Key], where: int) -> dict[_Key, int]:
        """Return the begin or the end of each partition, as far as brokers answer."""
        if not keys:
            return {}
        if self._consumer is None:
            settings = {"group.id": self.group, "isolation.level": "read_uncommitted"}
            self._consumer = Consumer({**self.configuration, **settings})
        # A consumer asks for a third of the admin client's CPU time, which makes a future for each
        # partition. But the consumer raises if one of the answers is an error that may pass.
        with suppress(KafkaException):
            found = self._consumer.offsets_for_times(
                [TopicPartition(*key, where) for key in keys], timeout=self.timeout_s
            )
            return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
        spec = OffsetSpec.latest() if where == OFFSET_END else OffsetSpec.earliest()
        futures = admin.list_offsets(
            {TopicPartition(*key): spec for key in keys},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self.timeout_s,
        )
        answered = {}
        for one, future in futures.items():
            with suppress(KafkaException):  # the topic was deleted, or may not be read
                answered[one.topic, one.partition] = future.result().offset
        return answered

    def _told(self, described: Any) -> Mapping[str, DescribedMember]:  # noqa: ANN401
        """Return the members with their subscriptions, if some may be members of this package."""
        if described.partition_assignor == OWN_PROTOCOL and now_s() - self._told_at_s >= _TOLD_S:
            with suppress(CoopgroupError):  # generations and rates are not worth an error
                found = describe_group(self.connection, self.group, round(1000 * self.timeout_s))
                self._told_members = {one.member_id: one for one in found.members}
                self._told_at_s = now_s()
        return self._told_members


def _first(futures: Mapping[str, Future[Any]]) -> Future[Any]:
    return next(iter(futures.values()))


def _committed(found: ConsumerGroupTopicPartitions) -> dict[_Key, int]:
    return {
        (one.topic, one.partition): one.offset
        for one in found.topic_partitions or ()
        if one.offset >= 0 and one.error is None
    }


def _owners(members: Iterable[Any], name: str) -> dict[_Key, str]:
    return {
        (one.topic, one.partition): member.member_id
        for member in members
        if getattr(member, name, None) is not None
        for one in getattr(member, name).topic_partitions
    }


def _partition(key: _Key, owner: str, targets: Mapping[_Key, str]) -> PartitionView:
    target = targets.get(key, owner)
    state = "owned" if owner else "unowned"
    if target != owner:
        state = "moving"
    return PartitionView(
        topic=key[0],
        partition=key[1],
        owner=owner,
        state=state,
        target=target if target != owner else "",
    )


def _member(
    member: Any,  # noqa: ANN401  (MemberDescription; it has no annotations)
    told: DescribedMember | None,
    owned: Sequence[PartitionView],
) -> MemberView:
    is_ours, generation, rate_per_s = _of_subscription(told)
    return MemberView(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.host.lstrip("/"),
        instance_id=member.group_instance_id or "",
        is_coopgroup=is_ours,
        generation=generation,
        rate_per_s=rate_per_s,
        partitions=len(owned),
        lag=total_lag(owned),
    )


def _of_subscription(told: DescribedMember | None) -> tuple[bool, int | None, float | None]:
    """Return whether it is a member of this package, its generation, and its rate."""
    if told is None:
        return False, None, None
    try:
        subscription = decode_subscription(told.metadata)
        user_data = decode_user_data(subscription.user_data)
    except CoopgroupError:
        return False, None, None
    generation = subscription.generation if subscription.generation >= 0 else None
    rate = None if user_data is None else user_data.consumption_rate_per_s
    return True, generation, rate
