"""`coopgroup report`: telemetry files in, a page out."""

import importlib.util
import json
from pathlib import Path

import pytest

from coopgroup.cli.app import run
from coopgroup.extras import install_command
from coopgroup.telemetry import Envelope, to_json
from tests.unit.report.histories import rolling_bounce


def written(path: Path, envelopes: list[Envelope], *more: str) -> str:
    lines = [*(json.dumps(to_json(envelope)) for envelope in envelopes), *more]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_files_of_all_members_make_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = rolling_bounce(6, 2)
    files = [written(tmp_path / "late", history[9:]), written(tmp_path / "early", history[:9])]
    page = tmp_path / "page.html"
    assert run(["report", *files, "-o", str(page)]) == 0
    said = f"{page}: {len(history)} records from 2 files\n"
    assert capsys.readouterr() == (said, "")
    assert "<h1>Group billing</h1>" in page.read_text()
    assert run(["report", *files, "--output", str(page), "--title", "Friday"]) == 0
    assert "<h1>Friday</h1>" in page.read_text()


def test_damaged_lines_are_counted_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = rolling_bounce(6, 2)
    file = written(tmp_path / "a", history, '{"schema": 1, "at', "x")
    page = tmp_path / "page.html"
    assert run(["report", file, "-o", str(page)]) == 0
    told = (
        f"{file}: 2 lines left out, first line {len(history) + 1}: "
        "not JSON: Unterminated string starting at, column 15"
    )
    assert capsys.readouterr().err == f"coopgroup: {told}\n"
    assert told in page.read_text()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "expected a file that can be read: No such file or directory"),
        ("", "expected records of telemetry"),
        ("nonsense\n", "line 1: not JSON: Expecting value, column 1"),
    ],
)
def test_nothing_readable_is_one_line_and_status_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    complaint: str,
) -> None:
    file = tmp_path / "telemetry"
    if content is not None:
        file.write_text(content)
    page = tmp_path / "page.html"
    assert run(["report", str(file), "-o", str(page)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"coopgroup: FILE: got '{file}', expected ")
    assert err.endswith(f"{complaint}\n")
    assert err.count("\n") == 1
    assert not page.exists()


def test_missing_extra_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(["report", str(tmp_path / "none")]) == 2
    complaint = "pages are drawn with Bokeh, which is not installed"
    said = f"coopgroup: {complaint}: {install_command('report')}\n"
    assert capsys.readouterr() == ("", said)
