"""The preparation of a Spark worker before a task."""

import gc
import sys
from importlib.machinery import FileFinder
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from coopgroup.pipeline.spark import workers


def test_worker_forgets_archives_before_each_task_and_keeps_modules_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importers of folders stay. The input passes through the task unchanged."""
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(sys, "path_importer_cache", {})
    workers._keep_modules.cache_clear()  # noqa: SLF001 - as in a new process
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("anything.py", "")
    sys.path_importer_cache[str(tmp_path)] = FileFinder(str(tmp_path))
    for number in range(3):
        sys.path_importer_cache[str(archive)] = zipimporter(str(archive))
        assert list(workers.settled(iter, [number])) == [number]
        assert list(sys.path_importer_cache) == [str(tmp_path)]
    assert frozen == [True]
    workers._keep_modules.cache_clear()  # noqa: SLF001 - for whoever comes after
