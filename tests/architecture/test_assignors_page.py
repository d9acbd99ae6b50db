"""The page on assignors agrees with the code."""

import json
import re
from pathlib import Path

import attrs
import pytest

from coopgroup.assignors import (
    DrainTimeAssignor,
    LagAwareAssignor,
    WeightedAssignor,
    assignor_names,
)
from coopgroup.assignors.drain.assignor import LOOKS_MAX
from coopgroup.assignors.move_budget import MoveBudget
from coopgroup.assignors.quota_flow import ARCS_MAX
from coopgroup.cli.app import run
from tests.architecture.tree import ROOT

PAGE = (ROOT / "docs" / "assignors.md").read_text()


def test_page_when_read_names_every_assignor() -> None:
    assert {name for name in assignor_names() if f"| `{name}` |" in PAGE} == set(assignor_names())


def test_page_when_read_lists_every_option_with_its_default() -> None:
    """Defaults are in the notation of JSON."""
    sections = {text.split("\n")[0]: text for text in PAGE.split("\n## ")}
    for assignor in (LagAwareAssignor, DrainTimeAssignor, WeightedAssignor):
        table = sections[assignor.name].partition("| option |")[2].partition("\n\n")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", table, flags=re.MULTILINE))
        defaults = {
            field.name: json.dumps(field.default).replace("null", "none").strip('"')
            for field in attrs.fields(assignor)
        }
        assert {name: value.strip('"') for name, value in rows.items()} == defaults


def test_page_when_it_states_bounds_states_those_of_the_code() -> None:
    """Readers with large groups need these numbers."""
    looks = MoveBudget(gain_min=0.0, moves_left=None).looks_left
    assert f"up to {ARCS_MAX:,} pairs" in PAGE
    assert f"after {looks:,} looks" in PAGE
    assert f"after {LOOKS_MAX:,} looks" in PAGE


def test_page_when_its_example_runs_makes_assignors() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "assignors.md", "exec"), names)  # noqa: S102 - our own page
    assert names["evened_out"] == LagAwareAssignor(scope="group", moves_max=50)
    assert names["by_speed"] == DrainTimeAssignor(moves_max=50)


def test_page_when_it_shows_six_answers_shows_those_of_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Letters are the owners; the last numbers are the lag of each member."""
    (group,) = re.findall(r"```json group\n(.*?)```", PAGE, flags=re.DOTALL)
    (shown,) = re.findall(r"```text owners\n(.*?)```", PAGE, flags=re.DOTALL)
    question = json.loads(group)
    lags = question["lags"]["orders"]
    (tmp_path / "group.json").write_text(json.dumps(question))
    rows = [line.split() for line in shown.splitlines()[3:]]
    assert len(rows) == 6
    for name, *cells in rows:
        assert run(["plan", str(tmp_path / "group.json"), "--assignor", name]) == 0
        target = json.loads(capsys.readouterr().out)["target"]
        places = {one: member for member in target for one in target[member]["orders"]}
        owners = [places[one] for one in range(len(lags))]
        sums = [sum(lags[one] for one in target[member]["orders"]) for member in "abc"]
        assert cells == [*owners, *(f"{one:,}" for one in sums)], name
