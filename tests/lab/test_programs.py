"""Workers of other clients than confluent_kafka and ours, on a real broker."""

from __future__ import annotations

import time

import pytest

from coopgroup.testing import KafkaCluster
from tests.lab.analysis import Window, measure
from tests.lab.controller import Trial
from tests.lab.programs import missing_tool

PARTITIONS = 8


@pytest.mark.verify
@pytest.mark.parametrize(
    "kind",
    [
        "java-kip848",
        pytest.param(
            "franz-go-kip848",
            marks=pytest.mark.skipif(
                missing_tool("franz-go-kip848") is not None, reason="Go is not installed"
            ),
        ),
    ],
)
def test_join_of_another_client_hands_out_each_record_once(
    kafka_cluster: KafkaCluster, kind: str
) -> None:
    kafka_cluster.create_topic(kind, PARTITIONS)
    with Trial(
        client_config=kafka_cluster.client_config(),
        topics=[kind],
        partitions_per_topic=PARTITIONS,
    ) as trial:
        trial.start_producer(rate_per_partition=20)
        group = trial.group(kind)
        group.start("m1")
        group.prepare("m2")
        assert group.wait_settled(quiet_s=0.5)
        with trial.window() as opened:
            group.start("m2")
            assert group.wait_settled(quiet_s=0.5)
        trial.finish()
        log, acknowledged = group.log(), trial.acknowledged()
    assert measure(log, opened.window).moved == PARTITIONS // 2
    facts = measure(log, Window(begin_ns=0, end_ns=time.monotonic_ns()))
    assert facts.consumed == len(acknowledged) > 0
    assert (facts.lost, facts.duplicated, facts.double_owner_transitions) == (0, 0, 0)
    assert facts.failed_commits == 0
