"""Folders of tables: on this machine, or on any file system that Spark reaches.

Delta reads and writes the tables. `Folders` is for the rest: checkpoints and scratch files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def _in_one_line(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{path} cannot be read or written: {error.strerror}") from error


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

    def text(self, path: str) -> str | None:
        """Return the text of a small file; `None` if it does not exist.

        Raises:
            ValueError: it is not UTF-8.
        """
        local = self._local(path)
        if local is not None:
            with _in_one_line(path), suppress(FileNotFoundError):
                return local.read_text("utf-8")
            return None
        if not self.exists(path):
            return None
        stream = self._system(path).open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small file, and replace an earlier one.

        A reader sees the earlier file or the new one, also after a kill.
        """
        local = self._local(path)
        if local is not None:
            new = local.with_name(f".{local.name}.{uuid.uuid4().hex}")
            with _in_one_line(path):
                local.parent.mkdir(parents=True, exist_ok=True)
                try:
                    new.write_text(text, "utf-8")
                    new.replace(local)
                finally:
                    new.unlink(missing_ok=True)
            return
        # Spark writes its checkpoints in this way: by a rename, or as the file system needs it.
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        checkpoints = streaming.CheckpointFileManager.create(self._path(path), self._configuration)
        checkpoints.mkdirs(self._path(path).getParent())
        stream = checkpoints.createAtomic(self._path(path), True)  # noqa: FBT003 - overwrite
        try:
            stream.write(text.encode())
        except BaseException:
            stream.cancel()
            raise
        stream.close()

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
        for name in sorted(self.names(folder)):
            if re.fullmatch(r"v\d+", name) and int(name[1:]) != version:
                raise PipelineError(
                    f"{folder} has tables of another release ({name}, and this release reads "
                    f"v{version}); use that release, or another folder"
                )

    def _local(self, path: str) -> Path | None:
        """Return a path of this machine as Hadoop reads it; `None` on another file system."""
        is_local = self._system(path).getUri().getScheme() == "file"
        return Path(self._path(path).toUri().getPath()) if is_local else None

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
