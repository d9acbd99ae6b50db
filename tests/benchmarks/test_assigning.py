"""The benchmark of the assignors: its groups, files and tables."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from tests.benchmarks.assigning.groups import (
    CASES,
    Group,
    draw,
    read_answer,
    read_group,
    write_group,
)
from tests.benchmarks.assigning.worker import prepare, serve
from tests.benchmarks.assignors import misplaced, tables

PARTITIONS = 600


@pytest.mark.parametrize("case", CASES)
def test_group_file_when_read_gives_the_group_that_was_written(case: str, tmp_path: Path) -> None:
    """All contestants get the same group."""
    group = draw(CASES[case], PARTITIONS)
    write_group(group, tmp_path / "group")
    assert _plain(read_group(tmp_path / "group")) == _plain(group)


@pytest.mark.parametrize("name", ["sticky", "sticky+claims", "lag-aware", "range"])
@pytest.mark.parametrize("case", CASES)
def test_coopgroup_when_given_a_case_gives_everything_to_subscribers(case: str, name: str) -> None:
    """Our arrays have the order of the file: who owns a partition keeps it."""
    group = draw(CASES[case], PARTITIONS)
    holder = prepare(group, name)()
    assert misplaced(group, holder) == 0
    if name.startswith("sticky") and case in ("join", "leave", "bounce"):
        owned = group.owner >= 0
        kept = np.count_nonzero(holder[owned] == group.owner[owned])
        assert kept >= (1 - 1 / len(group.members)) * np.count_nonzero(owned) - 1


def test_misplaced_counts_partitions_without_a_holder_that_subscribes() -> None:
    group = draw(CASES["buckets"], PARTITIONS)
    holder = prepare(group, "sticky")()
    holder[0] = -1
    holder[-1] = next(
        number for number, one in enumerate(group.class_of) if one != group.class_of[holder[-1]]
    )
    assert misplaced(group, holder) == 2


def test_serve_when_orders_come_answers_each_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has times or a reason; a run that takes too long stays the only run."""
    group = draw(CASES["racks"], PARTITIONS)
    write_group(group, tmp_path / "group")
    place = f"{tmp_path / 'group'}\t{tmp_path / 'answer'}"
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(f"{place}\trange\t3\t10000\n{place}\trange\t3\t0\n")
    )
    serve()
    answers = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in answers] == [3, 1]
    assert misplaced(group, read_answer(tmp_path / "answer")) == 0


def test_tables_when_somebody_gave_up_leave_the_figure_out() -> None:
    """The cell is a dash, not a zero; a single run is in brackets, and one size has no growth."""

    def one(ms: float, runs: int = 5) -> dict[str, Any]:
        return {"runs": runs, "ms": ms}

    by_size = {
        "10000": {"java": one(20.0, runs=1), "coopgroup": one(1.0), "claims": one(2.0)},
        "100000": {"java": one(0.0, runs=0), "coopgroup": one(10.0), "claims": one(20.0)},
    }
    drawn = tables(
        {
            "contestants": {"java": "Java", "coopgroup": "ours", "claims": "whole"},
            "times": {"sticky": {"join": by_size}},
            "limits": {"argsort": {"ms": 20.0}, "one": {"ms": 50.0, "bytes": 44.4}},
            "notes": ["Somebody is missing."],
        }
    ).splitlines()
    assert (
        "| sticky | a member joins | 1.0 / 10 / \N{EN DASH}, n^1.0 "
        "| 2.0 / 20 / \N{EN DASH}, n^1.0 | (20) / \N{EN DASH} / \N{EN DASH} | 20 / 10 |"
    ) in drawn
    assert "| one | 50 | 2.5 | 44 |" in drawn
    assert drawn[-1] == "Somebody is missing."


def _plain(group: Group) -> dict[str, Any]:
    fields = attrs.asdict(group, recurse=False)
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }
