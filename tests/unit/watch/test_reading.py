"""Reading a group, with an admin client that a test answers; real ones are in tests/broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from attrs import define, field
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.group_api import Coordinator
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.settings import read_settings
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup, ConsumerMember
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    UserData,
    encode_kafka_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.watch import reading
from coopgroup.watch.reading import GroupReader
from coopgroup.watch.rows import (
    cards,
    headline,
    member_columns,
    member_rows,
    partition_columns,
    partition_rows,
)
from coopgroup.watch.values import GroupView, to_json
from tests.unit.groups.test_peers import described

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def done(result: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


@define
class Cluster:
    """A group of another client, and one topic; the group is classic unless its state is Dead.

    Attributes:
        members: partitions of each member; None if the coordinator does not tell them.
        count: number of partitions of the topic.
        committed: offset of each partition.
        begin: first offset of each partition.
        assignments: bytes of assignments that replace those of `members`.
        protocol: protocol of the last round.
        targets: partitions that members shall have, where they differ from `members`.
        is_moving: whether a partition has a new leader that the consumer does not know yet.
        classic: members of the classic protocol, if the broker assigns.
    """

    members: dict[str, Sequence[int] | None]
    count: int = 3
    state: str = "Stable"
    committed: dict[int, int] = field(factory=dict)
    begin: int = 0
    protocol_type: str = "consumer"
    protocol: str = "cooperative-sticky"
    assignments: dict[str, bytes] = field(factory=dict)
    subscriptions: dict[str, bytes] = field(factory=dict)
    targets: dict[str, Sequence[int]] = field(factory=dict)
    is_moving: bool = False
    classic: Sequence[str] = ()

    def describe(self, timeout_ms: int) -> tuple[Coordinator, DescribedGroup]:
        assert timeout_ms == 10_000

        def member(name: str, owned: Sequence[int] | None) -> DescribedMember:
            given = KafkaAssignment(assigned=ResourceSet({"t": owned or ()}), user_data=None)
            assignment = self.assignments.get(name)
            if assignment is None:
                assignment = b"" if owned is None else encode_kafka_assignment(given)
            return DescribedMember(
                member_id=f"{name}-1",
                client_id=name,
                client_host="/10.0.0.1",
                metadata=self.subscriptions.get(name, b""),
                assignment=assignment,
            )

        described = DescribedGroup(
            error_code=0,
            state=self.state,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            members=tuple(member(*one) for one in self.members.items()),
        )
        return Coordinator(node_id=1, host="localhost", port=9), described

    def describe_consumers(self, timeout_ms: int) -> tuple[Coordinator, ConsumerGroup]:
        """Describe a group that the broker assigns: members have what the others want to have."""
        coordinator, _ = self.describe(timeout_ms)
        if not self.members:
            return coordinator, ConsumerGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        members = (
            ConsumerMember(
                member_id=f"{name}-1",
                client_id=name,
                client_host="/10.0.0.1",
                epoch=7,
                is_classic=name in self.classic,
                owned=ResourceSet({"t": owned or ()}),
                target=ResourceSet({"t": self.targets.get(name, owned) or ()}),
            )
            for name, owned in self.members.items()
        )
        state = "Reconciling" if self.targets else "Stable"
        group = ConsumerGroup(error_code=0, state=state, assignor="uniform", members=tuple(members))
        return coordinator, group

    def list_consumer_group_offsets(self, groups: list[Any], **_: object) -> dict[str, Future[Any]]:
        partitions = [TopicPartition("t", *one) for one in self.committed.items()]
        found = SimpleNamespace(topic_partitions=partitions)
        return {groups[0].group_id: done(found)}

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:  # noqa: ANN401
        gone = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        known = SimpleNamespace(partitions=[SimpleNamespace(id=one) for one in range(self.count)])
        return {one: done(known if self.count else gone) for one in topics.topic_names}

    def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        return {
            one: done(SimpleNamespace(offset=self.begin if spec is OffsetSpec.earliest() else 10))
            for one, spec in asked.items()
        }

    def offsets_for_times(self, asked: list[TopicPartition], **_: object) -> list[Any]:
        if self.is_moving:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return [
            SimpleNamespace(
                topic=one.topic,
                partition=one.partition,
                offset=self._offset(one) if one.partition < self.count else -1,
                error=None if one.partition < self.count else gone,
            )
            for one in asked
        ]

    def _offset(self, asked: TopicPartition) -> int:
        return self.begin if asked.offset == OFFSET_BEGINNING else 20


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> GroupReader:
    monkeypatch.setattr(reading, "AdminClient", lambda _: None)
    return GroupReader("g", SETTINGS, read_settings(SETTINGS).connection)


def read(reader: GroupReader, cluster: Any) -> GroupView:  # noqa: ANN401
    reader._admin = reader._consumer = reader._describer = cluster  # noqa: SLF001
    return reader.read()


def owners(view: GroupView) -> list[tuple[str, str]]:
    return [(one.owner.removesuffix("-1"), one.state) for one in view.partitions]


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_owners_are_the_last_ones_while_the_coordinator_does_not_tell_them(
    reader: GroupReader, state: str
) -> None:
    """As brokers before Kafka 4 do during each round; the members of ours work on."""
    read(reader, Cluster({"a": [0, 1], "b": [2]}))
    joining = Cluster({"a": None, "c": None}, state=state)
    for _ in range(2):
        assert owners(read(reader, joining)) == [(one, "rebalancing") for one in ("a", "a", "")]
    stable = read(reader, Cluster({"a": [0], "c": [1]}))
    assert owners(stable) == [("a", "owned"), ("c", "owned"), ("", "unowned")]


@pytest.mark.parametrize(
    ("cluster", "ends"),
    [
        pytest.param(
            Cluster({"a": [0, 1, 2]}, count=2, committed={0: 5, 1: 20, 2: 5}),
            [(20, 15), (20, 0), (None, None)],
            id="an unknown end hides no other",
        ),
        pytest.param(
            Cluster({"a": [0, 1, 2]}, committed={0: 5}, is_moving=True),
            [(10, 5), (10, None), (10, None)],
            id="one by one when the consumer gets none",
        ),
        pytest.param(Cluster({}, count=0, committed={1: 5}), [(None, None)], id="deleted topic"),
    ],
)
def test_ends_and_lags_are_shown_as_far_as_they_are_known(
    reader: GroupReader, cluster: Cluster, ends: list[tuple[int | None, int | None]]
) -> None:
    assert [(one.end, one.lag) for one in read(reader, cluster).partitions] == ends


def test_members_know_their_own_partitions(reader: GroupReader) -> None:
    cluster = Cluster({"a": [0, 2], "b": [], "c": [1]}, committed={0: 5, 1: 15, 2: 10})
    found = {one.name: (one.partitions, one.lag) for one in read(reader, cluster).members}
    assert found == {"a": (2, 25), "b": (0, 0), "c": (1, 5)}


def test_sum_with_an_unknown_lag_is_unknown(reader: GroupReader) -> None:
    """A group without commits and 30 unread records was said to have no lag."""
    view = read(reader, Cluster({"a": [0], "b": [1, 2]}, committed={0: 5, 1: 15}))
    assert [one.lag for one in view.partitions] == [15, 5, None]
    assert ([one.lag for one in view.members], to_json(view)["lag"]) == ([15, None], None)
    assert "lag at least 20," in headline(view)
    assert "lag unknown," in headline(read(reader, Cluster({"a": [0, 1, 2]})))


@pytest.mark.parametrize(
    ("reset", "lags"),
    [
        (None, [None, 8, None, 0, None]),
        ("earliest", [10, 8, 10, 0, 10]),
        ("latest", [0, 8, 0, 0, 0]),
    ],
)
def test_commit_outside_of_the_log_counts_by_the_reset_of_the_group(
    reader: GroupReader, reset: str | None, lags: list[int | None]
) -> None:
    reader.offset_reset = reset
    cluster = Cluster({"a": range(5)}, count=5, begin=10, committed={0: 9, 1: 12, 2: 21, 3: 20})
    assert [one.lag for one in read(reader, cluster).partitions] == lags


NO_TOPIC = KafkaAssignment(assigned=ResourceSet({"a\0b": [0]}), user_data=None)


@pytest.mark.parametrize("given", [b"\0", encode_kafka_assignment(NO_TOPIC)])
def test_member_whose_assignment_cannot_be_read_ends_nothing(
    reader: GroupReader, given: bytes
) -> None:
    """An assertion in librdkafka ended the process: `group describe`, and the page of a watch."""
    cluster = Cluster({"a": [0, 1], "b": []}, assignments={"b": given}, committed={2: 20})
    view = read(reader, cluster)
    assert [(one.name, one.is_readable, one.partitions) for one in view.members] == [
        ("a", True, 2),
        ("b", False, 0),
    ]
    assert owners(view) == [("a", "owned"), ("a", "owned"), ("", "unowned")]
    assert [row[-1] for row in member_rows(view)] == ["other", "other, unreadable assignment"]


def test_member_without_a_client_id_has_its_member_id(reader: GroupReader) -> None:
    view = read(reader, Cluster({"": [0]}))
    assert [row[0] for row in member_rows(view)] == ["-1"]


@pytest.mark.parametrize(
    ("targets", "state", "shown"),
    [
        ({}, "stable", ["owned"] * 3),
        ({"a": [0], "b": [1, 2]}, "reconciling", ["owned", "waits for a", "owned"]),
    ],
)
def test_group_whose_broker_assigns_tells_how_far_it_is(
    reader: GroupReader, targets: dict[str, Sequence[int]], state: str, shown: list[str]
) -> None:
    cluster = Cluster({"a": [0, 1], "b": [2]}, state="Dead", targets=targets, classic=["b"])
    view = read(reader, cluster)
    assert (view.kind, view.state, view.assignor) == ("consumer", state, "uniform")
    assert [row[1] for row in partition_rows(view)] == shown
    rows = [dict(zip(member_columns(view), row, strict=True)) for row in member_rows(view)]
    assert [(row["epoch"], row["client"]) for row in rows] == [
        ("7", "not known"),
        ("7", "not known, classic protocol"),
    ]
    assert [one["protocol"] for one in to_json(view)["members"]] == ["consumer", "classic"]


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (Cluster({}, state="Dead"), "GROUP: got 'g', expected a group that exists"),
        (Cluster({}, protocol_type="connect"), "GROUP: got 'g', expected a group of consumers, or"),
    ],
)
def test_group_that_has_no_partitions_to_show_is_refused(
    reader: GroupReader, cluster: Cluster, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(reader, cluster)


class Named(Cluster):
    """A group of named resources: asked for topics or offsets, it fails."""

    def describe(self, timeout_ms: int) -> tuple[Coordinator, DescribedGroup]:
        coordinator, found = super().describe(timeout_ms)
        members: tuple[DescribedMember, ...] = (
            described("w1", ("heavy", -1), ("heavy", 0), traits={"places": 4}),
            described("w2", ("berlin", 0)),
        )
        if self.state != "Stable":
            members = tuple(attrs.evolve(one, assignment=b"") for one in members[:1])
        return coordinator, attrs.evolve(
            found, protocol_type="coopgroup", protocol_name="resources", members=members
        )

    def list_consumer_group_offsets(self, groups: list[Any], **_: object) -> dict[str, Future[Any]]:
        raise AssertionError(groups)


def test_group_of_named_resources_is_shown_without_words_of_topics(reader: GroupReader) -> None:
    view = read(reader, Named({}))
    assert headline(view) == (
        "g: stable, resources, 2 members, 3 resources, leader not known, coordinator localhost:9"
    )
    assert [dict(zip(member_columns(view), row, strict=True)) for row in member_rows(view)] == [
        {
            "member": name,
            "host": "10.0.0.1",
            "resources": count,
            "traits": traits,
            "lease": "-",
            "generation": "4",
            "client": "coopgroup",
        }
        for name, count, traits in (("w1", "2", '{"places":4}'), ("w2", "1", "-"))
    ]
    assert partition_columns(view) == ("resource", "state", "owner", "since")
    assert partition_rows(view) == [
        (resource, "owned", owner, "-")
        for resource, owner in (("berlin-0", "w2"), ("heavy", "w1"), ("heavy-0", "w1"))
    ]
    told = json.dumps([to_json(view), cards(view)])
    assert not [word for word in ("topic", "partition", 'lag"', "offset") if word in told]
    assert to_json(view)["resources"][1]["index"] == -1
    assert to_json(view)["members"][0]["resources"] == 2


def test_owners_of_resources_are_the_last_ones_during_a_round(reader: GroupReader) -> None:
    read(reader, Named({}))
    view = read(reader, Named({}, state="PreparingRebalance"))
    assert [(one.topic, one.owner, one.state) for one in view.partitions] == [
        ("heavy", "w1-1", "rebalancing"),
        ("heavy", "w1-1", "rebalancing"),
    ]


def test_member_of_this_package_tells_its_policy_and_its_assignor(reader: GroupReader) -> None:
    """Members of a later release tell even more."""
    told = MemberChoices(policy="simple", assignor="sticky", policy_digest=7)
    user_data = encode_user_data(UserData(choices=told)) + b"later"
    subscription = Subscription(topics=("t",), user_data=user_data)
    cluster = Cluster(
        {"a": [0], "b": [1]},
        subscriptions={"a": encode_subscription(subscription)},
        protocol="coopgroup",
    )
    view = read(reader, cluster)
    assert [one.choices for one in view.members] == [told, None]
    assert [one.is_coopgroup for one in view.members] == [True, False]
