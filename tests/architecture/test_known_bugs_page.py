"""docs/development/known_bugs.md: each test that it names exists."""

import re

from tests.architecture.tree import ROOT, python_files

PAGE = (ROOT / "docs" / "development" / "known_bugs.md").read_text()


def test_page_names_tests_that_are_there() -> None:
    """One in each row; renaming a test must change its row."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "our test" not in line]
    named = [re.findall(r"\| `(test_\w+)` \|$", row) for row in rows]
    assert [row for row, found in zip(rows, named, strict=True) if not found] == []
    tests = {
        name
        for path in python_files("tests")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), flags=re.MULTILINE)
    }
    assert [name for [name] in named if name not in tests] == []
