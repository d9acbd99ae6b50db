"""`OpenTelemetryMetrics`: a telemetry listener for the metrics of OpenTelemetry."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from coopgroup.metrics.attributes import NAMES, of_member
from coopgroup.metrics.events import Change
from coopgroup.metrics.feed import CommonLabels, FeedOptions, MemberListener, MetricsFeed, Probe
from coopgroup.metrics.names import COMMON_LABELS, METRICS, Kind, Metric
from coopgroup.metrics.sampling import Reading
from coopgroup.telemetry import Envelope

__all__ = ["OpenTelemetryMetrics"]

# One collection asks for each gauge separately: the members are read only once for all.
_SAMPLE_S: Final = 0.5
_COMMITS: Final = "coopgroup_commits_total"
_COMMIT_SECONDS: Final = "coopgroup_commit_duration_seconds"
_DROPPED: Final = "coopgroup_dropped_telemetry_total"


class OpenTelemetryMetrics:
    """Metrics of any number of members, for `coopgroup.telemetry.listener`.

    Give the same listener to all members that share a meter provider. The application brings the
    SDK and the exporter. Durations of commits are the counter `coopgroup.commit_time`, because an
    OpenTelemetry histogram cannot be observed.

    Args:
        meter_provider: the global provider if not given.
        per_partition: as for `PrometheusMetrics`.
        drain_horizon_s: as for `PrometheusMetrics`.
        wanted_window_s: as for `PrometheusMetrics`.
        queue_records: as for `PrometheusMetrics`.

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
    ) -> None:
        options = FeedOptions(
            queue_records=queue_records,
            per_partition=per_partition,
            drain_horizon_s=drain_horizon_s,
            wanted_window_s=wanted_window_s,
        )
        self._feed = MetricsFeed(options, self._emit)
        self._readings: dict[str, list[tuple[CommonLabels, Reading]]] = {}
        self._read_at_s = float("-inf")
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
            case Kind.COUNTER if metric.name == _COMMITS:
                meter.create_observable_counter(name, [self._commits], unit, metric.help)
            case Kind.COUNTER if metric.name == _DROPPED:
                meter.create_observable_counter(name, [self._dropped], unit, metric.help)
            case Kind.COUNTER:
                self._counters[metric.name] = meter.create_counter(name, unit, metric.help)
            case Kind.HISTOGRAM if metric.name == _COMMIT_SECONDS:
                meter.create_observable_counter(
                    "coopgroup.commit_time", [self._commit_time], "s", "Total duration of commits."
                )
            case Kind.HISTOGRAM:
                self._histograms[metric.name] = meter.create_histogram(
                    name, unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
                )
            case Kind.GAUGE:
                read = self._gauge(metric)
                meter.create_observable_gauge(name, [read], unit, metric.help)

    def _emit(self, labels: CommonLabels, change: Change) -> None:
        extra = {
            NAMES[name]: value
            for name, value in zip(METRICS[change.name].labels, change.labels, strict=True)
        }
        attributes = of_member(labels) | extra
        if change.name in self._counters:
            self._counters[change.name].add(change.value, attributes)
        else:
            self._histograms[change.name].record(change.value, attributes)

    # --- read at each collection ------------------------------------------------------------------

    def _gauge(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            found: dict[tuple[str, ...], list[float]] = defaultdict(list)
            for labels, one in self._sample().get(metric.name, ()):
                found[*labels, *one.labels].append(one.value)
            count = len(COMMON_LABELS)
            for key, values in found.items():
                group, client_id, instance_id = key[:count]
                extra = zip(metric.labels, key[count:], strict=True)
                attributes = of_member((group, client_id, instance_id))
                attributes |= {NAMES[name]: value for name, value in extra}
                yield Observation(metric.merge.of(values), attributes)

        return read

    def _sample(self) -> dict[str, list[tuple[CommonLabels, Reading]]]:
        now = time.monotonic()
        if now - self._read_at_s >= _SAMPLE_S:
            self._read_at_s = now
            self._feed.drain()
            found: dict[str, list[tuple[CommonLabels, Reading]]] = defaultdict(list)
            for labels, one in self._feed.sample():
                found[one.name].append((labels, one))
            self._readings = found
        return self._readings

    def _commits(self, _: CallbackOptions) -> Iterable[Observation]:
        found: dict[tuple[CommonLabels, str], int] = defaultdict(int)
        for labels, counts in self._feed.commits():
            for outcome, count in counts.by_outcome.items():
                found[labels, outcome] += count
        for (labels, outcome), count in found.items():
            yield Observation(count, of_member(labels) | {NAMES["outcome"]: outcome})

    def _commit_time(self, _: CallbackOptions) -> Iterable[Observation]:
        found: dict[CommonLabels, float] = defaultdict(float)
        for labels, counts in self._feed.commits():
            found[labels] += counts.seconds
        for labels, seconds in found.items():
            yield Observation(seconds, of_member(labels))

    def _dropped(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._feed.dropped)


def _name(metric: Metric) -> str:
    """Return the name on OpenTelemetry, which adds unit and `_total` for Prometheus by itself."""
    bare = metric.name.removeprefix("coopgroup_")
    return "coopgroup." + bare.removesuffix("_total").removesuffix("_seconds")


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else "1"
