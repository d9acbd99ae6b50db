"""Commands of the program: help, version, imports, and the status of each error."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from coopgroup import __version__
from coopgroup.cli import app
from coopgroup.errors import ConfigurationError, CoopgroupError, MissingExtraError
from coopgroup.policies import create_policy
from tests.support.programs import output_of


def test_command_has_the_listed_summary_and_a_help(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for name in sorted(app.COMMANDS):
        with subtests.test(name=name):
            command = app.app.get_command(click.Context(app.app), name)
            assert command is not None
            assert (command.name, command.get_short_help_str(limit=200)) == (
                name,
                app.COMMANDS[name],
            )
            status, said = app.run([name, "--help"]), capsys.readouterr().out
            assert (status, said.startswith(f"Usage: coopgroup {name} ")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2),
        *(([group, "--help"], 0) for group in ("group", "pipeline", "protocol")),
    ],
)
def test_help_of_a_group_has_whole_sentences(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == status
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert "..." not in commands
    assert commands.rstrip().endswith(".")


@pytest.mark.parametrize(
    ("error", "status", "complaint"),
    [
        (ConfigurationError("id", "", "a name"), 2, "coopgroup: id: got '', expected a name\n"),
        (MissingExtraError("Bokeh is missing"), 2, "coopgroup: Bokeh is missing\n"),
        (CoopgroupError("two owners\nof a partition"), 1, "coopgroup: two owners of a partition\n"),
        (click.Abort(), 130, ""),
    ],
)
def test_run_when_command_fails_reports_status_and_one_line(
    error: Exception,
    status: int,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the user can correct ends with status 2, other errors with status 1."""

    def fail() -> None:
        raise error

    monkeypatch.setitem(app.COMMANDS, "fail", "Fail.")
    module = ModuleType("coopgroup.cli.fail")
    module.__dict__["command"] = click.Command("fail", callback=fail)
    monkeypatch.setitem(sys.modules, "coopgroup.cli.fail", module)
    assert app.run(["fail"]) == status
    assert capsys.readouterr() == ("", complaint)


def test_help_when_run_imports_no_client() -> None:
    """A Kafka client or NumPy would make the list of commands slow."""
    program = (
        "import sys\n"
        "from coopgroup.cli.app import run\n"
        "run(['--help'])\n"
        "heavy = {'attr', 'confluent_kafka', 'kafka', 'numpy', 'pyspark', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    assert output_of(program).splitlines()[-1] == "[]"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with an own policy, and a file with the name of an extra."""
    (tmp_path / "own_policy.py").write_text(
        "import own_rules\n"
        "from coopgroup.policies import SimplePolicy\n"
        "class Calm(SimplePolicy):\n"
        "    def later(self):\n"
        "        import own_later\n"
        "        return own_later.__name__\n"
    )
    for name in ("own_rules", "own_later", "absent_extra", "own_policy"):
        (tmp_path / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    monkeypatch.setattr(sys, "argv", ["coopgroup", "--version"])
    return tmp_path


def test_modules_of_the_working_directory_are_found_for_a_class_only(own: Path) -> None:
    """A file there takes the place of no missing extra."""
    with pytest.raises(SystemExit):
        app.main()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent_extra")
    policy: Any = create_policy("own_policy:Calm")
    assert policy.later() == "own_later"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent_extra")


def test_program_works_when_its_working_directory_is_deleted(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(own)
    with pytest.raises(SystemExit) as ended:
        app.main()
    printed = f"coopgroup, version {__version__}\n"
    assert (ended.value.code, *capsys.readouterr()) == (0, printed, "")
    with pytest.raises(ConfigurationError, match="No module named 'own_policy'"):
        create_policy("own_policy:Calm")


# `plan` writes more than a pipe holds, and the others only at their end.
WRITERS: tuple[tuple[list[str], bytes], ...] = (
    (["plan"], b"{}\n" * 3_000),
    (["protocol", "decode", "--kind", "subscription", "-"], b"00\n" * 3_000),
    (["simulate", "simulations/connectors.toml"], b""),
    (["--help"], b""),
    ([], b""),
)


@pytest.mark.parametrize(("arguments", "given"), WRITERS)
def test_output_that_cannot_be_written_is_one_line(arguments: list[str], given: bytes) -> None:
    """A full disk gave a traceback, and the status of a refused round or a broken invariant."""
    program = [sys.executable, "-m", "coopgroup", *arguments]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            program, input=given, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    said = b"coopgroup: standard output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (74, said)


@pytest.mark.parametrize(("arguments", "given"), WRITERS)
def test_pipe_that_its_reader_closed_is_silent(arguments: list[str], given: bytes) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "coopgroup", *arguments]
    with os.fdopen(writer, "wb") as closed:
        ended = subprocess.run(
            program, input=given, stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(("arguments", "given"), WRITERS)
def test_output_that_is_closed_is_one_line(arguments: list[str], given: bytes) -> None:
    program = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "coopgroup", *arguments]
    ended = subprocess.run(program, input=given, capture_output=True, timeout=60, check=False)
    said = b"coopgroup: standard output cannot be written: it is closed\n"
    assert (ended.returncode, ended.stderr) == (74, said)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "lacking"), TimeoutError(), SystemExit(3)])
def test_errors_that_are_not_of_output_are_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(app.app, "main", fail)
    with pytest.raises(type(error)) as raised:
        app.run(["plan"])
    assert raised.value is error
