"""Folders of tables: on this machine, or on any file system that Spark reaches.

Delta reads and writes the tables. `Folders` is for the rest: checkpoints, scratch files, and
folders of earlier releases.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from attrs import frozen

from coopgroup.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folders", "local_folder"]


def local_folder(folder: str) -> Path | None:
    """Return the path of a local folder, `None` for a remote one.

    Args:
        folder: path or URL.
    """
    if "://" not in folder and not folder.startswith("file:"):
        return Path(folder)
    parts = urlsplit(folder)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@frozen
class Folders:
    """Operations on paths and URLs, by Hadoop's file systems.

    PySpark has no public access to Hadoop, so the calls go to its JVM.

    Attributes:
        spark: the session.
    """

    spark: SparkSession

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, path: str) -> dict[str, int]:
        """Return the files and folders in a folder, with their modification times in ms."""
        if not self.exists(path):
            return {}
        found = self._system(path).listStatus(self._path(path))
        return {one.getPath().getName(): int(one.getModificationTime()) for one in found}

    def text(self, path: str) -> str:
        """Return the text of a small file."""
        stream = self._system(path).open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def copy(self, source: str, target: str) -> None:
        """Copy a folder; an existing target is replaced.

        Raises:
            PipelineError: the file system refuses.
        """
        self.delete(target)
        is_copied = self._jvm.org.apache.hadoop.fs.FileUtil.copy(
            self._system(source),
            self._path(source),
            self._system(target),
            self._path(target),
            False,  # noqa: FBT003 - keeps the source
            self._configuration,
        )
        if not is_copied:
            raise PipelineError(f"{source} cannot be copied to {target}")

    def rename(self, source: str, target: str) -> None:
        """Rename a folder.

        Raises:
            PipelineError: the target exists, or the file system refuses.
        """
        # Hadoop would move the folder into a folder that exists.
        is_taken = self.exists(target)
        if is_taken or not self._system(source).rename(self._path(source), self._path(target)):
            reason = ", because that exists" if is_taken else ""
            raise PipelineError(f"{source} cannot be renamed to {target}{reason}")

    def delete(self, path: str) -> None:
        """Delete a file or folder, if it exists."""
        self._system(path).delete(self._path(path), True)  # noqa: FBT003 - with its content

    def check_release(self, folder: str, version: int) -> None:
        """Refuse a folder of tables that another release wrote.

        Args:
            folder: path or URL.
            version: the version of tables that this release reads.

        Raises:
            PipelineError: it has tables of another version.
        """
        for name in sorted(name for name in self.names(folder) if re.fullmatch(r"v\d+", name)):
            if int(name[1:]) < version:
                raise PipelineError(
                    f"{folder} has tables of an earlier release ({name}); run coopgroup "
                    f"pipeline convert --tables {folder}"
                )
            if int(name[1:]) > version:
                raise PipelineError(
                    f"{folder} has tables of a later release ({name}, and this release reads "
                    f"v{version}); use that release, or another folder"
                )

    @property
    def _jvm(self) -> Any:  # noqa: ANN401 - objects of Java
        return self.spark._jvm  # noqa: SLF001 - see above

    @property
    def _configuration(self) -> Any:  # noqa: ANN401 - an object of Java
        return self.spark._jsc.hadoopConfiguration()  # noqa: SLF001 - see above

    def _path(self, path: str) -> Any:  # noqa: ANN401 - an object of Java
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:  # noqa: ANN401 - an object of Java
        return self._path(path).getFileSystem(self._configuration)
