"""`coopgroup simulate`: output, files and exit status."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from coopgroup.cli import simulate as simulate_command
from coopgroup.cli.app import run
from coopgroup.simulator import Run, Scenario, Violation, simulate
from tests.support.small_scenario import CRASH

SMALL = CRASH.replace("[group]\n", '[group]\npolicy = "deferred"\n')
KEYS = """
    scenario policy assignor seed unavailable_partition_s unavailable_peak moved moved_cold
    moved_twice returned warmups rounds converge_ms lag_peak lag_final worst_outage_ms
    worst_resource violations
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "small story.toml"
    path.write_text(SMALL)
    return str(path)


def test_simulate_with_json_prints_one_object(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", file, "--json", "--policy", "deferred"]) == 0
    first = capsys.readouterr().out
    row = json.loads(first)
    assert list(row) == KEYS.split()
    assert (row["scenario"], row["policy"], row["seed"]) == ("small story", "deferred", 1)
    assert (row["moved"], row["violations"]) == (0, [])
    assert run(["simulate", file, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again.pop("policy") == "deferred:scheduled_rebalance_timeout_ms=9000"
    assert again == {key: value for key, value in row.items() if key != "policy"}


def test_commands_find_classes_in_the_current_directory(file: str, tmp_path: Path) -> None:
    """`compare` plays in further processes, which must find the class too."""
    (tmp_path / "own_rules.py").write_text(
        "from attrs import frozen\n"
        "from coopgroup.policies import SimplePolicy\n"
        "@frozen(kw_only=True)\n"
        "class Calm(SimplePolicy):\n"
        "    name = 'calm'\n"
        "    level: int = 1\n"
    )
    program = Path(sys.executable).with_name("coopgroup")  # unlike `python -m`, it adds no folder
    policies = "own_rules:Calm,own_rules:Calm:level=2"
    done = subprocess.run(
        [program, "compare", file, "--policies", policies, "--seeds", "1", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["policy"] for row in rows] == ["own_rules:Calm", "own_rules:Calm:level=2"]


def test_simulate_with_transcript_prints_every_event(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", file, "--transcript"]) == 0
    lines = capsys.readouterr().out.splitlines()
    title = next(number for number, line in enumerate(lines) if "small story: " in line)
    assert title > 20
    assert run(["simulate", file, "--transcript", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.splitlines() == lines[:title]
    assert len(output.out.splitlines()) == 1


def test_simulate_when_an_invariant_is_broken_says_how_to_see_it_again(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def broken(scenario: Scenario, *, seed: int, transcript: bool) -> Run:
        found = Violation(checker="single owner", at_ms=77, message="t-1 is with\nboth")
        return evolve(simulate(scenario, seed=seed), violations=(found,) * 7)

    monkeypatch.setattr(simulate_command, "simulate", broken)
    options = ["--assignor", "lag-aware", "--seed", "3", "--policy", "simple"]
    assert run(["simulate", file, *options]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[:5] == ["coopgroup: simple, seed 3, 77 ms: single owner: t-1 is with both"] * 5
    assert lines[5] == "coopgroup: and 2 more of seed 3"
    said, _, repeated = lines[6].partition(" repeat it with: ")
    assert said == "coopgroup: an invariant was broken;"
    monkeypatch.undo()
    program, *arguments = shlex.split(repeated)
    assert program == "coopgroup"
    assert sorted(arguments) == sorted(["simulate", file, *options])
    assert run(arguments) == 0
