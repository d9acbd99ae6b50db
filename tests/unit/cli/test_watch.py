"""`coopgroup watch --http`: one line of output, one line of errors, no traceback at its end."""

from __future__ import annotations

import builtins
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coopgroup.cli import app

NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "300")
WAIT_S = 60


@contextmanager
def _running(*more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start `watch --http 0` in a process of its own; return it with its port."""
    command = [sys.executable, "-m", "coopgroup.cli", "watch", "billing", "--http", "0"]
    with subprocess.Popen(
        [*command, *NOWHERE, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.endswith("/ shows billing; Ctrl-C ends it\n")
            yield process, int(line.partition("/ shows")[0].rpartition(":")[2])
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_server_without_a_traceback(number: signal.Signals) -> None:
    with _running() as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        told = ""
        while not told.startswith("data: "):
            told = answer.readline().decode()
        silence = json.loads(told.removeprefix("data: "))["silence"]
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)
        answer.close()
        connection.close()
    assert (process.returncode, out, err) == (0, "", "")
    assert silence is None or "bootstrap.servers: got '127.0.0.1:1'" in silence["reason"]


@pytest.mark.parametrize(
    ("package", "options", "packages"),
    [("starlette", ("--http", "0"), ("textual", "bokeh")), ("textual", (), ("textual", "uvicorn"))],
)
def test_missing_extra_is_one_line(
    package: str,
    options: tuple[str, ...],
    packages: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(name, name=package)
        return real(name, *arguments, **named)

    for name in ("serving", "terminal"):
        monkeypatch.delitem(sys.modules, f"coopgroup.watch.{name}", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert app.run(["watch", "billing", *options, *NOWHERE]) == 2
    said = capsys.readouterr().err
    assert f"{package} is not installed" in said
    assert all(f"'{one}<" in said for one in packages)  # works outside a clone as well
