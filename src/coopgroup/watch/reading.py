"""Read a group from the brokers.

Groups of named resources are described by our own request alone, because they have no topics. Our
own requests describe all groups. Subscriptions of our members tell their generation and rate, and
librdkafka's admin client ends the process at an assignment that it cannot read. It also hides the
epochs of members of KIP-848.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import attrs
from attrs import define, field, frozen
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

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import Coordinator
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.groups.peers import peer_of
from coopgroup.groups.settings import PROTOCOL_TYPE
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.settings import OWN_PROTOCOL
from coopgroup.kafka.config.shown_values import shown_configuration
from coopgroup.kafka.records.partitions import first_offset, is_topic_name
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup
from coopgroup.kafka.rpc.describing import GroupDescriber
from coopgroup.kafka.rpc.questions import DescribedGroup
from coopgroup.printable import host_and_port
from coopgroup.protocol import (
    decode_kafka_assignment,
    decode_subscription,
    decode_user_data,
    has_signature,
)
from coopgroup.watch.values import GroupView, MemberView, PartitionView, total_lag

_Key = tuple[str, int]
_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
# How often the partitions of topics are looked up.
_TOPICS_S: Final = 5.0
_STABLE: Final = "Stable"
_DEAD: Final = "Dead"  # no group, or none that is classic
_EXISTS: Final = "a group that exists"
_OF_OURS: Final = "a group of consumers, or of coopgroup's named resources"
# Before Kafka 4, coordinators name no assignments while members of a classic group join or sync.
_WITHOUT_ASSIGNMENTS: Final = {
    "PreparingRebalance": "preparing rebalancing",
    "CompletingRebalance": "completing rebalancing",
}


@frozen
class _Described:
    """A group without its offsets.

    Attributes:
        targets: the owners that the group wants.
        is_hidden: whether the coordinator does not tell the owners at present.
        shares_resources: whether the group shares named resources.
    """

    state: str
    kind: str
    assignor: str
    coordinator: str
    members: tuple[MemberView, ...]
    owners: Mapping[_Key, str]
    targets: Mapping[_Key, str]
    is_hidden: bool = False
    shares_resources: bool = False


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
    _describer: GroupDescriber = field(init=False)
    # Subscriptions of the last look at which the coordinator told them.
    _subscriptions: dict[str, bytes] = field(factory=dict, init=False)
    # The owners of the last look at which the coordinator named them.
    _owned: dict[_Key, str] = field(factory=dict, init=False)
    # All partitions of the group's topics, and when they were last asked for.
    _existing: frozenset[_Key] = field(default=frozenset(), init=False)
    _existing_at_s: float = field(default=-math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        self._describer = GroupDescriber(self.connection, self.group)

    def close(self) -> None:
        """End the connections."""
        self._describer.close()
        self._admin = self._consumer = None

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
            servers = self.configuration.get("bootstrap.servers")
            raise ConfigurationError(
                "bootstrap.servers", servers, f"brokers that answer ({error.args[0].str()})"
            ) from None

    def _read(self, admin: AdminClient) -> GroupView:
        described = self._classic()  # first: it waits until the coordinator has loaded the group
        if described is not None and described.shares_resources:
            owners = self._named_owners(described)
            keys = sorted(owners)
            return self._view(described, tuple(_resource(key, owners[key]) for key in keys))
        committed_later = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.group)], request_timeout=self.timeout_s
        )
        described = described or self._of_broker()
        committed = _committed(_first(committed_later).result())
        if described is None:
            if not committed:
                raise ConfigurationError("GROUP", self.group, _EXISTS)
            described = _Described("dead", _CLASSIC, "", "", (), {}, {})
        owners = self._named_owners(described)
        keys = self._with_existing(admin, {*self._owned, *described.targets, *committed})
        ends = self._offsets(admin, keys, OFFSET_END)
        # Partitions that were read to their end need no more; these are most of them.
        behind = [key for key in keys if key in ends and committed.get(key) != ends[key]]
        begins = self._offsets(admin, behind, OFFSET_BEGINNING)
        partitions = tuple(
            self._partition(
                key,
                owners.get(key, ""),
                described,
                (committed.get(key), begins.get(key), ends.get(key)),
            )
            for key in keys
        )
        return self._view(described, partitions)

    def _named_owners(self, described: _Described) -> Mapping[_Key, str]:
        """Return the owners; the last ones while the coordinator does not name them."""
        if described.is_hidden:
            members = {one.member_id for one in described.members}
            return {key: owner for key, owner in self._owned.items() if owner in members}
        self._owned = dict(described.owners)
        return described.owners

    def _view(self, described: _Described, partitions: tuple[PartitionView, ...]) -> GroupView:
        if described.is_hidden:
            partitions = tuple(attrs.evolve(one, state="rebalancing") for one in partitions)
        owned: dict[str, list[PartitionView]] = {}
        for partition in partitions:
            owned.setdefault(partition.owner, []).append(partition)
        shown = []
        for member in described.members:
            its = owned.get(member.member_id, ())
            shown.append(attrs.evolve(member, partitions=len(its), lag=total_lag(its)))
        return GroupView(
            group=self.group,
            at_ms=time.time_ns() // 1_000_000,
            state=described.state,
            kind=described.kind,
            assignor=described.assignor,
            coordinator=described.coordinator,
            shares_resources=described.shares_resources,
            members=tuple(sorted(shown, key=lambda one: (one.name, one.member_id))),
            partitions=partitions,
        )

    def _classic(self) -> _Described | None:
        coordinator, found = self._describer.describe(round(1000 * self.timeout_s))
        if found.state == _DEAD:
            return None
        if found.protocol_type == PROTOCOL_TYPE:
            return _of_resources(coordinator, found)
        if found.protocol_type not in {"", _CONSUMER}:
            raise ConfigurationError("GROUP", self.group, _OF_OURS)
        self._subscriptions = {
            one.member_id: one.metadata or self._subscriptions.get(one.member_id, b"")
            for one in found.members
        }
        owners: dict[_Key, str] = {}
        members = []
        for one in found.members:
            assigned = _assigned(one.assignment)
            owners |= dict.fromkeys(assigned or (), one.member_id)
            view = MemberView(
                member_id=one.member_id,
                client_id=one.client_id,
                host=one.client_host.lstrip("/"),
                instance_id=one.group_instance_id,
                is_readable=assigned is not None,
            )
            told = self._subscriptions[one.member_id]
            members.append(_with_subscription(view, told, found.protocol_name))
        return _Described(
            state=_WITHOUT_ASSIGNMENTS.get(found.state, found.state.lower()),
            kind=_CLASSIC,
            assignor=found.protocol_name,
            coordinator=host_and_port(coordinator.host, coordinator.port),
            members=tuple(members),
            owners=owners,
            targets={},
            is_hidden=not owners and found.state in _WITHOUT_ASSIGNMENTS,
        )

    def _of_broker(self) -> _Described | None:
        """Return a group whose broker assigns; None if there is no such group."""
        coordinator, found = self._describer.describe_consumers(round(1000 * self.timeout_s))
        if found.error_code:
            return None
        return _of_consumers(coordinator, found)

    def _with_existing(self, admin: AdminClient, known: set[_Key]) -> list[_Key]:
        """Add the partitions of the same topics that have neither an owner nor a commit."""
        topics = {topic for topic, _ in known}
        is_new = not topics <= {topic for topic, _ in self._existing}
        if topics and (is_new or now_s() - self._existing_at_s >= _TOPICS_S):
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

    def _partition(
        self,
        key: _Key,
        owner: str,
        described: _Described,
        offsets: tuple[int | None, int | None, int | None],
    ) -> PartitionView:
        committed, begin, end = offsets
        target = described.targets.get(key, owner)
        state = "owned" if owner else "unowned"
        return PartitionView(
            topic=key[0],
            partition=key[1],
            owner=owner,
            state=state if target == owner else "moving",
            target="" if target == owner else target,
            end=end,
            committed=committed,
            lag=self._lag(committed, begin, end),
        )

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


def _of_consumers(coordinator: Coordinator, found: ConsumerGroup) -> _Described:
    return _Described(
        state=found.state.lower(),
        kind=_CONSUMER,
        assignor=found.assignor,
        coordinator=host_and_port(coordinator.host, coordinator.port),
        members=tuple(
            MemberView(
                member_id=one.member_id,
                client_id=one.client_id,
                host=one.client_host.lstrip("/"),
                instance_id=one.group_instance_id,
                protocol=_CLASSIC if one.is_classic else _CONSUMER,
                generation=one.epoch,
            )
            for one in found.members
        ),
        owners={key: one.member_id for one in found.members for key in one.owned},
        targets={key: one.member_id for one in found.members for key in one.target},
    )


def _of_resources(coordinator: Coordinator, found: DescribedGroup) -> _Described:
    members = [peer_of(one) for one in found.members]
    owners = {
        (one.name, one.index): peer.member_id for peer in members for one in peer.resources or ()
    }
    return _Described(
        state=_WITHOUT_ASSIGNMENTS.get(found.state, found.state.lower()),
        kind=_CLASSIC,
        assignor=found.protocol_name,
        coordinator=host_and_port(coordinator.host, coordinator.port),
        members=tuple(
            MemberView(
                member_id=one.member_id,
                client_id=one.client_id,
                host=one.host,
                instance_id=one.instance_id,
                is_coopgroup=True,
                is_readable=one.resources is not None or found.state != _STABLE,
                generation=one.generation,
                traits=one.traits,
                choices=one.choices,
            )
            for one in members
        ),
        owners=owners,
        targets={},
        is_hidden=not owners and found.state in _WITHOUT_ASSIGNMENTS,
        shares_resources=True,
    )


def _resource(key: _Key, owner: str) -> PartitionView:
    return PartitionView(
        topic=key[0], partition=key[1], owner=owner, state="owned" if owner else "unowned"
    )


def _first(futures: Mapping[str, Future[Any]]) -> Future[Any]:
    return next(iter(futures.values()))


def _committed(found: ConsumerGroupTopicPartitions) -> dict[_Key, int]:
    return {
        (one.topic, one.partition): one.offset
        for one in found.topic_partitions or ()
        if one.offset >= 0 and one.error is None
    }


def _assigned(content: bytes) -> ResourceSet | None:
    """Return the partitions of an assignment; None if it cannot be read.

    Assignments of coopgroup begin like those of Kafka. librdkafka cannot be asked about names that
    no topic can have.
    """
    if not content:
        return ResourceSet()
    try:
        found = decode_kafka_assignment(content).assigned
    except CoopgroupError:
        return None
    return found if all(map(is_topic_name, found.names)) else None


def _with_subscription(view: MemberView, metadata: bytes, protocol: str) -> MemberView:
    """Add what a member of this package tells in its subscription."""
    try:
        subscription = decode_subscription(metadata, skips_rest=True)
        user_data = decode_user_data(subscription.user_data, skips_rest=True)
    except CoopgroupError:
        return view
    if protocol != OWN_PROTOCOL and not has_signature(subscription.user_data):
        return view
    return attrs.evolve(
        view,
        is_coopgroup=True,
        generation=subscription.generation if subscription.generation >= 0 else None,
        rate_per_s=None if user_data is None else user_data.consumption_rate_per_s,
        traits={} if user_data is None else user_data.traits,
        choices=None if user_data is None else user_data.choices,
    )
