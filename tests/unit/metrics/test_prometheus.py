"""Metrics in the text that Prometheus scrapes."""

from __future__ import annotations

import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.metrics import PrometheusMetrics
from coopgroup.metrics.names import COMMON_LABELS
from coopgroup.telemetry import MembershipLost, ResourcesStopped, StateChanged, StopReason
from tests.unit.metrics.members import HEALTH, ROUND, GivenProbe, told


def _samples(metrics: PrometheusMetrics) -> dict[tuple[str, ...], float]:
    """Return the value of each series, by its name and the labels beside the common ones."""
    found = {}
    for family in text_string_to_metric_families(metrics.text()):
        for one in family.samples:
            extra = [value for name, value in one.labels.items() if name not in COMMON_LABELS]
            found[one.name, *extra] = one.value
    return found


def test_counters_histograms_and_gauges_are_in_the_text() -> None:
    metrics, probe = PrometheusMetrics(registry=CollectorRegistry()), GivenProbe()
    probe.meter.add(0.02, is_committed=True)
    listener = metrics.watch_member(probe)
    for record in (
        StateChanged(before="stable", after="joining", cause="a round has begun"),
        None,
        MembershipLost(resources=ResourceSet({"t": [0, 1]}), cause="lease expired"),
        ResourcesStopped(
            resources=ResourceSet({"t": [0]}), reason=StopReason.REVOKED, duration_ms=70
        ),
    ):
        listener(told(record))
    found = _samples(metrics)
    assert found["coopgroup_rebalances_total", "other_member"] == 1
    assert found["coopgroup_lost_partitions_total", "lease_expired"] == 2
    assert found["coopgroup_revocation_duration_seconds_bucket", "0.05"] == 0
    assert found["coopgroup_revocation_duration_seconds_bucket", "0.1"] == 1
    assert found["coopgroup_revocation_duration_seconds_bucket", "+Inf"] == 1
    assert found["coopgroup_revocation_duration_seconds_sum",] == 0.07
    assert found["coopgroup_commits_total", "committed"] == 1
    assert found["coopgroup_commit_duration_seconds_count",] == 1
    assert found["coopgroup_assigned_partitions",] == 2
    assert found["coopgroup_dropped_telemetry_total",] == 0


def test_first_event_of_a_member_is_an_increase() -> None:
    """A series that begins with its first event has no increase, so no alert would fire."""
    metrics, probe = PrometheusMetrics(registry=CollectorRegistry()), GivenProbe()
    listener = metrics.watch_member(probe)
    before = _samples(metrics)
    listener(told())
    listener(told(MembershipLost(resources=ResourceSet({"t": [0]}), cause="lease expired")))
    after = _samples(metrics)
    counted = [key for key in after if key[0].endswith(("_total", "_count"))]
    assert {key: after[key] - before[key] for key in counted if after[key] != before[key]} == {
        ("coopgroup_rebalances_total", "other"): 1,
        ("coopgroup_lost_partitions_total", "lease_expired"): 1,
    }


def test_leader_that_leads_no_longer_tells_nothing_of_the_group() -> None:
    metrics, probe = PrometheusMetrics(registry=CollectorRegistry()), GivenProbe()
    probe.health = evolve(HEALTH, leads=True)
    metrics.watch_member(probe)(told(ROUND))
    assert _samples(metrics)["coopgroup_members",] == 2
    probe.health = HEALTH
    assert ("coopgroup_members",) not in _samples(metrics)


def test_registry_has_one_set_of_options() -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry=registry)
    with pytest.raises(ConfigurationError, match="one registry has one set"):
        PrometheusMetrics(registry=registry, drain_horizon_s=60)
