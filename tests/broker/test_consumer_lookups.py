"""The look-ups of both consumers, and where they continue afterwards."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique

WAIT_S = 60.0
RECORDS = 6


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = unique("look")
    kafka_cluster.create_topic(name, 1)
    produce(kafka_cluster, name, [RECORDS])
    return name


def config_of(cluster: KafkaCluster) -> dict[str, object]:
    return cluster.client_config() | {
        "group.id": unique("g"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


@pytest.mark.broker
def test_the_consumer_looks_up_the_same_as_confluent_kafka(
    topic: str, kafka_cluster: KafkaCluster
) -> None:
    config, place = config_of(kafka_cluster), TopicPartition(topic, 0)
    theirs = Consumer(config)
    with CooperativeConsumer(config) as ours:
        ours.subscribe([topic])
        first = ours.poll(WAIT_S)
        assert first is not None
        at_ms = first.timestamp()[1]
        late_ms = int(time.time() * 1000) + 3_600_000
        for one in (ours, theirs):
            assert one.get_watermark_offsets(place, timeout=WAIT_S) == (0, RECORDS)
            for asked_ms, offset in ((at_ms, 0), (late_ms, -1)):
                asked = [TopicPartition(topic, 0, asked_ms)]
                (found,) = one.offsets_for_times(asked, timeout=WAIT_S)
                assert found.offset == offset
            assert set(one.list_topics(topic, timeout=WAIT_S).topics) == {topic}
        assert ours.cluster_id(WAIT_S) == ours.list_topics(topic, timeout=WAIT_S).cluster_id
        member = ours.memberid()
        assert member is not None
        assert member.encode() in ours.consumer_group_metadata()
        assert ours.health().group_id == config["group.id"]
        for call in (ours.incremental_unassign, ours.assign):
            with pytest.raises(KafkaException):
                call([place])
        with pytest.raises(KafkaException):
            ours.unassign()
    theirs.close()


@pytest.mark.broker
def test_on_assign_begins_at_an_end_of_the_log(topic: str, kafka_cluster: KafkaCluster) -> None:
    """The group has a commit, which does not count then."""
    config = config_of(kafka_cluster)
    place = TopicPartition(topic, 0)
    with CooperativeConsumer(config) as one:
        one.subscribe([topic])
        assert one.poll(WAIT_S) is not None
        one.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    begin = TopicPartition(topic, 0, OFFSET_BEGINNING)
    with CooperativeConsumer(config) as one:
        one.subscribe([topic], on_assign=lambda own, _: own.incremental_assign([begin]))
        message = one.poll(WAIT_S)
        assert message is not None
        assert message.offset() == 0
        one.commit(asynchronous=False)
        assert [found.offset for found in one.committed([place], WAIT_S)] == [1]


@pytest.mark.broker
def test_the_consumer_for_asyncio_looks_up_and_continues_there(
    topic: str, kafka_cluster: KafkaCluster
) -> None:
    async def look_up() -> None:
        config, place = config_of(kafka_cluster), TopicPartition(topic, 0)
        async with AsyncCooperativeConsumer(config, topic) as one, asyncio.timeout(WAIT_S):
            first = await one.getone()
            assert one.subscription() == {topic}
            assert topic in await one.topics()
            assert await one.beginning_offsets([place]) == {place: 0}
            assert await one.end_offsets([place]) == {place: RECORDS}
            late_ms = int(time.time() * 1000) + 3_600_000
            assert await one.offsets_for_times({place: first.timestamp}) == {place: 0}
            assert await one.offsets_for_times({place: late_ms}) == {place: None}
            assert await one.committed(place) is None
            assert await one.seek_to_committed() == {place: None}
            assert await one.position(place) == 1
            await one.commit()
            await one.seek_to_end()
            assert await one.position(place) == RECORDS
            assert await one.seek_to_committed(place) == {place: 1}
            assert (await one.getone()).offset == 1
            await one.seek_to_beginning(place)
            assert (await one.getone()).offset == 0
            # It is read from time to time, once it is asked for.
            while one.highwater(place) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert (one.highwater(place), one.lag(place)) == (RECORDS, RECORDS - 1)
            member = one.memberid()
            assert member is not None
            assert member.encode() in one.consumer_group_metadata()
            assert one.health().group_id == config["group.id"]
            assert one.warmups() == frozenset()

    asyncio.run(look_up())
