"""`OpenTelemetryMetrics`: a telemetry listener for the metrics of OpenTelemetry."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from coopgroup.kafka.health.value import DEFAULT_LIMITS, HealthLimits
from coopgroup.kafka.records.commit_meter import COMMIT_BUCKETS_S, NO_COMMITS, CommitCounts
from coopgroup.metrics.attributes import NAMES, of_member
from coopgroup.metrics.events import Change
from coopgroup.metrics.feed import CommonLabels, FeedOptions, MemberListener, MetricsFeed, Probe
from coopgroup.metrics.names import COMMIT_SECONDS, COMMITS, DROPPED, METRICS, Kind, Metric
from coopgroup.telemetry import Envelope

__all__ = ["OpenTelemetryMetrics"]

# One collection asks for each gauge separately: the members are read only once for all.
_SAMPLE_S: Final = 0.5


class OpenTelemetryMetrics:
    """Metrics of any number of members, for `coopgroup.telemetry.listener`.

    Give the same listener to all members that share a meter provider. The application brings the
    SDK and the exporter.

    Args:
        meter_provider: the global provider if not given.
        per_partition: as for `PrometheusMetrics`.
        drain_horizon_s: as for `PrometheusMetrics`.
        wanted_window_s: as for `PrometheusMetrics`.
        queue_records: as for `PrometheusMetrics`.
        limits: as for `PrometheusMetrics`.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
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
        self._feed = MetricsFeed(options, self._emit)
        self._gauges: dict[str, dict[tuple[str, ...], float]] = {}
        self._read_at_s = float("-inf")
        # Commits whose durations were recorded. Several readers may collect at a time, and the lock
        # keeps their counts in order.
        self._recorded: dict[CommonLabels, CommitCounts] = {}
        self._recording = threading.Lock()
        provider = get_meter_provider() if meter_provider is None else meter_provider
        self._meter = provider.get_meter("coopgroup")
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS.values():
            if options.per_partition or not metric.is_optional:
                self._create(metric)

    def watch_member(self, probe: Probe) -> MemberListener:
        """Return the listener of one member; a consumer calls it when it is made."""
        return self._feed.watch(probe)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record that does not come from a consumer, such as one that was read back."""
        self._feed.put(None, envelope)

    def _create(self, metric: Metric) -> None:
        meter, name, unit = self._meter, _name(metric), _unit(metric)
        match metric.kind:
            case Kind.COUNTER if metric.name == COMMITS:
                meter.create_observable_counter(name, [self._commits], unit, metric.help)
            case Kind.COUNTER if metric.name == DROPPED:
                meter.create_observable_counter(name, [self._dropped], unit, metric.help)
            case Kind.COUNTER:
                self._counters[metric.name] = meter.create_counter(name, unit, metric.help)
            case Kind.HISTOGRAM:
                self._histograms[metric.name] = meter.create_histogram(
                    name, unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
                )
            case Kind.GAUGE:
                gauge = partial(self._gauge, metric)
                meter.create_observable_gauge(name, [gauge], unit, metric.help)

    def _emit(self, labels: CommonLabels, change: Change) -> None:
        attributes = _attributes(METRICS[change.name], (*labels, *change.labels))
        if change.name in self._counters:
            self._counters[change.name].add(change.value, attributes)
        else:
            self._histograms[change.name].record(change.value, attributes)

    # --- read at each collection ------------------------------------------------------------------

    def _gauge(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        now = time.monotonic()
        if now - self._read_at_s >= _SAMPLE_S:
            self._read_at_s = now
            self._feed.drain()
            self._gauges = self._feed.gauges()
        for key, value in self._gauges.get(metric.name, {}).items():
            yield Observation(value, _attributes(metric, key))

    def _commits(self, _: CallbackOptions) -> Iterable[Observation]:
        with self._recording:
            found = self._feed.commits()
            self._record_durations(found)
        for labels, counts in found.items():
            for outcome, count in counts.by_outcome.items():
                yield Observation(count, _attributes(METRICS[COMMITS], (*labels, outcome)))

    def _record_durations(self, found: Mapping[CommonLabels, CommitCounts]) -> None:
        """Record the commits since the last collection.

        A histogram of OpenTelemetry cannot be read from counts. So each commit is recorded with the
        mean duration of the new commits in its bucket: counts and sum stay exact.
        """
        histogram, metric = self._histograms[COMMIT_SECONDS], METRICS[COMMIT_SECONDS]
        before, self._recorded = self._recorded, {**self._recorded, **found}
        for labels, counts in found.items():
            old = before.get(labels, NO_COMMITS)
            attributes = _attributes(metric, labels)
            for bucket, count in enumerate(counts.buckets):
                new = count - old.buckets[bucket]
                seconds = counts.bucket_seconds[bucket] - old.bucket_seconds[bucket]
                for _ in range(new):
                    histogram.record(_within(bucket, seconds / new), attributes)

    def _dropped(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._feed.dropped)


def _attributes(metric: Metric, key: tuple[str, ...]) -> dict[str, str]:
    """Return the attributes for values of `COMMON_LABELS`, then of the labels of a metric."""
    group, client_id, instance_id, *more = key
    extra = {NAMES[name]: value for name, value in zip(metric.labels, more, strict=True)}
    return of_member((group, client_id, instance_id)) | extra


def _within(bucket: int, seconds: float) -> float:
    """Return a mean of a bucket without the errors of rounding that may lead out of it."""
    above = (0.0, *COMMIT_BUCKETS_S)[bucket]
    up_to = (*COMMIT_BUCKETS_S, math.inf)[bucket]
    return min(max(seconds, math.nextafter(above, math.inf)), up_to)


def _name(metric: Metric) -> str:
    """Return the name on OpenTelemetry, which adds unit and `_total` for Prometheus by itself."""
    bare = metric.name.removeprefix("coopgroup_")
    return "coopgroup." + bare.removesuffix("_total").removesuffix("_seconds")


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else "1"
