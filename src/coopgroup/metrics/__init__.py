"""Metrics of members for Prometheus and OpenTelemetry, as telemetry listeners.

Counters and durations come from telemetry records. Gauges, such as the rest of the lease, are read
from the member at the moment of a scrape. Nothing here waits on a thread of a member.

The extra `metrics` installs what this package needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from coopgroup.errors import MissingExtraError
from coopgroup.extras import install_command
from coopgroup.metrics.names import METRICS, Kind, Metric

if TYPE_CHECKING:
    from coopgroup.metrics.feed import Several
    from coopgroup.metrics.handlers import traced
    from coopgroup.metrics.opentelemetry import OpenTelemetryMetrics
    from coopgroup.metrics.prometheus import PrometheusMetrics
    from coopgroup.metrics.spans import OpenTelemetrySpans

__all__ = [
    "METRICS",
    "Kind",
    "Metric",
    "OpenTelemetryMetrics",
    "OpenTelemetrySpans",
    "PrometheusMetrics",
    "Several",
    "traced",
]
_HOMES = {
    "OpenTelemetryMetrics": "coopgroup.metrics.opentelemetry",
    "OpenTelemetrySpans": "coopgroup.metrics.spans",
    "PrometheusMetrics": "coopgroup.metrics.prometheus",
    "Several": "coopgroup.metrics.feed",
    "traced": "coopgroup.metrics.handlers",
}

if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> object:
        """Import an exporter on first use: each needs its own library."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"{error.name} is not installed: {install_command('metrics')}"
            ) from None
        globals()[name] = value
        return value
