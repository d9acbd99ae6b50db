"""What the README shows works, and what it points to is there."""

import ast
from pathlib import Path

import pytest

import coopgroup
from tests.architecture.readme import readme_examples, readme_fences, readme_links
from tests.architecture.tree import ROOT


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example that needs no broker runs as it stands, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for example in readme_examples("python"):
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - the README's own text


def test_examples_are_of_a_kind_that_is_tested() -> None:
    """No slip in its mark leaves a block of Python out of these tests and of the broker tests."""
    kinds = {kind for kind in readme_fences() if "py" in kind.lower()}
    assert sorted(kinds - {"python", "python broker"}) == []


def test_examples_on_a_broker_import_what_is_public() -> None:
    """Examples that need a broker (run by the broker tests) import public names only."""
    imported = {
        alias.name
        for example in readme_examples("python broker")
        for node in ast.walk(ast.parse(example))
        if isinstance(node, ast.ImportFrom) and node.module == "coopgroup"
        for alias in node.names
    }
    assert imported
    assert sorted(imported - set(coopgroup.__all__)) == []


def test_links_lead_somewhere() -> None:
    """Every link into the tree leads to a file or folder."""
    inside = [link for link in readme_links() if "://" not in link and not link.startswith("#")]
    assert [link for link in inside if not (ROOT / link.partition("#")[0]).exists()] == []
