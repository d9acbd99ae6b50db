"""Metadata answers without brokers do not silence a member (librdkafka#5301)."""

import time
from pathlib import Path

import pytest

from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique
from tests.support.metadata_proxy import metadata_proxy

pytestmark = pytest.mark.verify

PARTITIONS = 2
OUTAGE_S = 3.0
OUTAGES = 3
WITHIN_S = 30.0


@pytest.mark.slow
def test_a_member_gets_records_again_when_brokers_return_to_the_metadata(
    kafka_cluster: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """About one client of six survives such an outage without help."""
    topic = unique("silenced")
    kafka_cluster.create_topic(topic, PARTITIONS)
    with (
        metadata_proxy(kafka_cluster.bootstrap_servers.split(",")[0]) as proxy,
        Crew(kafka_cluster, tmp_path) as crew,
        caplog.at_level("INFO", logger="coopgroup"),
    ):
        configuration = {
            "bootstrap.servers": proxy.address,
            "topic.metadata.refresh.interval.ms": 500,
            "auto.offset.reset": "earliest",
        }
        crew.add("m", configuration=configuration).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "the assignment")
        for outage in range(1, OUTAGES + 1):
            proxy.lists_brokers = False
            crew.during(OUTAGE_S)
            proxy.lists_brokers = True
            produce(kafka_cluster, topic, [1] * PARTITIONS)
            until_s = time.monotonic() + WITHIN_S
            while (count := sum(map(len, crew.messages.values()))) < outage * PARTITIONS:
                assert time.monotonic() < until_s, caplog.messages
                crew.poll()
            assert count == outage * PARTITIONS
        assert proxy.without_brokers
        assert not [one for one in caplog.messages if one.startswith("membership_lost ")]
