"""The results file of the benchmarks, and the headline's tables in a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.headline import merged, tables, write_tables
from tests.benchmarks.results import merge_results

FACTS = {
    "retained_pause_ms_max": 1234.6,
    "unavailable_partition_s": 4.25,
    "moved": 4.0,
    "failed_commits": 1.0,
    "duplicated": 20.0,
    "double_owner_ms": 0.4,
}
MEDIANS = {
    "coopgroup-simple": {"quiet": dict.fromkeys(FACTS, 0.0), "join": dict.fromkeys(FACTS, 0.0)},
    "eager": {"quiet": dict.fromkeys(FACTS, 0.0), "join": FACTS},
}
TABLES = """\
Longest pause of a partition that stays where it is, in ms:

| scenario | coopgroup-simple | eager |
|---|---:|---:|
| nothing happens (noise) | 0 | 0 |
| a fifth member joins | 0 | 1,235 |

Unavailable partition-seconds:

| scenario | coopgroup-simple | eager |
|---|---:|---:|
| nothing happens (noise) | 0.0 | 0.0 |
| a fifth member joins | 0.0 | 4.2 |

Moves / failed commits / duplicates / double-owner time in ms:

| scenario | coopgroup-simple | eager |
|---|---:|---:|
| nothing happens (noise) | 0 / 0 / 0 / 0 | 0 / 0 / 0 / 0 |
| a fifth member joins | 0 / 0 / 0 / 0 | 4 / 1 / 20 / 0 |"""


def test_tables_when_medians_are_given_have_a_row_a_scenario_and_a_column_a_kind() -> None:
    """The tables have the form of the README."""
    assert tables(MEDIANS) == TABLES


def test_write_tables_when_run_twice_replaces_only_what_is_between_the_markers(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- headline:begin -->\nold\n<!-- headline:end -->\nafter\n")
    expected = f"before\n<!-- headline:begin -->\n\n{TABLES}\n\n<!-- headline:end -->\nafter\n"
    for _ in range(2):
        write_tables(MEDIANS, page)
        assert page.read_text() == expected


def test_write_tables_when_a_marker_is_missing_leaves_the_page_alone(tmp_path: Path) -> None:
    """Otherwise the tables would appear at a random place of the page."""
    page = tmp_path / "page.md"
    page.write_text("<!-- headline:end --> <!-- headline:begin -->")
    with pytest.raises(ValueError, match="has no markers"):
        write_tables(MEDIANS, page)
    assert page.read_text() == "<!-- headline:end --> <!-- headline:begin -->"


def test_merge_results_when_others_are_there_keeps_them(tmp_path: Path) -> None:
    """Each benchmark replaces its own key."""
    path = tmp_path / "build" / "benchmarks.json"
    merge_results({"codec": 1, "headline": 2}, path)
    merge_results({"headline": {"b": 1, "a": 2}}, path)
    assert json.loads(path.read_text()) == {"codec": 1, "headline": {"a": 2, "b": 1}}


def _result(repeat: int, medians: dict[str, dict[str, int]]) -> dict[str, Any]:
    settings = {"partitions": 24, "repeat": repeat}
    return {"settings": settings, "medians": medians, "runs": medians}


def test_merged_when_some_are_played_again_keeps_the_others_in_order() -> None:
    before = _result(3, {"eager": {"quiet": 1, "join": 2}})
    again = _result(1, {"eager": {"join": 3}, "coopgroup-deferred": {"join": 4}})
    found = merged(before, again)
    assert found == _result(
        1, {"coopgroup-deferred": {"join": 4}, "eager": {"quiet": 1, "join": 3}}
    )
    assert list(found["medians"]) == ["coopgroup-deferred", "eager"]


def test_merged_when_the_settings_differ_refuses() -> None:
    """Figures of different trials do not belong into one table."""
    before = _result(3, {})
    with pytest.raises(ValueError, match="other settings"):
        merged(before, {**before, "settings": {"partitions": 12, "repeat": 3}})


def test_tables_when_a_kind_has_not_played_a_scenario_leaves_the_figure_out() -> None:
    """The cell is a dash, not a zero."""
    facts = dict.fromkeys(FACTS, 0.0)
    drawn = tables({"eager": {"join": facts}, "kip848": {"quiet": facts, "join": facts}})
    assert "| nothing happens (noise) | \N{EN DASH} | 0 |" in drawn.splitlines()
