"""Metrics of members for Prometheus and OpenTelemetry, as telemetry listeners.

Counters and durations come from telemetry records. Gauges, such as the rest of the lease, are read
from the member at the moment of a scrape. Nothing here waits on a thread of a member.

The extra `metrics` installs what this package needs.
"""

from typing import TYPE_CHECKING

from coopgroup.errors import MissingExtraError
from coopgroup.extras import install_command
from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.metrics.feed import Several
    from coopgroup.metrics.handlers import traced
    from coopgroup.metrics.names import METRICS, Kind, Metric
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

if not TYPE_CHECKING:  # type checkers see only the imports above
    _get, __dir__ = late_names(
        __name__,
        {
            "coopgroup.metrics.feed": ("Several",),
            "coopgroup.metrics.handlers": ("traced",),
            "coopgroup.metrics.names": ("METRICS", "Kind", "Metric"),
            "coopgroup.metrics.opentelemetry": ("OpenTelemetryMetrics",),
            "coopgroup.metrics.prometheus": ("PrometheusMetrics",),
            "coopgroup.metrics.spans": ("OpenTelemetrySpans",),
        },
    )

    def __getattr__(name: str) -> object:
        """Import an exporter on first use: each needs its own library."""
        try:
            return _get(name)
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"{error.name} is not installed: {install_command('metrics')}"
            ) from None
