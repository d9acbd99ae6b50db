"""Install commands name packages that exist, with the versions of pyproject.toml."""

import importlib.metadata
import sys
import tomllib

import pytest

from coopgroup import extras, metrics
from coopgroup.errors import CoopgroupError
from coopgroup.extras import install_command
from tests.architecture.tree import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def _names(requirements: list[str]) -> list[str]:
    return [one.partition(">")[0].partition("<")[0] for one in requirements]


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_command_names_each_package_of_the_extra(extra: str) -> None:
    start, *packages = install_command(extra).split(" '")
    assert start == "pip install"
    assert _names(packages) == _names(EXTRAS[extra])
    assert all("<" in one and one.endswith("'") for one in packages)


def test_command_when_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", refuse)
    assert install_command("report") == "install coopgroup with its extra 'report'"
    assert install_command("a", "b") == "install coopgroup with its extra 'a' and 'b'"


def test_markers_beside_the_extra_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "tomli>=2; python_version < '3.11' and extra == 'report'"
    monkeypatch.setattr(extras, "requires", lambda name: ["attrs", line])
    assert install_command("report") == "pip install 'tomli>=2'"


# --- Without the extra, an exporter is one line of advice ----------------------------------------


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
