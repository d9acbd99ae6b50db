"""Metrics on OpenTelemetry, read back through its SDK."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from coopgroup.kafka.records.commit_meter import COMMIT_BUCKETS_S
from coopgroup.metrics import METRICS, OpenTelemetryMetrics
from coopgroup.metrics.names import ATTRIBUTES, COMMON_LABELS
from coopgroup.telemetry import StateChanged
from tests.unit.metrics.members import GivenProbe, told


def _new() -> tuple[OpenTelemetryMetrics, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    return OpenTelemetryMetrics(meter_provider=provider), reader


def _points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    found = reader.get_metrics_data()
    assert found is not None
    return {
        one.name: list(one.data.data_points)
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for one in scope.metrics
    }


def test_events_become_counters_and_histograms_with_attributes() -> None:
    metrics, reader = _new()
    probe = GivenProbe()
    listener = metrics.watch_member(probe)
    listener(told(StateChanged(before="stable", after="joining", cause="a round has begun")))
    listener(told())
    points = _points(reader)
    (rebalances,) = points["coopgroup.rebalances"]
    assert rebalances.value == 1
    assert rebalances.attributes == {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "g",
        "messaging.client.id": "c",
        "coopgroup.cause": "other_member",
    }
    (duration,) = points["coopgroup.rebalance_duration"]
    assert (duration.count, duration.explicit_bounds[0]) == (1, 0.01)
    listener(told())
    listener(told())
    (more,) = _points(reader)["coopgroup.rebalances"][1:]
    assert (more.value, more.attributes["coopgroup.cause"]) == (2, "follow_up")


def test_gauges_and_commits_are_read_at_each_collection() -> None:
    metrics, reader = _new()
    probe = GivenProbe()
    probe.meter.add(0.5, is_committed=True)
    metrics.watch_member(probe)
    points = _points(reader)
    assert [one.value for one in points["coopgroup.assigned_partitions"]] == [2]
    assert sorted(one.value for one in points["coopgroup.commits"]) == [0, 1]
    assert [one.value for one in points["coopgroup.dropped_telemetry"]] == [0]
    assert [one.value for one in points["coopgroup.records_lag"]] == [12]


def test_durations_of_commits_are_a_histogram_with_exact_counts_and_sum() -> None:
    """Each commit is in one collection, also those of a member that is gone."""
    metrics, reader = _new()
    probe = GivenProbe()
    metrics.watch_member(probe)
    for seconds in (0.011, 0.02, 0.5, 99.0):  # 0.5 is a bound
        probe.meter.add(seconds, is_committed=True)
    (point,) = _points(reader)["coopgroup.commit_duration"]
    assert point.explicit_bounds == COMMIT_BUCKETS_S
    counts = dict(zip((*COMMIT_BUCKETS_S, "more"), point.bucket_counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {
        0.025: 2,
        0.5: 1,
        "more": 1,
    }
    assert point.sum == pytest.approx(99.531)
    probe.meter.add(0.3, is_committed=False)
    _points(reader)
    del probe
    (point,) = _points(reader)["coopgroup.commit_duration"]
    assert (point.count, point.sum) == (5, pytest.approx(99.831))


def test_every_label_has_an_attribute() -> None:
    labels = {*COMMON_LABELS, *(label for one in METRICS.values() for label in one.labels)}
    assert labels == ATTRIBUTES.keys()
