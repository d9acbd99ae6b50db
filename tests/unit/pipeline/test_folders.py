"""Paths and URLs of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopgroup.pipeline.folders import local_folder


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("tables", Path("tables")),
        ("file:///a/b%20c", Path("/a/b c")),
        ("file:/a", Path("/a")),
        ("s3a://bucket/tables", None),
    ],
)
def test_only_folders_of_this_machine_have_a_path(folder: str, path: Path | None) -> None:
    assert local_folder(folder) == path
