"""A real Prometheus for tests: programs of a Debian package, which `scripts/require` fetches."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from coopgroup.testing.processes import free_ports
from tests.architecture.tree import ROOT
from tests.support.waiting import WAIT_S_MAX, wait_for

_FETCHED: Final = ROOT / "build" / "prometheus" / "usr" / "bin"


def program(name: str) -> str | None:
    """Return the path of `prometheus` or `promtool`, None if the machine has none."""
    fetched = _FETCHED / name
    return str(fetched) if fetched.exists() else shutil.which(name)


needs_prometheus: Final = pytest.mark.skipif(
    program("prometheus") is None or program("promtool") is None,
    reason="no Prometheus here (Debian: scripts/require prometheus)",
)


@frozen
class Prometheus:
    """A running server."""

    port: int

    def get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401  (JSON)
        """Return the data of an answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=WAIT_S_MAX) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, query: str) -> list[float]:
        """Return the values of a query at this moment."""
        return [float(one["value"][1]) for one in self.get("query", query=query)["result"]]

    def firing(self) -> set[str]:
        """Return the names of the alerts whose condition holds, pending or firing."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"]}


@contextmanager
def running(folder: Path, scraped_port: int, rules: Path) -> Iterator[Prometheus]:
    """Run a server that scrapes one port and evaluates rules, both each second."""
    (port,) = free_ports(1)
    config = folder / "prometheus.json"  # JSON is YAML
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {
                        "job_name": "coopgroup",
                        "static_configs": [{"targets": [f"127.0.0.1:{scraped_port}"]}],
                    }
                ],
            }
        )
    )
    command = [
        *(str(program("prometheus")), f"--config.file={config}"),
        *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
        "--log.level=warn",
    ]
    process = subprocess.Popen(command)
    try:
        server = Prometheus(port)

        def is_ready() -> bool:
            try:
                server.get("rules")
            except OSError:  # it does not listen yet
                return False
            return True

        wait_for(is_ready, "Prometheus")
        yield server
    finally:
        process.kill()
        process.wait()
