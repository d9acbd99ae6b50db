"""`poll` raises the exceptions of callbacks; membership and assignment stay correct."""

from pathlib import Path

import pytest
from confluent_kafka import Message, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, coopgroup_threads, produce, unique
from tests.support.waiting import wait_for


class _Failing:
    """Callbacks that raise on request.

    Attributes:
        failing: names of the callbacks that raise.
        heard: the calls.
        raised: exceptions that `poll` raised.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.heard: list[tuple[str, list[int]]] = []
        self.raised: list[str] = []

    def subscribe(self, consumer: CooperativeConsumer, topic: str) -> None:
        consumer.subscribe(
            [topic],
            on_assign=lambda _, parts: self._hear("assign", parts),
            on_revoke=lambda _, parts: self._hear("revoke", parts),
            on_lost=lambda _, parts: self._hear("lost", parts),
        )

    def _hear(self, name: str, partitions: list[TopicPartition]) -> None:
        self.heard.append((name, [one.partition for one in partitions]))
        if name in self.failing:
            self.failing.remove(name)
            raise RuntimeError(f"on_{name} fails")

    def poll(self, consumer: CooperativeConsumer) -> Message | None:
        try:
            return consumer.poll(0.05)
        except RuntimeError as error:
            self.raised.append(str(error))
            return None


@pytest.mark.verify
def test_the_revocation_completes_when_on_revoke_raises(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = unique("revoke")
    kafka_cluster.create_topic(topic, 2)
    produce(kafka_cluster, topic, [3, 3])
    callbacks = _Failing()
    with Crew(kafka_cluster, tmp_path) as crew:
        first = crew.add("a")
        callbacks.subscribe(first, topic)
        got: list[Message] = []

        def has_all() -> bool:
            message = callbacks.poll(first)
            if message is not None:
                got.append(message)
            return len(got) == 6

        wait_for(has_all, "all records")
        callbacks.failing.add("revoke")
        second = crew.add("b")
        second.subscribe([topic])
        late: list[Message] = []

        def has_moved() -> bool:
            late.extend(one for one in (callbacks.poll(first), second.poll(0.05)) if one)
            return crew.counts() == [1, 1]

        wait_for(has_moved, "the partition moves")
        assert callbacks.raised == ["on_revoke fails"]
        given_up = callbacks.heard[-1][1]
        assert callbacks.heard[-1][0] == "revoke"
        produce(kafka_cluster, topic, [1, 1])

        def has_the_rest() -> bool:
            late.extend(one for one in (callbacks.poll(first), second.poll(0.05)) if one)
            return len(late) == 2

        wait_for(has_the_rest, "the new records, and only those")
        assert sorted(one.offset() or 0 for one in late) == [3, 3]
        assert crew.held("b") == [(topic, one) for one in given_up]


def test_the_consumer_is_closed_when_on_revoke_raises_in_close(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """`close` raises it last: offsets are committed, the group is left, threads have ended."""
    topic = unique("closing")
    kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster, topic, [3])
    callbacks = _Failing()
    with Crew(kafka_cluster, tmp_path) as crew:
        consumer = crew.add("a")
        callbacks.subscribe(consumer, topic)
        got: list[Message] = []

        def has_all() -> bool:
            message = callbacks.poll(consumer)
            if message is not None:
                got.append(message)
            return len(got) == 3

        wait_for(has_all, "all records")
        callbacks.failing.add("revoke")
        with pytest.raises(RuntimeError, match="on_revoke fails"):
            crew.remove("a")
        assert coopgroup_threads() == []
        with pytest.raises(RuntimeError, match="Consumer closed"):
            consumer.poll(0)
        crew.add("b").subscribe([topic])
        assert crew.committed(topic, 1) == [3]
