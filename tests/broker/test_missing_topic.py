"""A topic that does not exist is reported once, and waited for."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for


def test_misspelt_topic_is_reported_once_and_its_records_come_when_it_exists(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("misspelt")
    told: list[KafkaError] = []
    config = {
        **kafka_cluster.client_config(),
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 300,
        "error_cb": told.append,
        "allow.auto.create.topics": False,
    }
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(1) is None
        wait_for(lambda: consumer.poll(0.05) is None and told != [], "error_cb is called")
        kafka_cluster.create_topic(topic, 1)
        produce(kafka_cluster, topic, [1])
        message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    assert [one.code() for one in told] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert topic in told[0].str()
    assert caplog.text.count("topics_missing") == 1
