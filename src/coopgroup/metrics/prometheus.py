"""`PrometheusMetrics`: a telemetry listener that Prometheus scrapes."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Final

from attrs import define
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.health.value import DEFAULT_LIMITS, HealthLimits
from coopgroup.metrics.feed import FeedOptions, MemberListener, MetricsFeed, Observed, Probe
from coopgroup.metrics.names import COMMON_LABELS, DROPPED, METRICS, Kind, Metric
from coopgroup.telemetry import Envelope

_collectors: Final[weakref.WeakKeyDictionary[CollectorRegistry, _Collector]] = (
    weakref.WeakKeyDictionary()
)
_lock: Final = threading.Lock()


class PrometheusMetrics:
    """Metrics of any number of members, for `coopgroup.telemetry.listener`.

    All listeners of one registry share its metrics, and the options of the first one. So each
    consumer may have its own listener, or all the same. Metrics with equal labels are added up.

    Args:
        registry: where the metrics are registered; the default registry of `prometheus_client`.
        drain_horizon_s: time in which `coopgroup_members_wanted` members would drain the lag of the
            group, in seconds. None computes no such number, and looks up no lags.
        limits: when a member counts as stuck, for `coopgroup_problems`; give `coopgroup.health`
            the same.

    Raises:
        ConfigurationError: an argument is not valid, or the registry has listeners with other
            options.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry | None = None,
        drain_horizon_s: float | None = None,
        limits: HealthLimits = DEFAULT_LIMITS,
    ) -> None:
        options = FeedOptions(limits=limits, drain_horizon_s=drain_horizon_s)
        self._registry = REGISTRY if registry is None else registry
        with _lock:
            collector = _collectors.get(self._registry)
            if collector is None:
                collector = _Collector(MetricsFeed(options))
                self._registry.register(collector)
                _collectors[self._registry] = collector
        if collector.feed.options != options:
            raise ConfigurationError(
                "PrometheusMetrics", options, f"one registry has one set: {collector.feed.options}"
            )
        self._feed = collector.feed

    def watch_member(self, probe: Probe) -> MemberListener:
        """Return the listener of one member; a consumer calls it when it is made."""
        return self._feed.watch(probe)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record that does not come from a consumer, such as one that was read back."""
        self._feed.put(None, envelope)

    def text(self) -> str:
        """Return all metrics of the registry in the text format that Prometheus scrapes."""
        return generate_latest(self._registry).decode()


@define(eq=False)
class _Collector:
    """Collects all metrics of one registry (`prometheus_client.registry.Collector`)."""

    feed: MetricsFeed

    def describe(self) -> Iterator[Any]:
        """Yield the metrics without values, so that registering takes no sample."""
        return iter(self._families().values())

    def collect(self) -> Iterator[Any]:
        """Yield all metrics with their values."""
        families = self._families()
        for name, series in self.feed.values().items():
            for key, one in series.items():
                if isinstance(one, Observed):
                    bounds = (*map(str, METRICS[name].buckets), "+Inf")
                    counts = itertools.accumulate(one.counts)
                    buckets = list(zip(bounds, counts, strict=True))
                    families[name].add_metric(key, buckets, sum(one.sums))
                else:
                    families[name].add_metric(key, one)
        return iter(families.values())

    def _families(self) -> dict[str, Any]:
        return {name: _family(metric) for name, metric in METRICS.items()}


def _family(metric: Metric) -> Any:  # noqa: ANN401  (one of three classes)
    labels = () if metric.name == DROPPED else (*COMMON_LABELS, *metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.help, labels=labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.help, labels=labels)
