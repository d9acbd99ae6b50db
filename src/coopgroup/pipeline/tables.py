"""`Tables`: Delta tables in a folder. Raw rows are appended once, and all others follow from them.

    FOLDER/v1/commits/_delta_log/, day=2026-11-22/part-....parquet
    FOLDER/v1/checkpoints/history/                                  (Spark's own)
    FOLDER/v1/progress/lag.json                                     (see `progress`)

Theory of operation. A commit of Delta changes one table, all of it or nothing. Raw tables only
grow, and a job that was killed repeats its last step. No row is added twice:

- `append`, for streams: each commit has the id of the checkpoint and the number of the micro-batch.
  Delta skips a commit with a number that it has seen.
- `merge`, for jobs without a checkpoint, and for rows that may arrive twice: only rows with a new
  key are added.

All other tables are functions of the raw tables. `replace` writes their rows of some days or groups
again, so a repeated run leaves the same rows.

Two jobs may write at the same time. After a conflict `replace` fails with a one-line error, and the
others try again.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import evolve, frozen
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from coopgroup.errors import PipelineError
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.schemas import TABLES, VERSION, Table
from coopgroup.pipeline.spark.session import FEW_ROWS, light_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

__all__ = ["MISSING", "ConflictError", "Keep", "Tables", "day_of", "unless_changed"]

MISSING: Final = frozenset({"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"})
"""Conditions of Spark's errors if there is no Delta table at a path."""

_CHANGES: Final = "delta.enableChangeDataFeed"
_AS_OF: Final = "as_of"
_HISTORY: Final = "history"
_CONFLICT: Final = re.compile(
    r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED|PATH_EXISTS|TABLE_ALREADY_EXISTS)"
)
_TRIES: Final = 5
_PAUSE_S: Final = 0.5
_MS_PER_S: Final = 1_000


class ConflictError(PipelineError):
    """Another job changed the same table, or the progress of the same job.

    Attributes:
        what: what it changed.
    """

    def __init__(self, what: str) -> None:
        """Make the message."""
        super().__init__(f"{what} was changed by another job at the same time; run this job again")
        self.what = what


Keep: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""Computes a frame and returns it without its plan."""


@frozen(kw_only=True)
class Tables:
    """The tables of one folder.

    Attributes:
        spark: the session.
        folder: path or URL that Spark reads and writes.
    """

    spark: SparkSession
    folder: str
    _pinned: Mapping[str, int] | None = None
    _pinned_as_of_ms: int | None = None

    @property
    def root(self) -> str:
        """Folder of the tables of this version."""
        return f"{self.folder.rstrip('/')}/v{VERSION}"

    def path(self, name: str) -> str:
        """Return the folder of a table."""
        return f"{self.root}/{name}"

    def in_sql(self, name: str) -> str:
        """Return a table as SQL names it."""
        return "delta.`{}`".format(self.path(name).replace("`", "``"))

    def checkpoint(self, job: str) -> str:
        """Return the folder of a job's checkpoint, where Spark stores the progress."""
        return f"{self.root}/checkpoints/{job}"

    # --- writing --------------------------------------------------------------------------------

    def append(self, job: str, batch: int, frames: Mapping[str, DataFrame]) -> None:
        """Add a micro-batch of a stream to raw tables; tables that have it are left unchanged.

        Args:
            job: name of the job, which has a checkpoint.
            batch: number of the micro-batch in the stream.
            frames: rows by table, in the columns of `TABLES`; written in this order.
        """
        stream = self._stream_id(job)
        for name, frame in frames.items():
            # An empty commit would take as long as any other.
            if not frame.isEmpty():
                writer = self._writer(TABLES[name], frame)[1].mode("append")
                writer = writer.option("txnAppId", stream).option("txnVersion", batch)
                self._commit(name, writer.save)

    def merge(
        self, frames: Mapping[str, DataFrame], *, from_ms: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Add the rows whose keys raw tables do not have yet.

        Args:
            frames: rows by table, in the columns of `TABLES`; rows with the same key are one row.
            from_ms: time of the earliest row, by table, so that earlier days need not be read;
                0 or left out if unknown.
        """
        for name, frame in frames.items():
            self._merge(TABLES[name], frame, from_ms.get(name, 0))

    def _merge(self, table: Table, frame: DataFrame, from_ms: int) -> None:
        rows, creation = self._writer(table, frame.dropDuplicates(list(table.key)))
        session, view = frame.sparkSession, f"new_{uuid.uuid4().hex}"
        empty = session.createDataFrame([], rows.schema)
        is_same = " AND ".join(f"old.`{name}` <=> new.`{name}`" for name in table.key)
        if from_ms and table.time:
            is_same += f" AND (old.day >= {day_of(from_ms)} OR old.day IS NULL)"
        rows.createOrReplaceTempView(view)

        def write() -> None:
            if self.version(table.name) < 0:
                creation.mode("error").save()
                return
            known = session.read.format("delta").load(self.path(table.name)).columns
            if set(rows.columns) - set(known):
                self._writer(table, empty)[1].mode("append").save()  # adds the columns
            session.sql(
                f"MERGE INTO {self.in_sql(table.name)} AS old"
                f" USING {view} AS new ON {is_same} WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        try:
            self._commit(table.name, write)
        finally:
            session.catalog.dropTempView(view)

    def replace(self, name: str, frame: DataFrame, where: str = "") -> None:
        """Replace rows of a table that is not raw.

        Args:
            name: name of the table.
            frame: its new rows, in the columns of `TABLES`.
            where: a condition of SQL, which all new rows meet: these rows are replaced. All rows if
                it is empty.

        Raises:
            ConflictError: another process changed the table at the same time.
        """
        writer = self._writer(TABLES[name], frame)[1].mode("overwrite")
        if where and self.version(name) >= 0:
            writer = writer.option("replaceWhere", where)
        self._commit(name, writer.save, tries=1)

    def _writer(self, table: Table, frame: DataFrame) -> tuple[DataFrame, DataFrameWriter]:
        """Return the rows with their day, and their writer, which adds missing columns."""
        rows = frame.select(*table.schema.names)
        if table.time:
            rows = rows.withColumn("day", table.day())
        narrow = rows.coalesce(max(1, self.spark.sparkContext.defaultParallelism))
        writer = narrow.write.format("delta").option("mergeSchema", "true")
        if not table.is_derived:
            writer = writer.option(_CHANGES, "true")
        if table.time:
            writer = writer.partitionBy("day")
        return rows, writer.option("path", self.path(table.name))

    def _commit(self, name: str, write: Callable[[], object], tries: int = _TRIES) -> None:
        """Write to a table, again after a conflict."""
        for one in range(1, tries + 1):
            try:
                write()
            except (PySparkException, Py4JError) as error:
                if not _CONFLICT.search(str(error)):
                    raise
                if one == tries:
                    raise ConflictError(self.path(name)) from error
                time.sleep(_PAUSE_S * one)
            else:
                return

    def execute(self, name: str, statement: str) -> None:
        """Run an SQL statement that changes a table."""
        self._commit(name, lambda: self.spark.sql(statement).collect())

    def note(self, job: str, progress: Mapping[str, Any] | None) -> None:
        """Store the progress of a job as JSON; `None` forgets it."""
        folders, path = Folders(self.spark), self._progress(job)
        if progress is None:
            folders.delete(path)
        else:
            folders.write(path, json.dumps(progress))

    def noted(self, job: str) -> dict[str, Any] | None:
        """Return the progress of a job; `None` if it has none, or if it is unreadable."""
        try:
            text = Folders(self.spark).text(self._progress(job))
            found: dict[str, Any] | None = None if text is None else json.loads(text)
        except ValueError:
            return None
        return found

    def _progress(self, job: str) -> str:
        return f"{self.root}/progress/{job}.json"

    def _stream_id(self, job: str) -> str:
        """Return the id of a job's checkpoint, or its name before it has one."""
        metadata = Folders(self.spark).text(f"{self.checkpoint(job)}/metadata")
        return job if metadata is None else str(json.loads(metadata)["id"])

    # --- reading --------------------------------------------------------------------------------

    def current(self) -> Tables:
        """Return the tables as of now: later writes do not change `read` and `as_of_ms`."""
        # First, because `history` notes the end after it has written the rows.
        as_of_ms = self.as_of_ms()
        return evolve(self, pinned=self.versions(), pinned_as_of_ms=as_of_ms)

    def for_rows_of(self, *names: str) -> Tables:
        """Return the tables with a session for few rows, if the named tables have few together."""
        light = evolve(self, spark=light_session(self.spark))
        rows = sum(light.read(name).count() for name in names)
        return self if rows > FEW_ROWS else light

    def versions(self) -> Mapping[str, int]:
        """Return the version of each table that exists."""
        if self._pinned is not None:
            return self._pinned
        found = {name: self.version(name) for name in TABLES}
        return {name: version for name, version in found.items() if version >= 0}

    def version(self, name: str) -> int:
        """Return the newest version of a table; -1 if it does not exist."""
        return int(self.snapshot(name).version())

    def newest_batch(self, name: str) -> int:
        """Return the highest number of a micro-batch in a table; -1 without any."""
        written = self.snapshot(name).setTransactions()
        return max((written.apply(one).version() for one in range(written.size())), default=-1)

    def snapshot(self, name: str) -> Any:  # noqa: ANN401 - an object of Java
        """Return Delta's snapshot of a table: the same object until the table changes."""
        jvm = self.spark._jvm  # noqa: SLF001 - Python could only ask with a Spark job
        assert jvm is not None
        nothing = jvm.scala.Option.empty()
        logs = jvm.org.apache.spark.sql.delta.DeltaLog
        log = logs.forTable(self.spark._jsparkSession, self.path(name))  # noqa: SLF001 - likewise
        return log.update(False, nothing, nothing)  # noqa: FBT003 - it may not be outdated

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table; an empty frame if it does not exist.

        Args:
            name: name of a table in `TABLES`.
        """
        table, pinned = TABLES[name], self._pinned
        version = self.version(name) if pinned is None else pinned.get(name, -1)
        if version < 0:
            return self.spark.createDataFrame([], table.schema)
        # Without a version, each use of the frame would read the newest rows.
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        rows = reader.load(self.path(name))
        # An earlier release wrote fewer columns.
        missing = [one for one in table.schema if one.name not in rows.columns]
        rows = rows.withColumns({one.name: sql.lit(None).cast(one.dataType) for one in missing})
        return rows.select(*table.schema.names)

    def added(self, name: str, after: int, until: int) -> DataFrame:
        """Return the rows that commits to a raw table have added.

        Args:
            name: name of the table.
            after: version of the table without these rows; -1 for none.
            until: version with them.
        """
        changes = self.spark.read.format("delta").option("readChangeFeed", "true")
        changes = changes.option("startingVersion", after + 1).option("endingVersion", until)
        return changes.load(self.path(name)).where("_change_type = 'insert'")

    def require(self, name: str, remedy: str) -> DataFrame:
        """Return the rows of a table that must not be empty.

        Args:
            name: name of a table in `TABLES`.
            remedy: command that makes rows, as the end of the sentence "...; run ...".

        Raises:
            PipelineError: the table is empty, or another release wrote the folder.
        """
        self.check_release()
        rows = self.read(name)
        if rows.isEmpty():
            raise PipelineError(f"{self.folder} has no {name}; run {remedy}")
        return rows

    def check_release(self) -> None:
        """Refuse a folder that another release wrote.

        Raises:
            PipelineError: it has tables of another version, or of the time before a release.
        """
        Folders(self.spark).check_release(self.folder, VERSION)
        for name in self.versions():
            settings = self.snapshot(name).metadata().configuration()
            # Earlier tables may also have rows of half a batch.
            if not TABLES[name].is_derived and not settings.contains(_CHANGES):
                raise PipelineError(
                    f"{self.path(name)} has no {_CHANGES}: an earlier version of coopgroup wrote "
                    "it; take another folder"
                )

    def as_of_ms(self) -> int | None:
        """Return the time up to which the topic of commits was read to its end.

        No row of `lag` or of the episodes is later. `None` if no run has read all of the topic.
        """
        if self._pinned is not None:
            return self._pinned_as_of_ms
        found = self.noted(_HISTORY)
        return None if found is None else int(found[_AS_OF])

    def read_until(self, as_of_ms: int) -> None:
        """Record that the topic of commits was read to its end at a time."""
        if as_of_ms > (self.as_of_ms() or 0):
            self.note(_HISTORY, {_AS_OF: as_of_ms})


def day_of(at_ms: int) -> str:
    """Return the day (UTC) of a time as a literal of SQL."""
    return f"DATE'{datetime.fromtimestamp(at_ms / _MS_PER_S, UTC).date()}'"


@contextmanager
def unless_changed() -> Iterator[None]:
    """Skip a write to a table that another process changes at the same time."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if not _CONFLICT.search(str(error)):
            raise
