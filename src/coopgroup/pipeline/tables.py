"""`Tables`: Delta tables in a folder, to which every batch is added exactly once.

    FOLDER/v1/commits/_delta_log/, day=2026-11-22/part-....parquet
    FOLDER/v1/batches/_delta_log/, job=history/part-....parquet     (written last)
    FOLDER/v1/checkpoints/history/                                  (Spark's own)

Theory of operation. A commit of Delta changes one table, all of it or nothing. A batch changes
several tables, one after the other. Then it writes a row into `batches`: the versions of its tables
after the batch. Readers read these versions. So all tables of a batch appear together, and rows of
an unfinished batch do not appear at all.

After a kill, a job repeats its last batch. No row is added twice:

- `append`, for streams: each commit has the id of the checkpoint and the number of the batch. Delta
  skips a commit with a number that it has seen.
- `merge`, for jobs without a checkpoint, and for rows that may arrive twice: only rows with a new
  key are added.
- `replace`, for snapshots: the new rows replace all old rows, or those of some groups. Before rows
  of some groups are replaced, `RESTORE` removes the rows of an unfinished batch.
- `update`, for large snapshots: only the rows that changed are written.

Two jobs may write at the same time. After a conflict `replace` fails with a one-line error, and all
others try again.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import evolve, field, frozen
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sql

from coopgroup.errors import PipelineError
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.schemas import BATCHES, TABLES, VERSION, Batch, Table
from coopgroup.pipeline.scope import in_groups, quoted
from coopgroup.pipeline.spark.session import FEW_ROWS, light_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession

__all__ = ["MISSING", "NO_BATCH", "Batch", "Keep", "Tables", "unless_changed"]

NO_BATCH: Final = -1
"""Number of a batch of a job without a stream."""
MISSING: Final = frozenset({"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"})
"""Conditions of Spark's errors if there is no Delta table at a path."""

_AS_OF: Final = "as_of"  # the number of its batch is a time
_OWN_VERSION: Final = "spark.databricks.delta.lastCommitVersionInSession"
_CONFLICT: Final = re.compile(
    r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED|PATH_EXISTS|TABLE_ALREADY_EXISTS)"
)
_TRIES: Final = 5
_PAUSE_S: Final = 0.5
_MS_PER_S: Final = 1_000

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
    _batches: Mapping[str, Batch] | None = None
    _cache: dict[str, tuple[Any, Mapping[str, Batch]]] = field(factory=dict, eq=False, repr=False)

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
        """Add a batch of a stream to growing tables; a complete batch is left unchanged.

        Args:
            job: name of the job, which has a checkpoint.
            batch: number of the batch in the stream.
            frames: rows by table, in the columns of `TABLES`.
        """
        if self.is_through(job, batch):
            return
        stream = self._stream_id(job)
        versions = {}
        for name, frame in frames.items():
            # An empty commit would take as long as any other.
            if not frame.isEmpty():
                rows, writer = self._writer(TABLES[name], frame)
                writer = writer.mode("append").option("txnAppId", stream)
                writer = writer.option("txnVersion", batch)
                versions[name] = self._commit(name, rows.sparkSession, writer.save)
        self.record(job, versions, batch)

    def merge(
        self,
        job: str,
        frames: Mapping[str, DataFrame],
        *,
        from_ms: Mapping[str, int] = MappingProxyType({}),
        batch: int = NO_BATCH,
    ) -> None:
        """Add the rows whose keys growing tables do not have yet.

        Args:
            job: name of the job.
            frames: rows by table, in the columns of `TABLES`; rows with the same key are one row.
            from_ms: time of the earliest row, by table, so that earlier days need not be read;
                0 or left out if unknown.
            batch: number of the batch of a stream; a complete batch is left unchanged.
        """
        if batch != NO_BATCH and self.is_through(job, batch):
            return
        versions = {
            name: self._merge(TABLES[name], frame, from_ms.get(name, 0))
            for name, frame in frames.items()
        }
        self.record(job, versions, batch)

    def _merge(self, table: Table, frame: DataFrame, from_ms: int) -> int:
        rows, creation = self._writer(table, frame.dropDuplicates(list(table.key)))
        session, view = frame.sparkSession, f"new_{uuid.uuid4().hex}"
        empty = session.createDataFrame([], rows.schema)
        is_same = " AND ".join(f"old.`{name}` <=> new.`{name}`" for name in table.key)
        if from_ms and table.time:
            day = datetime.fromtimestamp(from_ms / _MS_PER_S, UTC).date()
            is_same += f" AND (old.day >= DATE'{day}' OR old.day IS NULL)"
        rows.createOrReplaceTempView(view)

        def write() -> None:
            columns = self._columns(table.name)
            if not columns:
                creation.mode("error").save()
                return
            if set(rows.columns) - columns:
                self._writer(table, empty)[1].mode("append").save()  # adds the columns
            session.sql(
                f"MERGE INTO {self.in_sql(table.name)} AS old"
                f" USING {view} AS new ON {is_same} WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        try:
            return self._commit(table.name, session, write)
        finally:
            session.catalog.dropTempView(view)

    def _columns(self, name: str) -> set[str]:
        """Return the columns of a table; none if it does not exist."""
        try:
            return set(self.spark.read.format("delta").load(self.path(name)).columns)
        except AnalysisException as error:
            if error.getCondition() in MISSING:
                return set()
            raise

    def replace(
        self,
        job: str,
        frames: Mapping[str, DataFrame],
        *,
        groups: Sequence[str] = (),
        updated: Mapping[str, int] = MappingProxyType({}),
        basis: str | None = None,
        expected: Sequence[Batch | None] = (),
    ) -> None:
        """Replace snapshots.

        Args:
            job: name of the job.
            frames: rows by table, in the columns of `TABLES`.
            groups: groups whose rows are replaced, the only ones in `frames`; empty for all.
            updated: versions of tables that `update` has changed in the same batch.
            basis: as in `record`.
            expected: as in `record`.

        Raises:
            PipelineError: another process replaced them at the same time.
        """
        versions = dict(updated)
        for name, frame in frames.items():
            rows, writer = self._writer(TABLES[name], frame)
            writer = writer.mode("overwrite")
            # A table that no batch has recorded has no rows that count.
            if groups and name in self.versions():
                self._restore(name)
                writer = writer.option("replaceWhere", in_groups(groups))
            versions[name] = self._commit(name, rows.sparkSession, writer.save, tries=1)
        self.record(job, versions, basis=basis, expected=expected)

    def _restore(self, name: str) -> None:
        """Remove the rows of an unfinished batch, which the next record would make visible."""
        recorded = self.versions()[name]
        if recorded < self.version(name):
            self.execute(name, f"RESTORE TABLE {self.in_sql(name)} TO VERSION AS OF {recorded}")

    def update(self, name: str, changes: DataFrame, *, from_ms: int) -> tuple[int, int]:
        """Change rows of a snapshot that exists; the caller records the new version.

        Args:
            name: name of the table.
            changes: new rows in the columns of `TABLES`, and the keys of rows to delete. Their
                column `is_gone` tells them apart.
            from_ms: time of the earliest change, so that earlier days need not be read.

        Returns:
            Version of the table afterwards, and the number of deleted rows.
        """
        table, session, view = TABLES[name], changes.sparkSession, f"new_{uuid.uuid4().hex}"
        is_same = " AND ".join(f"old.`{one}` <=> new.`{one}`" for one in table.key)
        day = datetime.fromtimestamp(from_ms / _MS_PER_S, UTC).date()
        changes.withColumn("day", table.day()).createOrReplaceTempView(view)
        counts: list[Row] = []

        def write() -> None:
            counts[:] = session.sql(
                f"MERGE INTO {self.in_sql(name)} AS old USING {view} AS new"
                f" ON {is_same} AND old.day >= DATE'{day}'"
                " WHEN MATCHED AND new.is_gone THEN DELETE"
                " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND NOT new.is_gone THEN INSERT *"
            ).collect()

        try:
            return self._commit(name, session, write), counts[0]["num_deleted_rows"]
        finally:
            session.catalog.dropTempView(view)

    def record(
        self,
        job: str,
        versions: Mapping[str, int],
        batch: int = NO_BATCH,
        *,
        basis: str | None = None,
        expected: Sequence[Batch | None] = (),
    ) -> Batch:
        """Record a complete batch, so that readers see its versions of the tables.

        Args:
            job: its name.
            versions: versions of the tables that the batch changed.
            batch: number of the batch of a stream.
            basis: the new basis of the job (see `Batch`); `None` leaves it unchanged.
            expected: batches of the job of which one must be the last; empty for any.

        Returns:
            The batch.

        Raises:
            PipelineError: another process has recorded a batch of the job meanwhile.
        """
        session = _recorder(self.spark)
        tried: list[tuple[Any, Mapping[str, Batch]]] = []

        def write() -> None:
            snapshot, known = self._recorded_at()
            last = known.get(job)
            if expected and last not in expected:
                raise PipelineError(
                    f"the tables of {job} in {self.folder} were changed by another job at the same "
                    "time; run this job again"
                )
            one = Batch(
                number=batch,
                at_ms=time.time_ns() // 1_000_000,
                versions=self._with_later(last, versions),
                basis=last.basis if last and basis is None else basis or "",
            )
            tried.append((snapshot, {**known, job: one}))
            pairs = [sql.lit(cell) for pair in one.versions.items() for cell in pair]
            cells = map(sql.lit, (job, one.number, one.at_ms))
            row = (*cells, sql.create_map(*pairs), sql.lit(one.basis))
            # Without Python workers, as a frame of rows would need them.
            frame = session.range(0, 1, 1, 1).select(
                *(
                    cell.cast(column.dataType).alias(column.name)
                    for cell, column in zip(row, BATCHES, strict=True)
                )
            )
            writer = frame.write.format("delta").partitionBy("job").mode("overwrite")
            writer = writer.option("replaceWhere", f"job = {quoted(job)}")
            writer.save(self.path("batches"))

        version = self._commit("batches", session, write)
        (before, batches), after = tried[-1], self.snapshot("batches")
        # If another job has recorded a batch meanwhile, the next reader reads the table.
        if after.version() == version == before.version() + 1:
            self._cache["batches"] = after, batches
        return batches[job]

    def _with_later(self, last: Batch | None, versions: Mapping[str, int]) -> dict[str, int]:
        """Return versions with those that another process of the job has recorded meanwhile."""
        merged = {**(last.versions if last else {}), **versions}
        for name, own in versions.items():
            later = last.versions.get(name, own) if last else own
            # A table that was deleted begins again with a lower version.
            if own < later <= self.version(name):
                merged[name] = later
        return merged

    def _writer(self, table: Table, frame: DataFrame) -> tuple[DataFrame, DataFrameWriter]:
        """Return the rows with their day, and their writer, which adds missing columns."""
        rows = frame.select(*table.schema.names)
        if table.time:
            rows = rows.withColumn("day", table.day())
        narrow = rows.coalesce(max(1, self.spark.sparkContext.defaultParallelism))
        writer = narrow.write.format("delta").option("mergeSchema", "true")
        if table.time:
            writer = writer.partitionBy("day")
        return rows, writer.option("path", self.path(table.name))

    def _commit(
        self, name: str, session: SparkSession, write: Callable[[], object], tries: int = _TRIES
    ) -> int:
        """Write to a table, again after a conflict, and return the table's version after it."""
        for one in range(1, tries + 1):
            session.conf.unset(_OWN_VERSION)
            try:
                write()
                break
            except (PySparkException, Py4JError) as error:
                if not _CONFLICT.search(str(error)):
                    raise
                if one == tries:
                    raise PipelineError(
                        f"{self.path(name)} was changed by another job at the same time; run this "
                        "job again"
                    ) from error
            time.sleep(_PAUSE_S * one)
        own = session.conf.get(_OWN_VERSION, None)
        # A commit that Delta has seen before is skipped: then the table has it already.
        return self.version(name) if own is None else int(own)

    def execute(self, name: str, statement: str) -> int:
        """Run an SQL statement that changes a table, and return the table's version after it."""
        return self._commit(name, self.spark, lambda: self.spark.sql(statement).collect())

    def version(self, name: str) -> int:
        """Return the newest version of a table, whether or not its batch is complete."""
        return int(self.snapshot(name).version())

    def snapshot(self, name: str) -> Any:  # noqa: ANN401 - an object of Java
        """Return Delta's snapshot of a table: the same object until the table changes."""
        jvm = self.spark._jvm  # noqa: SLF001 - Python could only ask with a Spark job
        assert jvm is not None
        nothing = jvm.scala.Option.empty()
        logs = jvm.org.apache.spark.sql.delta.DeltaLog
        log = logs.forTable(self.spark._jsparkSession, self.path(name))  # noqa: SLF001 - likewise
        return log.update(False, nothing, nothing)  # noqa: FBT003 - it may not be outdated

    def _stream_id(self, job: str) -> str:
        """Return the id of a job's checkpoint, or its name before it has one."""
        metadata = f"{self.checkpoint(job)}/metadata"
        files = Folders(self.spark)
        return str(json.loads(files.text(metadata))["id"]) if files.exists(metadata) else job

    # --- reading --------------------------------------------------------------------------------

    def current(self) -> Tables:
        """Return the tables as of now: later batches do not change the result of `read`."""
        return evolve(self, batches=self._recorded())

    def for_rows_of(self, *names: str) -> Tables:
        """Return the tables with a session for few rows, if the named tables have few together."""
        light = evolve(self, spark=light_session(self.spark))
        rows = sum(light.read(name).count() for name in names)
        return self if rows > FEW_ROWS else light

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table, of all complete batches; an empty frame without any batch.

        Args:
            name: name of a table in `TABLES`.
        """
        table = TABLES[name]
        version = self.versions().get(name)
        if version is None:
            return self.spark.createDataFrame([], table.schema)
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        rows = reader.load(self.path(name))
        # An earlier release wrote fewer columns.
        missing = [one for one in table.schema if one.name not in rows.columns]
        rows = rows.withColumns({one.name: sql.lit(None).cast(one.dataType) for one in missing})
        return rows.select(*table.schema.names)

    def newest(self, name: str) -> DataFrame:
        """Return the rows of a table that exists, also of an unfinished batch, with its day."""
        return self.spark.read.format("delta").load(self.path(name))

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
            PipelineError: it has tables of another version.
        """
        Folders(self.spark).check_release(self.folder, VERSION)

    def is_through(self, job: str, batch: int) -> bool:
        """Return whether a batch of a stream is complete."""
        last = self._recorded().get(job)
        return last is not None and batch <= last.number

    def has_checkpoint(self, job: str) -> bool:
        """Return whether a job has a checkpoint."""
        return Folders(self.spark).exists(f"{self.checkpoint(job)}/metadata")

    def versions(self) -> dict[str, int]:
        """Return the version of each table that readers read."""
        found: dict[str, int] = {}
        for batch in self.batches().values():
            for name, version in batch.versions.items():
                found[name] = max(version, found.get(name, 0))
        return found

    def as_of_ms(self) -> int | None:
        """Return the time up to which the topic of commits was read to its end.

        No row of `lag` or of the episodes is later. `None` if no run has read all of the topic.
        """
        found = self.batches().get(_AS_OF)
        return None if found is None else found.number

    def read_until(self, as_of_ms: int) -> None:
        """Record that the topic of commits was read to its end at a time."""
        if as_of_ms > (self.as_of_ms() or 0):
            self.record(_AS_OF, {}, batch=as_of_ms)

    def batches(self) -> Mapping[str, Batch]:
        """Return the last complete batch of each job."""
        return self._recorded() if self._batches is None else self._batches

    def _recorded(self) -> Mapping[str, Batch]:
        return self._recorded_at()[1]

    def _recorded_at(self) -> tuple[Any, Mapping[str, Batch]]:
        """Return the last batch of each job, with the snapshot of `batches` that has them.

        A read takes several Spark jobs, so an unchanged table is not read again.
        """
        snapshot = self.snapshot("batches")
        known = self._cache.get("batches")
        if known is None or known[0] != snapshot:
            known = self._cache["batches"] = snapshot, self._read_batches()
        return known

    def _read_batches(self) -> Mapping[str, Batch]:
        try:
            rows = _recorder(self.spark).read.format("delta").load(self.path("batches")).collect()
        except AnalysisException as error:
            if error.getCondition() in MISSING:
                return {}
            raise
        return {row["job"]: Batch.of(row) for row in rows}


@contextmanager
def unless_changed() -> Iterator[None]:
    """Skip a write to a table that another process changes at the same time."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if not _CONFLICT.search(str(error)):
            raise


@lru_cache(maxsize=1)
def _recorder(spark: SparkSession) -> SparkSession:
    """Return the session for `batches`, which has few rows.

    A stream records its batches on a thread of its own. In the session of the jobs, it would
    replace the version that another thread is about to read (`_OWN_VERSION`).
    """
    return light_session(spark.newSession())
