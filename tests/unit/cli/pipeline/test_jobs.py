"""Errors of the pipeline jobs: one line each, before Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coopgroup.cli.app import run

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["history"], "Missing option '--tables'"),
        (["history", "--tables", "t", "--config", "nonsense"], "--config: got '(not shown)'"),
        (["history", "--tables", "t", "--config", "no.such=1"], "--config: got"),
        (["history", "--tables", "t", "--conf", "="], "--conf: got '(not shown)'"),
        (["lag", "--tables", "t", "--reset", "never"], "--reset"),
        (["lag", "--tables", "t", "--every", "0"], "--every"),
        (["telemetry", "--tables", "t"], "give files, or --topic"),
        (["telemetry", "--tables", "t", "f", "--topic", "x"], "give files, or --topic"),
        (["telemetry", "--tables", "t", "no-such-file"], "FILE: got 'no-such-file'"),
        (["telemetry", "--tables", "t", __file__, "--follow", "1"], "--follow needs --topic"),
        (["episodes", "--tables", ".", "--jars", "none.jar"], "--jars: got 'none.jar'"),
        (["episodes", "--tables", ".", "--master", "mars"], "--master: got 'mars'"),
        (["episodes", "--tables", ".", "--conf", "memory=4g"], "--conf: got 'memory'"),
        (["run", "--tables", "t", "--reset", "never"], "--reset"),
        *(
            ([job, "--tables", ".", "--group", "g", "--since", "soon"], "--since: got 'soon'")
            for job in ("lag", "episodes", "advise", "run")
        ),
        (["run", "--tables", "t", "--move-cost-ms", "-1"], "--move-cost-ms"),
        (["sql", "--tables", "t"], "Missing argument 'QUERY'"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("job", ["history", "lag", "run"])
def test_a_broker_that_does_not_answer_is_one_line(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coopgroup.pipeline.ends._ANSWER_S", 0.3)
    assert run(["pipeline", job, "--tables", ".", *NOBODY]) == 1
    err = capsys.readouterr().err
    assert err.startswith("coopgroup: no broker answers at 127.0.0.1:1")
    assert err.count("\n") == 1


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


@pytest.mark.parametrize("job", ["lag", "episodes"])
def test_a_mistyped_folder_of_tables_is_one_line_and_is_not_made(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """These jobs read existing tables. Only `history` and `telemetry` create the folder."""
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", job, "--tables", "typo"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "coopgroup: --tables: got 'typo', expected a folder with tables, of coopgroup pipeline"
        " history\n"
    )
    assert list(tmp_path.iterdir()) == []
