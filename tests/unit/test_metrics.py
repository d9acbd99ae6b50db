"""Without the extra, an exporter is one line of advice."""

import sys

import pytest

from coopgroup import metrics
from coopgroup.errors import CoopgroupError


@pytest.mark.parametrize(
    ("name", "home", "library"),
    [
        ("PrometheusMetrics", "coopgroup.metrics.prometheus", "prometheus_client"),
        ("OpenTelemetrySpans", "coopgroup.metrics.spans", "opentelemetry.trace"),
    ],
)
def test_exporter_without_its_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, home: str, library: str
) -> None:
    monkeypatch.delitem(vars(metrics), name, raising=False)
    monkeypatch.delitem(sys.modules, home, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(CoopgroupError, match=r"is not installed: pip install '.*prometheus-client"):
        getattr(metrics, name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nagios'"):
        getattr(metrics, "Nagios")  # noqa: B009 - mypy would refuse the plain spelling
