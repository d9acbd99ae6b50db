"""What a package index, a citation and a forge are told agrees with the repository.

`make package` builds the sdist and the wheel, and validates CITATION.cff and the workflow.
"""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import coopgroup
from tests.architecture.readme import readme_links
from tests.architecture.tree import ROOT, name_in_tree, tracked_files

SOURCE_URL = "https://forge.test/us/coopgroup"


def _project() -> dict[str, dict[str, str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def build_step() -> ModuleType:
    found = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


# --- the README of a package index ---------------------------------------------------------------


def test_index_readme_has_no_relative_link(build_step: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text()
    shown = build_step.with_absolute_links(readme, source=SOURCE_URL, version="1.2.3")
    relative = {link for link in readme_links() if "://" not in link and not link.startswith("#")}
    assert len(relative) > 10
    assert [link for link in relative if f"({link})" in shown] == []
    assert all(f"({SOURCE_URL}/blob/v1.2.3/{link})" in shown for link in relative)


# --- one address, one licence, one version -------------------------------------------------------


def test_metadata_and_citation_name_one_repository_and_one_licence() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    project = _project()
    urls = project["urls"]
    assert f"repository-code: {urls['Source']}" in lines
    assert f"license: {project['license']}" in lines
    assert [url for url in urls.values() if not url.startswith(urls["Source"])] == []


def test_changelog_begins_with_this_version() -> None:
    first = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first == coopgroup.__version__.partition(".dev")[0]


def test_install_commands_are_true_before_and_after_publication() -> None:
    """Until our name is on an index, `pip install coopgroup` could install another project."""
    commands = [
        (name_in_tree(path), argument)
        for path in tracked_files()
        if path.suffix in {".md", ".py", ".toml", ".cff"} and "tests" not in path.parts
        for argument in re.findall(r"pip install (?:-\S+ )*'?([^\s'`]+)", path.read_text())
    ]
    assert len(commands) > 4
    assert [one for one in commands if one[1].startswith("coopgroup")] == []
    # A program does not run in a clone: its messages name the packages (`coopgroup.extras`).
    assert [one for one in commands if one[0].startswith("src/") and one[1][0] == "."] == []


# --- make release --------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a tree of what `scripts/check-release` reads, ready to publish as 0.2.0."""
    (tmp_path / "src" / "coopgroup").mkdir(parents=True)
    (tmp_path / "src" / "coopgroup" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n## 0.1.0\n")
    (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nSource = "{SOURCE_URL}"\n')
    (tmp_path / "CITATION.cff").write_text(f"repository-code: {SOURCE_URL}\n")
    return tmp_path


def _check(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "check-release"), str(root)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "objection"),
    [
        ("src/coopgroup/__init__.py", "0.2.0", "0.2.0.dev0", "version 0.2.0.dev0 is that of"),
        ("CHANGELOG.md", "(2026-12-01)", "(unreleased)", "the first section is '0.2.0 (unrel"),
        ("pyproject.toml", "forge.test", "forge.example", "project.urls.Source is the placeholder"),
        ("CITATION.cff", "forge.test", "forge.example", "CITATION.cff: placeholder https://"),
    ],
)
def test_release_when_not_ready(
    release: Path, file: str, old: str, new: str, objection: str
) -> None:
    assert _check(release) == (0, "release: ready to publish\n")
    path = release / file
    path.write_text(path.read_text().replace(old, new))
    status, said = _check(release)
    assert status == 1
    assert objection in said
