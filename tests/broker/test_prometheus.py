"""A real Prometheus scrapes a member on a real broker, and evaluates our alerts and panels."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from coopgroup import CooperativeConsumer
from coopgroup.health import serve
from coopgroup.metrics import METRICS, PrometheusMetrics
from coopgroup.testing import KafkaCluster
from deploy.monitoring import make
from tests.support.live_group import unique
from tests.support.probes import get
from tests.support.prometheus import needs_prometheus, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

PARTITIONS = 4
WAIT_S = 60.0


@needs_prometheus
def test_prometheus_shows_a_rebalance_and_alerts_of_a_stuck_handler(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The handler hangs: the probe turns red, and the alert of stuck members waits to fire."""
    topic = unique("prometheus")
    kafka_cluster.create_topic(topic, PARTITIONS)
    metrics = PrometheusMetrics(registry=CollectorRegistry(), drain_horizon_s=60)
    settings = {
        **kafka_cluster.client_config(),
        "group.id": topic,
        "client.id": "a",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
        "max.poll.interval.ms": 6_000,
        "coopgroup.telemetry.listener": metrics,
    }
    consumer = CooperativeConsumer(settings)
    with (
        consumer,
        serve(0, consumer, metrics=metrics) as server,
        running(tmp_path, server.port, make.ALERTS) as prometheus,
    ):
        consumer.subscribe([topic])

        def shows(query: str, value: float) -> None:
            wait_for(
                lambda: prometheus.query(query) == [value],
                f"{query} is {value}",
                WAIT_S,
                poll=lambda: consumer.poll(0.1),
            )

        shows(f'sum by (group) (coopgroup_assigned_partitions{{group="{topic}"}})', PARTITIONS)
        shows("coopgroup_members", 1)
        assert prometheus.query("sum(coopgroup_rebalances_total)")[0] >= 1
        assert prometheus.query("sum(coopgroup_rebalance_duration_seconds_count)")[0] >= 1
        scraped = {*prometheus.get("metadata")}
        assert {name.removesuffix("_total") for name in METRICS} <= {
            name.removesuffix("_total") for name in scraped
        }
        for row in make.read_description()["rows"]:
            for query in (one["query"] for panel in row["panels"] for one in panel["queries"]):
                filled = query.replace("SELECT", f'group="{topic}"')
                prometheus.query(filled.replace("$__rate_interval", "1m"))  # raises if refused
        assert prometheus.firing() == set()

        # nobody polls
        wait_for(lambda: get(server.port, "livez")[0] == 503, "a red probe", WAIT_S)
        wait_for(lambda: "CoopgroupMemberStuck" in prometheus.firing(), "the alert", WAIT_S)
