"""Errors of the pipeline demonstration before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopgroup.cli.app import run


def test_a_folder_that_is_not_empty_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demonstration must not mix its tables with the tables of a real group."""
    (tmp_path / "mine").touch()
    assert run(["pipeline", "demo", "--tables", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "is not empty; name a new folder" in err
    assert err.count("\n") == 1
