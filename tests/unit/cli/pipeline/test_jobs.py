"""Errors of the pipeline jobs: one line each, before Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coopgroup.cli.app import run


@pytest.mark.parametrize("job", ["history", "lag", "telemetry", "episodes", "run"])
def test_a_missing_extra_is_one_line(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(["pipeline", job, "--tables", "t"]) == 2
    assert "which the pipeline needs: pip install '" in capsys.readouterr().err


def test_a_missing_java_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["pipeline", "episodes", "--tables", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "Java (java) is missing" in err
    assert err.count("\n") == 1
