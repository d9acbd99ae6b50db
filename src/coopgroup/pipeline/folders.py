"""Folders of tables: on this machine, or on any file system that Spark reaches.

Delta reads and writes the tables. `Folders` is for the rest: checkpoints and scratch files.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from attrs import frozen
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

from coopgroup.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folders", "local_folder"]

_NO_FILE: Final = "FileNotFoundException"
_OTHER_CONTENT: Final = "ChecksumException"


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

    def text(self, path: str) -> str | None:
        """Return the text of a small file; `None` if it does not exist.

        Raises:
            ValueError: the file does not have the content that was written.
        """
        try:
            stream = self._system(path).open(self._path(path))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            why = str(error.java_exception)
            if _NO_FILE in why:
                return None
            if _OTHER_CONTENT in why:
                raise ValueError(path) from None
            raise

    def write(self, path: str, text: str) -> None:
        """Write a small file, and replace an earlier one: a reader finds one of them, whole."""
        new = f"{path}.{uuid.uuid4().hex}"
        stream = self._system(path).create(self._path(new), True)  # noqa: FBT003 - overwrite
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        hadoop = self._jvm.org.apache.hadoop.fs
        options = self._gateway.new_array(hadoop.Options.Rename, 1)
        options[0] = hadoop.Options.Rename.OVERWRITE
        context = hadoop.FileContext.getFileContext(self._path(path).toUri(), self._configuration)
        context.rename(self._path(new), self._path(path), options)

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

    @property
    def _gateway(self) -> Any:  # noqa: ANN401 - objects of Py4J
        return self.spark.sparkContext._gateway  # noqa: SLF001 - see above

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
