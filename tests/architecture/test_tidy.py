"""House rules that no linter checks; each message says how to fix the code."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import (
    CORE_PARTS,
    ROOT,
    SOURCE,
    name_in_tree,
    python_files,
    tracked_files,
)

BANNED_NAMES = {
    "data": "say what it holds: payload, records, lags",
    "helper": "name the module after what it decides or builds",
    "info": "say what it tells: offsets, topic metadata",
    "manager": "name the one thing that it does",
    "util": "name the module after what it decides or builds",
}
BANNED_PREFIXES = {
    "do_": "drop it: the verb that follows is the name",
    "handle_": "say what happens: renew_lease, not handle_heartbeat",
    "process_": "say what happens to it: decode, stage, commit",
}
# Names that the standard library calls (`http.server`).
CALLED_BY_OTHERS = {"do_GET", "do_HEAD"}

# Written so that these lines do not match themselves.
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(wor[k]|far[m]|roo[t]|tmp/coo[p])/")
REGISTRY_HOSTS = re.compile(
    r"pypi\.or[g]|pythonhoste[d]|repo1?\.mave[n]|registry\.npmj[s]|proxy\.golan[g]|deb\.debia[n]"
    r"|crates\.i[o]",
)


def _lines_matching(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Return `file:line: text` of every matching line in `paths`; binary files have no lines."""
    found = []
    for path in paths:
        content = path.read_bytes()
        if b"\0" in content:
            continue
        lines = content.decode().splitlines()
        found += [
            f"{name_in_tree(path)}:{number}: {line.strip()}"
            for number, line in enumerate(lines, start=1)
            if pattern.search(line)
        ]
    return found


def _defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return line and name of each function, class, variable and argument of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.arg():
                yield node.lineno, node.arg
            case _:
                pass


def _objection(name: str) -> str | None:
    """Return why `name` is banned, or None if it is allowed."""
    if name in CALLED_BY_OTHERS:
        return None
    bare = name.strip("_").lower()
    if bare in BANNED_NAMES:
        return BANNED_NAMES[bare]
    return next(
        (why for prefix, why in BANNED_PREFIXES.items() if bare.startswith(prefix)),
        None,
    )


def test_core_parts_exist() -> None:
    """The list of core parts must not name a deleted or renamed part."""
    parts = {path.stem for path in SOURCE.iterdir()}
    assert [part for part in CORE_PARTS if part not in parts] == []


def test_tracked_files_hold_no_unfinished_work() -> None:
    """Open work belongs in an issue, not in the tree."""
    assert _lines_matching(UNFINISHED, tracked_files()) == []


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRY_HOSTS], ids=["paths", "hosts"])
def test_tracked_files_name_no_machine(pattern: re.Pattern[str]) -> None:
    """The repository works on any machine: it contains no machine's paths and no registry."""
    assert _lines_matching(pattern, tracked_files()) == []


def test_source_names_say_what_they_are() -> None:
    """Names without meaning are banned in src, for files and for definitions."""
    objections = []
    for path in python_files("src"):
        names = [(0, path.stem), *_defined_names(ast.parse(path.read_text()))]
        objections += [
            f"{name_in_tree(path)}:{line}: {name} is banned; {why}"
            for line, name in names
            if (why := _objection(name)) is not None
        ]
    assert objections == []


def test_unit_tests_mirror_modules() -> None:
    """Readers of <package>/x.py look for its tests in tests/unit/<package>/test_x.py.

    Several files may replace one long file: test_x.py, test_x_of_one_idea.py and so on.
    """
    strays = []
    for path in python_files("tests/unit"):
        if not path.name.startswith("test_"):
            continue
        folder = SOURCE / path.parent.relative_to(SOURCE.parents[1] / "tests" / "unit")
        words = path.stem.removeprefix("test_").split("_")
        names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
        if not ((folder / names[-1]).is_dir() or any((folder / f"{x}.py").exists() for x in names)):
            strays.append(name_in_tree(path))
    assert strays == []


def test_markers_have_a_folder_or_are_set_by_hand() -> None:
    """An unused marker would name a kind of test that nobody writes."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    sources = [path.read_text() for path in python_files("tests")]
    for line in options["markers"]:
        name, _, text = line.partition(": ")
        if "set by hand" in text:
            assert any(f"mark.{name}" in source for source in sources), name
        else:
            assert python_files(f"tests/{name}"), name
            assert f"(tests/{name})" in text
