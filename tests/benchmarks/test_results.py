"""The results file of the benchmarks, and tables in a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.sections import write_section
from tests.benchmarks.headline import HEADINGS, one_table, playable_kinds, tables
from tests.benchmarks.results import merge_results

FACTS = {
    "retained_pause_ms_max": 1234.6,
    "unavailable_partition_s": 4.25,
    "moved": 4.0,
    "failed_commits": 1.0,
    "duplicated": 20.0,
    "double_owner_ms": 0.4,
}
TABLES = """\
Longest pause of a partition that stays where it is, in ms:

| scenario | coopgroup-simple | eager |
|---|---:|---:|
| nothing happens (noise) | 0 | ~ |
| a fifth member joins | 0 | 1,235 |

Unavailable partition-seconds:

| scenario | coopgroup-simple | eager |
|---|---:|---:|
| nothing happens (noise) | 0.0 | ~ |
| a fifth member joins | 0.0 | 4.2 |

Moves / failed commits, then duplicates / double-owner time in ms unless both are 0:

| scenario | coopgroup-simple | eager |
|---|---:|---:|
| nothing happens (noise) | 0 / 0 | ~ |
| a fifth member joins | 0 / 0 | 4 / 1 / 20 / 0 |""".replace("~", "\N{EN DASH}")


ONE_TABLE = """\
| | coopgroup, classic | librdkafka, KIP-848 |
|---|---:|---:|
| a fifth member joins | 1,235 ms / 4.2 | ~ |""".replace("~", "\N{EN DASH}")


def test_tables_of_the_headline_have_a_row_a_scenario_and_a_column_a_kind() -> None:
    """A scenario that a kind has not played is a dash, not a zero."""
    nothing = dict.fromkeys(FACTS, 0.0)
    medians = {"coopgroup-simple": {"quiet": nothing, "join": nothing}, "eager": {"join": FACTS}}
    assert tables(medians) == TABLES


def test_table_at_default_timeouts_names_clients_in_its_columns() -> None:
    medians = {"coopgroup-simple-bell": {"join": FACTS}, "kip848": {}}
    assert one_table(medians) == ONE_TABLE


def test_kind_without_its_tool_is_left_out_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert playable_kinds(HEADINGS) == tuple(kind for kind in HEADINGS if "franz" not in kind)
    expected = "headline: franz-go-kip848 is left out, because go is not on the PATH\n"
    assert capsys.readouterr().out == expected


def test_write_section_when_run_twice_replaces_only_what_is_between(tmp_path: Path) -> None:
    """Without both marks, in order, the page stays as it is."""
    page = tmp_path / "page.md"
    page.write_text("before <!-- a:begin --> old <!-- a:end --><!-- b:end --><!-- b:begin -->")
    for _ in range(2):
        write_section(page, "a", "new")
    expected = "before <!-- a:begin -->\n\nnew\n\n<!-- a:end --><!-- b:end --><!-- b:begin -->"
    assert page.read_text() == expected
    with pytest.raises(ValueError, match="no marks"):
        write_section(page, "b", "new")
    assert page.read_text() == expected


def test_merge_results_when_others_are_there_keeps_them(tmp_path: Path) -> None:
    """Each benchmark replaces its own key."""
    path = tmp_path / "build" / "benchmarks.json"
    merge_results({"leader": 1, "headline": 2}, path)
    merge_results({"headline": {"b": 1, "a": 2}}, path)
    assert json.loads(path.read_text()) == {"leader": 1, "headline": {"a": 2, "b": 1}}
