"""The architecture page is a map: its files exist, and its reading path is short and true."""

import re

from tests.architecture.readme import tables_between
from tests.architecture.tree import ROOT, SOURCE

PAGE = ROOT / "docs" / "architecture.md"
FILES_MAX = 19
LINES_OFF_MAX = 40
"""How far a stated length may be from the real one, so that an edit need not touch the page."""


def _path() -> dict[str, int]:
    """Return the stated number of lines of each file of the reading path, in order."""
    (table,) = tables_between(PAGE, "### One join round", "## The way of a scenario")
    return {name.strip("`"): int(lines) for _, name, lines, _ in table[1:]}


def _lines(name: str) -> int:
    return len((SOURCE / name).read_text().splitlines())


def test_every_named_file_and_folder_exists() -> None:
    names = re.findall(r"`([a-z_]+/(?:[a-z_]+/)*(?:[a-z_]+\.py)?)`", PAGE.read_text())
    assert len(names) > len(_path())
    assert [name for name in names if not (SOURCE / name).exists()] == ["src/coopgroup/"]


def test_reading_path_of_a_join_round_is_short() -> None:
    assert len(_path()) <= FILES_MAX


def test_stated_lengths_are_about_right() -> None:
    stated = _path()
    lengths = {name: _lines(name) for name in stated}
    off = {name for name in stated if abs(lengths[name] - stated[name]) > LINES_OFF_MAX}
    assert {name: lengths[name] for name in off} == {}
