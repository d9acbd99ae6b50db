"""Deserializers on a real broker, beside DeserializingConsumer, and with a Schema Registry."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, Producer, TopicPartition
from confluent_kafka.error import ConsumeError, ValueDeserializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, StringDeserializer

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique

pytestmark = pytest.mark.verify

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
BAD = 3


def number(data: bytes | None, _: SerializationContext) -> int | None:
    return None if data is None else int(data)


def config_of(kafka_cluster: KafkaCluster, group: str) -> dict[str, Any]:
    return {
        **kafka_cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "key.deserializer": StringDeserializer(),
        "value.deserializer": number,
    }


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    """Return a topic with six records, one of which cannot be decoded."""
    name = unique("decoded")
    kafka_cluster.create_topic(name, 1)
    producer = Producer(kafka_cluster.client_config())
    for place in range(6):
        producer.produce(name, b"x" if place == BAD else str(place), f"k{place}")
    producer.produce(name, None, "k6")
    assert producer.flush(60) == 0
    return name


def told(consumer: Any, topic: str) -> list[object]:  # noqa: ANN401  (either consumer)
    """Return what `poll` gives and raises, with the position after each."""
    found = list[object]()
    while len(found) < 7:
        try:
            message = consumer.poll(60)
            assert message is not None
            outcome: object = (message.key(), message.value())
        except ConsumeError as error:
            outcome = (type(error), str(error), error.code, error.name, bytes_of(error))
        [place] = consumer.position([TopicPartition(topic, 0)])
        found.append((outcome, place.offset))
    return found


def bytes_of(error: ConsumeError) -> bytes | None:
    """Return the value of the record that an exception carries."""
    bad = error.kafka_message
    assert bad is not None
    assert (bad.offset(), bad.error()) == (BAD, None)
    return bad.value()


def test_poll_is_that_of_deserializing_consumer(kafka_cluster: KafkaCluster, topic: str) -> None:
    outcomes, commits = [], []
    for kind in (DeserializingConsumer, CooperativeConsumer):
        config = config_of(kafka_cluster, f"{topic}-{kind.__name__}")
        with closing(kind(config)) as consumer:
            consumer.subscribe([topic])
            outcomes.append(told(consumer, topic))
            consumer.commit(asynchronous=False)
            commits.append([one.offset for one in consumer.committed([TopicPartition(topic, 0)])])
    assert outcomes[1] == outcomes[0]
    assert commits == [[7], [7]]


def test_schema_registry_decodes_records(kafka_cluster: KafkaCluster) -> None:
    """As on docs/deserializers.md; the registry is in memory."""
    registry = SchemaRegistryClient.new_client({"url": f"mock://{unique('registry')}"})
    topic = unique("orders")
    kafka_cluster.create_topic(topic, 1)
    producer = Producer(kafka_cluster.client_config())
    context = SerializationContext(topic, MessageField.VALUE)
    producer.produce(topic, AvroSerializer(registry, AVRO)({"id": 7}, context))
    producer.produce(topic, b"no schema id")
    assert producer.flush(60) == 0
    config = config_of(kafka_cluster, topic) | {"value.deserializer": AvroDeserializer(registry)}
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        value: object = message.value()
        assert value == {"id": 7}
        with pytest.raises(ValueDeserializationError):
            consumer.poll(60)
