"""The tree under test: its root, its tracked files, the modules of the core."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "coopgroup"

CORE_PARTS = ("core", "errors")
"""What knows neither clock nor network (docs: architecture)."""


def tracked_files() -> list[Path]:
    """Return all files of the repository, including new files that are not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git of the PATH
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in sorted(set(listing.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below any of `folders` (relative to the root), sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_in_tree(path: Path) -> str:
    """Return `path` relative to the root."""
    return path.relative_to(ROOT).as_posix()
