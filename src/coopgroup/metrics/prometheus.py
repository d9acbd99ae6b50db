"""`PrometheusMetrics`: a telemetry listener that Prometheus scrapes."""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from attrs import define, field
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.health.value import DEFAULT_LIMITS, HealthLimits
from coopgroup.kafka.records.commit_meter import COMMIT_BUCKETS_S
from coopgroup.metrics.events import Change
from coopgroup.metrics.feed import CommonLabels, FeedOptions, MemberListener, MetricsFeed, Probe
from coopgroup.metrics.names import (
    COMMIT_SECONDS,
    COMMITS,
    COMMON_LABELS,
    DROPPED,
    METRICS,
    Kind,
    Metric,
)
from coopgroup.telemetry import Envelope

__all__ = ["PrometheusMetrics"]

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
        per_partition: whether each partition has a series of its own. Switch it on only with few
            partitions.
        drain_horizon_s: time in which `coopgroup_members_wanted` members would drain the lag of the
            group, in seconds. None computes no such number, and looks up no lags.
        wanted_window_s: how long the load must be lower before that number falls, in seconds.
        queue_records: number of telemetry records that may wait. Further records are dropped and
            counted in `coopgroup_dropped_telemetry_total`.
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
        per_partition: bool = False,
        drain_horizon_s: float | None = None,
        wanted_window_s: float = 300.0,
        queue_records: int = 10_000,
        limits: HealthLimits = DEFAULT_LIMITS,
    ) -> None:
        options = FeedOptions(
            queue_records=queue_records,
            limits=limits,
            per_partition=per_partition,
            drain_horizon_s=drain_horizon_s,
            wanted_window_s=wanted_window_s,
        )
        self._registry = REGISTRY if registry is None else registry
        with _lock:
            collector = _collectors.get(self._registry)
            if collector is None:
                collector = _Collector(options)
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


@define(eq=False, weakref_slot=True)
class _Histogram:
    """Counts of a histogram, by bucket."""

    counts: list[int]
    total: float = 0.0

    def observe(self, bounds: tuple[float, ...], value: float) -> None:
        self.counts[bisect.bisect_left(bounds, value)] += 1
        self.total += value


@define(eq=False)
class _Collector:
    """Collects all metrics of one registry (`prometheus_client.registry.Collector`)."""

    options: FeedOptions
    feed: MetricsFeed = field(init=False)
    _counters: dict[str, dict[tuple[str, ...], float]] = field(
        factory=lambda: defaultdict(lambda: defaultdict(float)), init=False
    )
    _histograms: dict[str, dict[tuple[str, ...], _Histogram]] = field(
        factory=lambda: defaultdict(dict), init=False
    )
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.feed = MetricsFeed(self.options, self._emit)

    def _emit(self, labels: CommonLabels, change: Change) -> None:
        metric = METRICS[change.name]
        key = (*labels, *change.labels)
        with self._lock:
            if metric.kind is Kind.COUNTER:
                self._counters[change.name][key] += change.value
                return
            self._histogram_of(metric, key).observe(metric.buckets, change.value)

    def describe(self) -> Iterator[Any]:
        """Yield the metrics without values, so that registering takes no sample."""
        return iter(self._families().values())

    def collect(self) -> Iterator[Any]:
        """Yield all metrics with their values."""
        self.feed.drain()
        families = self._families()
        with self._lock:
            for labels in self.feed.labels():
                self._begin(labels)
            for name, counted in self._counters.items():
                for key, value in counted.items():
                    families[name].add_metric(key, value)
            for name, observed in self._histograms.items():
                for key, one in observed.items():
                    _add_histogram(families[name], key, METRICS[name].buckets, one)
        for name, series in self.feed.gauges().items():
            for key, value in series.items():
                families[name].add_metric(key, value)
        for labels, counts in self.feed.commits().items():
            for outcome, count in counts.by_outcome.items():
                families[COMMITS].add_metric((*labels, outcome), count)
            one = _Histogram([*counts.buckets], counts.seconds)
            _add_histogram(families[COMMIT_SECONDS], labels, COMMIT_BUCKETS_S, one)
        families[DROPPED].add_metric((), self.feed.dropped)
        return iter(families.values())

    def _begin(self, labels: CommonLabels) -> None:
        """Let the usual series of a member begin at 0."""
        for metric in METRICS.values():
            for value in metric.values:
                self._counters[metric.name].setdefault((*labels, value), 0.0)
            if metric.kind is Kind.HISTOGRAM and metric.name != COMMIT_SECONDS:
                self._histogram_of(metric, labels)

    def _histogram_of(self, metric: Metric, key: tuple[str, ...]) -> _Histogram:
        series = self._histograms[metric.name]
        if key not in series:
            series[key] = _Histogram([0] * (len(metric.buckets) + 1))
        return series[key]

    def _families(self) -> dict[str, Any]:
        return {
            name: _family(metric)
            for name, metric in METRICS.items()
            if self.options.per_partition or not metric.is_optional
        }


def _family(metric: Metric) -> Any:  # noqa: ANN401  (one of three classes)
    labels = () if metric.name == DROPPED else (*COMMON_LABELS, *metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.help, labels=labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.help, labels=labels)


def _add_histogram(
    family: Any,  # noqa: ANN401  (HistogramMetricFamily; it has no annotations)
    key: tuple[str, ...],
    bounds: tuple[float, ...],
    one: _Histogram,
) -> None:
    total, buckets = 0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), one.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(key, buckets, one.total)
