"""`coopgroup watch --http`: one line of output, one line of errors, no traceback at its end."""

from __future__ import annotations

import builtins
import http.client
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from coopgroup.cli import app
from coopgroup.cli.watch import print_view
from tests.support.ipv6 import with_ipv6_only
from tests.unit.watch.views import MEMBERS, view

NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "300")
WAIT_S = 60


@contextmanager
def _running(*more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `watch --http 0` in a process of its own; return it with its address and port."""
    command = [sys.executable, "-m", "coopgroup", "watch", "billing", "--http", "0"]
    with subprocess.Popen(
        [*command, *NOWHERE, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.endswith("/ shows billing; Ctrl-C ends it\n")
            yield process, line.removeprefix("http://").partition("/ shows")[0]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_server_without_a_traceback(number: signal.Signals) -> None:
    with _running() as (process, address):
        connection = http.client.HTTPConnection(address, timeout=WAIT_S)
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


@pytest.mark.parametrize("host", ["::1", "[::1]"])
@with_ipv6_only
def test_address_of_ipv6_can_be_opened_as_it_is_printed(host: str) -> None:
    with _running("--http-host", host) as (_, address):
        assert address.startswith("[::1]:")
        connection = http.client.HTTPConnection(address, timeout=WAIT_S)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


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


def test_tables_fit_a_terminal_of_80_columns_and_no_name_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long name continues on the next line, and columns without values are left out."""
    terminal = partial(Console, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("coopgroup.cli.watch.Console", terminal)
    client = "a-service-with-a-long-name-1"
    members = tuple(
        evolve(
            MEMBERS[0],
            member_id=f"{client}-{uuid.UUID(int=number << 100)}",
            client_id=client,
            host="ip-10-0-0-1.ec2.internal",
        )
        for number in (1, 2)
    )
    for is_told in (False, True):
        if is_told:
            members = tuple(
                evolve(one, since_poll_s=12.0, lease_s=44.0, report_age_s=1.0) for one in members
            )
        group = view(owners=(members[0].member_id, ""), committed=(1, 2), members=members)
        print_view(group)
        _, *lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        if not is_told:
            assert "--telemetry-topic" in lines.pop(0)
        assert ("lease" in lines[0]) is is_told
        end = next(place for place, line in enumerate(lines) if line.startswith("partition"))
        names = "".join(line[: lines[0].index("host")] for line in lines[1:end])
        assert "".join(names.split()) == "".join("".join(group.names.values()).split())
