"""Look-ups on the broker inside the confluent-kafka wheel, which has no controller."""

from __future__ import annotations

from confluent_kafka import Producer

from coopgroup.kafka.lookup import ClusterLookup
from coopgroup.leader.request import TopicMetadata
from coopgroup.model import ResourceSet
from coopgroup.testing.trial.brokers import open_stage


def test_metadata_when_there_is_no_controller_is_listed() -> None:
    """Partitions without racks; the controller is waited for once only."""
    with open_stage("mock", 4, lambda _line: None) as stage:
        config = dict(stage.client_config)
        producer = Producer(config)
        producer.produce("orders", b"x")
        producer.flush(10)
        lookup = ClusterLookup(config, "billing", "earliest", 500)
        expected = TopicMetadata(resources=ResourceSet({"orders": range(4)}))
        assert [lookup.metadata(["orders"]) for _ in range(2)] == [expected] * 2
        lookup.close()
