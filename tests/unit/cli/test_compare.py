"""`coopgroup compare`: several policies, several seeds, side by side."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from coopgroup.cli import compare as compare_command
from coopgroup.cli import simulated
from coopgroup.cli.app import run
from coopgroup.simulator import Run, Violation, comparison
from coopgroup.simulator.comparison import Job, play
from tests.support.small_scenario import CRASH


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(CRASH)
    return str(path)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play in this process: starting new processes takes longer than all of these runs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def test_tables_and_verdict_fit_a_terminal_of_80_columns(
    file: str,
    one_process: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No word is cut, and no line is broken inside a word."""
    monkeypatch.setattr(simulated, "_console", lambda: Console(width=80))
    policies = "eager,simple,deferred,incremental,deferred:scheduled_rebalance_timeout_ms=2000"
    assert run(["compare", file, "--policies", policies, "--seeds", "2"]) == 0
    printed, errors = capsys.readouterr()
    assert (errors, printed.split(": ")[:2]) == ("", ["small", "sticky, 2 seeds"])
    heads = "".join(line for line in printed.splitlines() if line.startswith("┃"))
    assert [one for one in ("measure", "eager", "simple") if one not in heads] == []
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    assert printed.count("partition-seconds") == 3  # in the table and in the verdict


def test_compare_adds_the_policy_of_the_scenario_if_a_name_is_another_one(
    tmp_path: Path, one_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scenario with warm-ups is compared without them and with them."""
    warm = '[group]\npolicy = { name = "simple", options = { warmup = { timeout_ms = 9000 } } }\n'
    path = tmp_path / "warm.toml"
    path.write_text(f"{CRASH.replace('[group]', warm, 1)}\n[policies.simple]\n")
    assert run(["compare", str(path), "--seeds", "1", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    own = "simple:warmup.timeout_ms=9000"
    names = ["eager", "simple", "deferred", "incremental", own, "consumer"]
    assert [row["policy"] for row in rows] == names
    assert run(["simulate", str(path), "--json", "--policy", own]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["moved"] == rows[-2]["moved"]["median"]


def test_compare_has_a_column_for_the_protocol_in_which_the_broker_assigns(
    file: str, one_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", file, "--policies", "simple,consumer", "--seeds", "2", "--json"]) == 0
    simple, consumer = map(json.loads, capsys.readouterr().out.splitlines())
    assert (consumer["policy"], consumer["violations"]) == ("consumer", 0)
    assert consumer["rounds"] == {"median": 0, "min": 0, "max": 0}
    assert simple["rounds"]["min"] > 0
    assert consumer["moved"]["min"] >= 2
    assert run(["simulate", file, "--json", "--policy", "consumer", "--seed", "1"]) == 0
    alone = json.loads(capsys.readouterr().out)
    values = consumer["worst_outage_ms"]
    assert values["min"] <= alone["worst_outage_ms"] <= values["max"]
    assert run(["compare", file, "--policies", "simple,consumer", "--seeds", "1"]) == 0
    printed = capsys.readouterr().out
    assert "consumer" in printed.splitlines()[2]
    assert "Consumer: " in printed


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ('kind = "crash"\nmember = "leader"', "no member leads"),
        ('kind = "hand_over"\nmember = "m-1"', "a broker hands nothing over"),
    ],
)
def test_scenario_that_needs_a_leader_is_compared_without_that_column(
    event: str,
    message: str,
    tmp_path: Path,
    one_process: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "led.toml"
    path.write_text(f"{CRASH}\n[[events]]\nat_ms = 12000\n{event}\n")
    assert run(["compare", str(path), "--seeds", "1", "--json"]) == 0
    assert "consumer" not in capsys.readouterr().out
    assert run(["compare", str(path), "--policies", "consumer"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_compare_with_json_prints_an_object_for_each_policy(
    file: str, one_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = "simple,deferred:scheduled_rebalance_timeout_ms=0,initial_delay_ms=0,deferred"
    arguments = ["--policies", policies, "--seeds", "3", "--json"]
    assert run(["compare", file, *arguments]) == 0
    simple, at_once, deferred = map(json.loads, capsys.readouterr().out.splitlines())
    assert [row["policy"] for row in (simple, at_once, deferred)] == [
        "simple",
        "deferred:scheduled_rebalance_timeout_ms=0,initial_delay_ms=0",
        "deferred",
    ]
    assert deferred["moved"] == {"median": 0, "min": 0, "max": 0}
    assert simple["moved"]["min"] >= 2
    assert at_once["moved"] == simple["moved"]
    assert (simple["seeds"], simple["violations"]) == ([1, 2, 3], 0)
    low, middle, high = (simple["worst_outage_ms"][key] for key in ("min", "median", "max"))
    assert low <= middle <= high
    assert low < high


def end_process(job: Job) -> Run:
    """End like a process that the kernel kills because it takes too much memory."""
    os._exit(9)


def test_compare_when_a_process_is_killed_says_so(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 2, because status 1 reports a broken invariant."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(comparison, "play", end_process)
    assert run(["compare", file, "--policies", "simple", "--seeds", "2"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("coopgroup: a process that simulated was killed: ")
    assert error.count("\n") == 1


def test_processes_that_play_leave_ctrl_c_to_the_command() -> None:
    """The terminal sends SIGINT to all processes, and each would print a traceback."""
    play: Any = signal.getsignal
    jobs: Any = [signal.SIGINT] * 2
    before = signal.getsignal(signal.SIGINT)
    with compare_command._runner(2) as run_all:  # noqa: SLF001  (the part that starts processes)
        heard: list[Any] = list(run_all(play, jobs))
    assert heard == [signal.SIG_IGN] * 2
    assert signal.getsignal(signal.SIGINT) is before


def test_compare_when_an_invariant_is_broken_ends_with_status_1(
    file: str,
    one_process: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Violation(checker="single owner", at_ms=77, message="t-1 is with both")

    def broken(job: Job) -> Run:
        return evolve(play(job), violations=(found,))

    monkeypatch.setattr(comparison, "play", broken)
    assert run(["compare", file, "--policies", "simple", "--seeds", "1"]) == 1
    assert "simple, seed 1, 77 ms: single owner" in capsys.readouterr().err
