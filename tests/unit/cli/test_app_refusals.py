"""What the user can correct is one line on standard error, before anything runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.cli.app import run
from tests.support.small_scenario import CRASH, SMALL

NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "300")
CHECK = ("group", "migrate", "--check", "g")
CONSUME = ("consume", "orders", "--group", "g")
SIMULATE = ("simulate", "story.toml")
COMPARE = ("compare", "story.toml")
ADVISE = ("advise", "--group", "g", "--tables", "t")
OF_TABLES = ("--tables", "t")
HERE = ("--tables", ".")
HIDDEN = "got '(not shown)', expected KEY=VALUE, or @FILE"
NO_FILE = "--config: got '@none', expected a file that can be read (No such file or directory)"
UNKNOWN_KEY = "got '(not shown)', but there is no such key"
TELEMETRY = "topic: got 'coopgroup-telemetry', expected a topic that can be read"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change to a folder of its own, in which a command that is refused writes nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.toml").write_text(CRASH)
    (tmp_path / "wrong.toml").write_text(CRASH.replace("m-1", "m-3"))
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "grid.toml").write_text('scenarios = "small.toml"')
    (tmp_path / "bad_grid.toml").write_text('scenarios = "small.toml"\n[grid]\npolicy = "simple"')
    before = sorted(tmp_path.iterdir())
    yield
    assert sorted(tmp_path.iterdir()) == before


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line of a command that ends with status 2 and writes no file."""
    before = sorted(Path().iterdir())
    status = run(arguments)
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert sorted(Path().iterdir()) == before
    return err


def test_refusal_is_one_line(capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests) -> None:
    for arguments, complaint in [
        (["compre"], "No such command 'compre'. Did you mean 'compare'?\n"),
        (["pipeline", "advice"], "No such command 'advice'. Did you mean 'advise'?\n"),
        (["protocol", "zip"], "No such command 'zip'. There are decode, encode.\n"),
        (["--nope"], "No such option '--nope'.\n"),
        (
            ["setup", "--bell-topic", "a bell"],
            "--bell-topic: got 'a bell', expected a name of 1 to",
        ),
        (["setup", "--config", "acks"], f"--config: {HIDDEN}"),
        (["setup", "--config", "no.such.key=1"], f"no.such.key: {UNKNOWN_KEY}"),
        (
            ["setup", "--telemetry-topic", "a b"],
            "--telemetry-topic: got 'a b', expected a name of 1 to",
        ),
        (["setup", "--retention-days", "0"], "Invalid value for '--retention-days'"),
        (["telemetry", "read", "--minutes", "0"], "Invalid value for '--minutes'"),
        (["telemetry", "read", *NOWHERE], TELEMETRY),
        (["group", "migrate", "g"], "add --check: coopgroup group migrate g --check"),
        ([*CHECK, "--config", "oops"], f"--config: {HIDDEN}"),
        ([*CHECK, "--config", "no.such.key=1"], f"no.such.key: {UNKNOWN_KEY}"),
        ([*CHECK, *NOWHERE], "bootstrap.servers: got '127.0.0.1:1', expected brokers that answer"),
        *(
            ([*line, "--config", "@none"], NO_FILE)
            for line in (
                *(["setup"], ["telemetry", "read"]),
                *(["watch", "g"], ["watch", "g", "--http", "0"], CHECK, CONSUME),
            )
        ),
        (["consume", "orders"], "Missing option '--group'.\n"),
        (["consume", "--group", "g"], "Missing argument 'TOPIC...'.\n"),
        ([*CONSUME, "--config", "x"], f"--config: {HIDDEN}"),
        ([*CONSUME, "--config", "foo=1"], f"foo: {UNKNOWN_KEY}"),
        (["consume", "orders", "--group", ""], "group.id: got '', expected the name of the group"),
        ([*CONSUME, "--policy", "x"], "policy: got 'x', expected one of deferred, eager, incremen"),
        (["plan", "--policy", "lazy"], "--policy: got 'lazy', expected one of "),
        (["plan", "no-such-file"], "Invalid value for"),
        (["protocol", "decode", "0002"], "Missing option '--kind'."),
        (["protocol", "decode", "--kind", "x", "00"], "Invalid value for '--kind': 'x' is not one"),
        (["protocol", "decode", "--kind", "assignment"], "Missing argument 'HEX|-'.\n"),
        ([*SIMULATE, "--policy", "later"], "--policy: got 'later', expected one of deferred, eag"),
        ([*SIMULATE, "--policy", "deferred:delay=3"], "--policy: option of policy deferred: got '"),
        ([*SIMULATE, "--policy", "deferred:"], "--policy: got 'deferred:', expected NAME or"),
        ([*SIMULATE, "--assignor", "even"], "--assignor: got 'even', expected one of "),
        ([*SIMULATE, "--seed", "x"], "Invalid value for '--seed': 'x' is not a valid integer."),
        ([*SIMULATE, "--html", "no/p.html"], "--html: got 'no/p.html', expected a file in a folde"),
        ([*SIMULATE, "--html", "."], "--html: got '.', expected a file, not a folder"),
        ([*SIMULATE, "--html", ""], "--html: got '', expected a file, not a folder"),
        (["simulate", "gone.toml"], "scenario file: got 'gone.toml', expected a file to read (no "),
        (["simulate", "wrong.toml"], "wrong.toml: events[0].member: got 'm-3', expected one of "),
        ([*COMPARE, "--policies", "simple,later"], "--policies: got 'later', expected one of "),
        ([*COMPARE, "--policies", ""], "--policies: got '', expected NAME or "),
        ([*COMPARE, "--seeds", "0"], "Invalid value for '--seeds': 0 is not in the range 1<=x<="),
        (["sweep", "bad_grid.toml"], "bad_grid.toml: grid.policy: got 'simple', but there is no"),
        (["sweep", "grid.toml", "--html", "no/p.html"], "--html: got 'no/p.html', expected "),
        (["watch", "g", "--json", *NOWHERE, "--telemetry-topic", "t"], "topic: got 't', expected "),
        (["watch", "g", "--http", "0", "--json"], "--json and --http exclude each other"),
    ]:
        with subtests.test(arguments=arguments):
            assert refused(arguments, capsys).startswith(f"coopgroup: {complaint}")


def test_job_of_the_pipeline_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for arguments, complaint in [
        (["history"], "Missing option '--tables'"),
        (["history", *OF_TABLES, "--config", "no.such=1"], "--config: got"),
        (["history", *OF_TABLES, "--conf", "="], "--conf: got '(not shown)'"),
        (["lag", *OF_TABLES, "--reset", "never"], "Invalid value for '--reset'"),
        (["lag", *OF_TABLES, "--every", "0"], "Invalid value for '--every'"),
        (["lag", "--tables", "typo"], "--tables: got 'typo', expected a folder with tables, of co"),
        (["telemetry", *OF_TABLES], "give files, or --topic"),
        (["telemetry", *OF_TABLES, "f", "--topic", "x"], "give files, or --topic"),
        (["telemetry", *OF_TABLES, "no-such-file"], "FILE: got 'no-such-file'"),
        (["telemetry", *OF_TABLES, __file__, "--follow", "1"], "--follow needs --topic"),
        (["episodes", *HERE, "--jars", "none.jar"], "--jars: got 'none.jar'"),
        (["episodes", *HERE, "--master", "mars"], "--master: got 'mars'"),
        (["episodes", *HERE, "--conf", "memory=4g"], "--conf: got 'memory'"),
        (["run", *OF_TABLES, "--reset", "never"], "Invalid value for '--reset'"),
        *(
            ([job, *HERE, "--group", "g", "--since", "soon"], "--since: got 'soon'")
            for job in ("lag", "episodes", "advise", "run")
        ),
        (["run", *OF_TABLES, "--move-cost-ms", "-1"], "Invalid value for '--move-cost-ms'"),
        (["sql", *OF_TABLES], "Missing argument 'QUERY'"),
        (["dance"], "No such command 'dance'"),
        (["advise", "--tables", "t"], "Missing option '--group'"),
        ([*ADVISE, "--today", "lazy"], "--today: got 'lazy', expected one of"),
        ([*ADVISE, "--today", "deferred:delay=3"], "--today: got 'deferred:delay=3', expect"),
        ([*ADVISE, "--today", ":"], "--today: got ':', expected NAME"),
        ([*ADVISE, "--html", "no/page"], "--html: got 'no/page', expected "),
        ([*ADVISE, "--group", "h", "--html", "page"], "a page has one group"),
    ]:
        with subtests.test(complaint, arguments=arguments):
            assert complaint in refused(["pipeline", *arguments], capsys)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["setup", *NOWHERE], "no broker answers at 127.0.0.1:1"),
        *(
            (["pipeline", job, *HERE, *NOWHERE[:2]], "no broker answers at 127.0.0.1:1")
            for job in ("history", "lag", "run")
        ),
    ],
)
def test_broker_that_does_not_answer_is_one_line(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("coopgroup.pipeline.ends._ANSWER_S", 0.3)
    assert run(arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"coopgroup: {complaint}")


def test_port_in_use_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["watch", "billing", "--http", str(port), *NOWHERE]) == 2
    said = f"port: got {port}, expected a port that is free on 127.0.0.1: address already in use"
    assert capsys.readouterr().err == f"coopgroup: {said}\n"
