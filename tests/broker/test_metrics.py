"""Metrics of real members, and their health on a real broker."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from coopgroup import CooperativeConsumer
from coopgroup.metrics import PrometheusMetrics
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

WAIT_S = 60.0


def _settings(cluster: KafkaCluster, metrics: PrometheusMetrics, **more: object) -> dict[str, Any]:
    return {
        **cluster.client_config(),
        "group.id": unique("metrics"),
        "client.id": "c",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        "auto.commit.interval.ms": 100,
        "coopgroup.telemetry.listener": metrics,
        **more,
    }


def _value(metrics: PrometheusMetrics, name: str, **labels: str) -> float:
    """Return the sum of the series of a metric with some labels."""
    return sum(
        one.value
        for family in text_string_to_metric_families(metrics.text())
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    )


def _new() -> PrometheusMetrics:
    return PrometheusMetrics(registry=CollectorRegistry(), drain_horizon_s=60.0)


def test_consumer_has_metrics_of_its_rounds_commits_and_records(
    kafka_cluster: KafkaCluster,
) -> None:
    topic, metrics = unique("metrics"), _new()
    kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster, topic, [10])
    consumer = CooperativeConsumer(_settings(kafka_cluster, metrics))
    consumer.subscribe([topic])
    taken = 0
    deadline_s = time.monotonic() + WAIT_S
    while taken < 4 and time.monotonic() < deadline_s:
        taken += consumer.poll(0.1) is not None
    consumer.pause([TopicPartition(topic, 0)])

    def polled(name: str, value: float, **labels: str) -> None:
        def is_there() -> bool:
            consumer.poll(0.01)
            return _value(metrics, name, **labels) == value

        wait_for(is_there, name, WAIT_S)

    polled("coopgroup_assigned_partitions", 1, client_id="c")
    polled("coopgroup_rebalances_total", 1, cause="subscribed")
    polled("coopgroup_records_lag", 6)
    polled("coopgroup_members", 1)
    polled("coopgroup_problems", 0)
    wait_for(
        lambda: _value(metrics, "coopgroup_commits_total", outcome="committed") >= 1,
        "a commit",
        WAIT_S,
        poll=lambda: consumer.poll(0.01),
    )
    assert _value(metrics, "coopgroup_commit_duration_seconds_count") >= 1
    assert 0 < _value(metrics, "coopgroup_lease_remaining_seconds") <= 6
    assert abs(_value(metrics, "coopgroup_last_poll_timestamp_seconds") - time.time()) < 60
    assert consumer.health().is_ready
    consumer.close()
    assert not consumer.health().is_joined
    assert _value(metrics, "coopgroup_assigned_partitions") == 0
