"""Reading a group, with an admin client that a test answers; real ones are in tests/broker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.kafka.config.settings import read_settings
from coopgroup.watch import reading
from coopgroup.watch.reading import GroupReader
from coopgroup.watch.values import GroupView

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
    """A classic group of another client, and one topic."""

    members: dict[str, Sequence[int] | None]  # None if the coordinator does not tell partitions
    count: int = 3
    state: str = "STABLE"
    committed: dict[int, int] = field(factory=dict)
    is_moving: bool = False  # the consumer does not know the new leader of a partition yet

    def describe_consumer_groups(self, groups: list[str], **_: object) -> dict[str, Future[Any]]:
        def member(name: str, owned: Sequence[int] | None) -> SimpleNamespace:
            partitions = [TopicPartition("t", number) for number in owned or ()]
            return SimpleNamespace(
                member_id=name,
                client_id=name,
                host="/10.0.0.1",
                group_instance_id=None,
                assignment=SimpleNamespace(topic_partitions=partitions),
                target_assignment=None,
            )

        described = SimpleNamespace(
            state=SimpleNamespace(name=self.state),
            type=SimpleNamespace(name="CLASSIC"),
            members=[member(*one) for one in self.members.items()],
            partition_assignor="cooperative-sticky",
            coordinator=None,
        )
        return {groups[0]: done(described)}

    def list_consumer_group_offsets(self, groups: list[Any], **_: object) -> dict[str, Future[Any]]:
        partitions = [TopicPartition("t", *one) for one in self.committed.items()]
        found = SimpleNamespace(topic_partitions=partitions)
        return {groups[0].group_id: done(found)}

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:  # noqa: ANN401
        gone = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        known = SimpleNamespace(partitions=[SimpleNamespace(id=one) for one in range(self.count)])
        return {one: done(known if self.count else gone) for one in topics.topic_names}

    def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        return {one: done(SimpleNamespace(offset=10)) for one in asked}

    def offsets_for_times(self, asked: list[TopicPartition], **_: object) -> list[Any]:
        if self.is_moving:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return [
            SimpleNamespace(
                topic=one.topic,
                partition=one.partition,
                offset=20 if one.partition < self.count else -1,
                error=None if one.partition < self.count else gone,
            )
            for one in asked
        ]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> GroupReader:
    monkeypatch.setattr(reading, "AdminClient", lambda _: None)
    return GroupReader("g", SETTINGS, read_settings(SETTINGS).connection)


def read(reader: GroupReader, cluster: Any) -> GroupView:  # noqa: ANN401
    reader._admin = reader._consumer = cluster  # noqa: SLF001
    return reader.read()


def owners(view: GroupView) -> list[tuple[str, str]]:
    return [(one.owner, one.state) for one in view.partitions]


@pytest.mark.parametrize("state", ["PREPARING_REBALANCING", "COMPLETING_REBALANCING"])
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
