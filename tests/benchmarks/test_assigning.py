"""The benchmark of the assignors: its groups, files, quality figures and tables."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from tests.benchmarks.assigning import coopgroup_worker, kafka_python_worker, work
from tests.benchmarks.assigning.group_file import (
    read_answer,
    read_group,
    write_answer,
    write_group,
)
from tests.benchmarks.assigning.groups import CASES, Group, draw, drawn_lags
from tests.benchmarks.assigning.quality import kept_most, quality
from tests.benchmarks.assigning.tables import growth, tables
from tests.benchmarks.results import write_between

PARTITIONS = 600


@pytest.mark.parametrize("case", CASES)
def test_group_file_when_read_gives_the_group_that_was_written(case: str, tmp_path: Path) -> None:
    """All contestants get the same group."""
    group = draw(CASES[case], PARTITIONS)
    write_group(group, tmp_path / "group")
    assert _plain(read_group(tmp_path / "group")) == _plain(group)


def test_answer_when_read_gives_the_holders_that_were_written(tmp_path: Path) -> None:
    write_answer(np.array([3, -1, 0], dtype=np.int32), tmp_path / "answer")
    assert read_answer(tmp_path / "answer").tolist() == [3, -1, 0]


@pytest.mark.parametrize("name", ["sticky", "sticky+claims", "lag-aware", "range"])
@pytest.mark.parametrize("case", CASES)
def test_coopgroup_when_given_a_case_gives_everything_to_subscribers(case: str, name: str) -> None:
    """Our arrays have the order of the file."""
    group = draw(CASES[case], PARTITIONS)
    timed, answer = coopgroup_worker.prepare(group, name)
    assert _judged(group, answer(timed()))["misplaced"] == 0


@pytest.mark.parametrize("case", ["join", "leave", "bounce", "buckets", "skewed"])
def test_sticky_contestants_when_somebody_joins_or_leaves_keep_what_can_be_kept(case: str) -> None:
    """Our worker and kafka-python's see the same owners."""
    group = draw(CASES[case], PARTITIONS)
    for prepare in (coopgroup_worker.prepare, kafka_python_worker.prepare):
        prepared = prepare(group, "sticky")
        assert prepared is not None
        timed, answer = prepared
        found = _judged(group, answer(timed()))
        assert (found["spread"] <= 1, found["kept"], found["misplaced"]) == (
            True,
            kept_most(group),
            0,
        )


def test_kept_most_when_subscriptions_overlap_is_unknown() -> None:
    """The exact figure needs a solver."""
    assert kept_most(draw(CASES["random"], PARTITIONS)) is None


def test_quality_when_a_target_is_poor_says_so() -> None:
    """One member has all partitions that have an owner."""
    group = draw(CASES["join"], PARTITIONS)
    holder = np.zeros_like(group.owner)
    holder[0] = -1
    found = _judged(group, holder)
    assert found == {
        "spread": holder.size - 1,
        "lag_peak": float(len(group.members)),
        "kept": int(np.count_nonzero(group.owner[1:] == 0)),
        "misplaced": 1,
    }


def test_quality_when_racks_are_known_counts_what_is_far_away() -> None:
    """Every partition has replicas in two of three racks."""
    group = draw(CASES["racks"], PARTITIONS)
    holder = np.zeros_like(group.owner)
    far = (group.replica_racks != group.member_racks[0]).all(axis=1)
    assert _judged(group, holder)["far"] == np.count_nonzero(far) > 0


def test_serve_when_orders_come_answers_each_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has times or a reason; a run that takes too long stays the only run."""
    group = draw(CASES["racks"], PARTITIONS)
    write_group(group, tmp_path / "group")
    place = f"{tmp_path / 'group'}\t{tmp_path / 'answer'}"
    orders = f"{place}\trange\t3\t10000\n{place}\trange\t3\t0\n{place}\tsticky\t3\t10000\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(orders))

    def prepare(given: Group, name: str) -> work.Prepared | None:
        return coopgroup_worker.prepare(given, name) if name == "range" else None

    work.serve(prepare)
    answers = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in answers[:2]] == [3, 1]
    assert answers[2] == "no such assignor"
    assert _judged(group, read_answer(tmp_path / "answer"))["misplaced"] == 0


def test_growth_when_time_grows_with_the_square_is_two() -> None:
    """A single size gives no exponent."""
    assert growth({"10": 1.0, "100": 100.0, "1000": 10_000.0}) == pytest.approx(2)
    assert growth({"10": 1.0}) is None


def _one(ms: float, runs: int = 5) -> dict[str, Any]:
    return {"runs": runs, "ms": ms, "spread": 1, "lag_peak": 1.5, "kept": 90, "misplaced": 0}


def test_tables_when_somebody_gave_up_leave_the_figure_out() -> None:
    """The cell is a dash, not a zero; a single run is in brackets."""
    none = {"runs": 0, "note": "not asked"}
    by_size = {
        "10000": {"coopgroup": _one(1.0), "claims": _one(2.0), "java": _one(20.0, runs=1)},
        "100000": {"coopgroup": _one(10.0), "claims": _one(20.0), "java": none},
    }
    titles = {"coopgroup": "ours", "claims": "whole", "java": "Java"}
    drawn = tables(
        {
            "contestants": titles,
            "times": {"sticky": {"join": by_size}},
            "kept": {"join": {size: {"owned": 100, "most": 90} for size in by_size}},
            "limits": {"argsort": {"ms": 20.0}, "one": {"ms": 50.0, "bytes": 44.4}},
            "notes": ["Somebody is missing."],
        }
    ).splitlines()
    assert (
        "| sticky | a member joins | 1.0 / 10 / \N{EN DASH}, n^1.0 "
        "| 2.0 / 20 / \N{EN DASH}, n^1.0 | (20) / \N{EN DASH} / \N{EN DASH} | 20 / 10 |"
    ) in drawn
    assert "| sticky | a member joins | 10,000 | 1 / 100 % / 1.50 | 1 / 100 % / 1.50 |" in drawn
    assert "| one | 50 | 2.5 | 44 |" in drawn
    assert drawn[-1] == "Somebody is missing."


def test_write_between_when_run_twice_replaces_only_what_is_between(tmp_path: Path) -> None:
    """Without both markers the page stays as it is."""
    page = tmp_path / "page.md"
    page.write_text("before [ old ] after")
    for _ in range(2):
        write_between(page, "[", "]", "new")
    assert page.read_text() == "before [\n\nnew\n\n] after"
    with pytest.raises(ValueError, match="has no markers"):
        write_between(page, "]", "[", "new")


def _judged(group: Group, holder: Any) -> dict[str, Any]:  # noqa: ANN401 - an answer of anybody
    return quality(group, holder, drawn_lags(group.owner.size))


def _plain(group: Group) -> dict[str, Any]:
    fields = attrs.asdict(group, recurse=False)
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }
