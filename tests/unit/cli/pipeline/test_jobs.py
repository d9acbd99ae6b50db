"""Errors of the pipeline jobs: one line each, before Spark starts."""

from __future__ import annotations

import sys

import pytest

from coopgroup.cli.app import run


@pytest.mark.parametrize("job", ["history", "lag", "telemetry", "episodes", "run"])
def test_a_missing_extra_is_one_line(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(["pipeline", job, "--tables", "t"]) == 2
    assert "which the pipeline needs: pip install '" in capsys.readouterr().err
