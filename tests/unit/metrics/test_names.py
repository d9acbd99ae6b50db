"""The table of metrics follows the rules of Prometheus."""

import re

import pytest

from coopgroup.metrics.names import COMMON_LABELS, METRICS, Kind, Merge


def test_names_follow_the_rules_of_prometheus(subtests: pytest.Subtests) -> None:
    for metric in METRICS.values():
        with subtests.test(metric.name):
            assert re.fullmatch(r"coopgroup(_[a-z]+)+", metric.name)
            assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
            assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
            assert list(metric.buckets) == sorted(set(metric.buckets))
            assert not set(metric.labels) & set(COMMON_LABELS)
            assert metric.help.endswith(".")
            if metric.kind is Kind.GAUGE and metric.name.endswith("_seconds"):
                assert metric.merge is not Merge.SUM
