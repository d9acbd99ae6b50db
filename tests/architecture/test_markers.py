"""Markers: each belongs to a folder or is set by hand, and unused markers fail."""

import tomllib

from tests.architecture.tree import ROOT, python_files

SET_BY_HAND = "set by hand"


def _markers() -> dict[str, str]:
    """Return the description of each marker in pyproject.toml."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    halves = (line.partition(": ") for line in options["markers"])
    return {name: text for name, _, text in halves}


def test_markers_of_folders_have_a_folder_with_tests() -> None:
    markers = {name: text for name, text in _markers().items() if SET_BY_HAND not in text}
    assert markers
    assert [name for name in markers if not python_files(f"tests/{name}")] == []
    assert [name for name, text in markers.items() if f"(tests/{name})" not in text] == []


def test_markers_set_by_hand_are_set() -> None:
    sources = [path.read_text() for path in python_files("tests")]
    by_hand = [name for name, text in _markers().items() if SET_BY_HAND in text]
    unused = [name for name in by_hand if not any(f"mark.{name}" in text for text in sources)]
    assert unused == []
