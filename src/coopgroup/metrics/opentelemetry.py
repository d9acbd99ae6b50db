"""`OpenTelemetryMetrics`: a telemetry listener for the metrics of OpenTelemetry."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from functools import partial

from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from coopgroup.kafka.health.value import DEFAULT_LIMITS, HealthLimits
from coopgroup.metrics.feed import (
    FeedOptions,
    MemberListener,
    MetricsFeed,
    Observed,
    Probe,
    Series,
)
from coopgroup.metrics.names import ATTRIBUTES, METRICS, Kind, Metric, of_member
from coopgroup.telemetry import Envelope


class OpenTelemetryMetrics:
    """Metrics of any number of members, for `coopgroup.telemetry.listener`.

    Give the same listener to all members that share a meter provider. The application brings the
    SDK and the exporter.

    Args:
        meter_provider: the global provider if not given.
        drain_horizon_s: as for `PrometheusMetrics`.
        limits: as for `PrometheusMetrics`.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        drain_horizon_s: float | None = None,
        limits: HealthLimits = DEFAULT_LIMITS,
    ) -> None:
        options = FeedOptions(limits=limits, drain_horizon_s=drain_horizon_s)
        self._feed = MetricsFeed(options)
        # Several readers may collect at a time.
        self._lock = threading.Lock()
        # One collection asks for each metric once: the members are read only once for all.
        self._values: dict[str, Series] = {}
        self._asked: set[str] = set()
        self._recorded: dict[tuple[str, ...], Observed] = {}
        provider = get_meter_provider() if meter_provider is None else meter_provider
        self._meter = provider.get_meter("coopgroup")
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS.values():
            self._create(metric)

    def watch_member(self, probe: Probe) -> MemberListener:
        """Return the listener of one member; a consumer calls it when it is made."""
        return self._feed.watch(probe)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record that does not come from a consumer, such as one that was read back."""
        self._feed.put(None, envelope)

    def _create(self, metric: Metric) -> None:
        meter, name, unit = self._meter, _name(metric), _unit(metric)
        observe = partial(self._observe, metric)
        match metric.kind:
            case Kind.COUNTER:
                meter.create_observable_counter(name, [observe], unit, metric.help)
            case Kind.GAUGE:
                meter.create_observable_gauge(name, [observe], unit, metric.help)
            case Kind.HISTOGRAM:
                self._histograms[metric.name] = meter.create_histogram(
                    name, unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
                )

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            if not self._values or metric.name in self._asked:
                self._asked.clear()
                self._values = self._feed.values()
                self._record()
            self._asked.add(metric.name)
            series = self._values.get(metric.name, {})
        for key, value in series.items():
            # Series that begin at 0 are for Prometheus.
            if isinstance(value, int | float) and (value or not metric.values):
                yield Observation(value, _attributes(metric, key))

    def _record(self) -> None:
        """Record what histograms have observed since the last collection.

        A histogram of OpenTelemetry cannot be read from counts. So each observation is recorded
        with the mean of the new ones in its bucket: counts and sum stay exact.
        """
        for name, histogram in self._histograms.items():
            metric = METRICS[name]
            for key, now in self._values.get(name, {}).items():
                if not isinstance(now, Observed):
                    continue
                before = self._recorded.get((name, *key))
                self._recorded[name, *key] = now
                for bucket, count in enumerate(now.counts):
                    new = count - (before.counts[bucket] if before else 0)
                    total = now.sums[bucket] - (before.sums[bucket] if before else 0.0)
                    for _ in range(new):
                        value = _within(metric.buckets, bucket, total / new)
                        histogram.record(value, _attributes(metric, key))


def _attributes(metric: Metric, key: tuple[str, ...]) -> dict[str, str]:
    """Return the attributes for values of `COMMON_LABELS`, then of the labels of a metric."""
    if not key:
        return {}
    group, client_id, instance_id, *more = key
    extra = {ATTRIBUTES[name]: value for name, value in zip(metric.labels, more, strict=True)}
    return of_member((group, client_id, instance_id)) | extra


def _within(bounds: tuple[float, ...], bucket: int, value: float) -> float:
    """Return a mean of a bucket without the errors of rounding that may lead out of it."""
    above, up_to = (-math.inf, *bounds)[bucket], (*bounds, math.inf)[bucket]
    return min(max(value, math.nextafter(above, math.inf)), up_to)


def _name(metric: Metric) -> str:
    """Return the name on OpenTelemetry, which adds unit and `_total` for Prometheus by itself."""
    bare = metric.name.removeprefix("coopgroup_")
    return "coopgroup." + bare.removesuffix("_total").removesuffix("_seconds")


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else "1"
