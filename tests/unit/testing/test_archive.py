"""The class data archive of Kafka: made once; brokers start without it, too."""

import os
from pathlib import Path

import pytest

from coopgroup.testing import archive
from coopgroup.testing.archive import archive_options, archive_path, ensure_class_archive
from coopgroup.testing.maven import KafkaRuntime


@pytest.fixture
def runtime(tmp_path: Path) -> KafkaRuntime:
    """A runtime whose Java ends immediately, like a Java that cannot start Kafka."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    folder = tmp_path / "kafka"
    folder.mkdir()
    (folder / "bootstrap.checkpoint").write_text("checkpoint")
    return KafkaRuntime(java=str(java), folder=folder)


def test_another_java_gets_another_archive(runtime: KafkaRuntime) -> None:
    """Java would ignore an archive of an older Java."""
    before = archive_path(runtime)
    os.utime(runtime.java, (0, 0))  # a quick file system may give two files one time
    assert archive_path(runtime).parent == before.parent == runtime.folder
    assert archive_path(runtime) != before


def test_failed_training_is_remembered_and_leaves_nothing(
    runtime: KafkaRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def folder_of_test(parent: Path | None, broker_count: int) -> Path:
        folders.append(tmp_path / f"data-{len(folders)}")
        folders[-1].mkdir()
        return folders[-1]

    monkeypatch.setattr(archive, "make_folder", folder_of_test)

    ensure_class_archive(runtime, ())
    ensure_class_archive(runtime, ())

    assert archive_path(runtime).read_bytes() == b""
    assert [folder.exists() for folder in folders] == [False]


def test_cache_that_cannot_be_written_is_no_error(
    runtime: KafkaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "read-only", str(folder))

    monkeypatch.setattr(archive, "cache_lock", refuse)

    ensure_class_archive(runtime, ())

    assert archive_options(runtime) == ()
