"""`Tables`: Parquet tables in a folder, to which every batch is added exactly once.

    FOLDER/v1/commits/job=history/batch=12/day=2026-11-22/part-....parquet
    FOLDER/v1/batches/job=history/batch=12/part-....parquet        (written last)
    FOLDER/v1/checkpoints/history/                                 (Spark's own)

Theory of operation. A job writes a batch into new folders, one for each table, and then a row into
`batches`. Only rows of batches in `batches` count. After a kill, the job repeats the same batch
(Spark's checkpoint has its offsets). It overwrites the folders, and is done when the row is
written. If the row already exists, the job skips the batch. So a batch is never present twice or
in part, and all tables of a batch appear together.

Of a snapshot only the newest batch counts. A snapshot alternates between a few folders, so that a
job never overwrites the current one, or one that another process has just begun to read.

This holds if only one job of a name runs at a time: see `job_lock`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.schemas import TABLES, VERSION, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Keep", "Tables"]

_BATCHES: Final = StructType(
    [
        StructField("sequence", LongType()),
        StructField("job", StringType()),
        StructField("batch", IntegerType()),
    ]
)
_SNAPSHOT_PLACES: Final = 6
_MS_PER_DAY: Final = 86_400_000

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

    @property
    def root(self) -> str:
        """Folder of the tables of this version."""
        return f"{self.folder.rstrip('/')}/v{VERSION}"

    def checkpoint(self, job: str) -> str:
        """Return the folder of a job's checkpoint, where Spark stores the progress."""
        return f"{self.root}/checkpoints/{job}"

    # --- writing --------------------------------------------------------------------------------

    def write(self, job: str, batch: int, frames: Mapping[str, DataFrame]) -> None:
        """Add a batch to growing tables; an existing batch is left unchanged.

        Args:
            job: name of the job, which numbers its own batches.
            batch: number of the batch.
            frames: rows by table, in the columns of `TABLES`.
        """
        if self.is_through(job, batch):
            return
        for name, frame in frames.items():
            self._write_rows(TABLES[name], f"job={job}/batch={batch}", frame)
        self._note(job, batch, batch)

    def append(self, job: str, frames: Mapping[str, DataFrame]) -> None:
        """Add the next batch of a job that has no checkpoint; else as `write`."""
        last = self._last(job)
        self.write(job, 0 if last is None else last + 1, frames)

    def replace(self, job: str, frames: Mapping[str, DataFrame]) -> None:
        """Replace the last snapshots.

        Args:
            job: name of the job, which always writes the same tables.
            frames: rows by table, in the columns of `TABLES`.
        """
        last = self._last(job)
        sequence = 0 if last is None else last + 1
        place = sequence % _SNAPSHOT_PLACES
        for name, frame in frames.items():
            self._write_rows(TABLES[name], f"job={job}/batch={place}", frame)
        self._note(job, place, sequence)

    def _write_rows(self, table: Table, place: str, frame: DataFrame) -> None:
        rows = frame.select(*table.schema.names)
        width = max(1, self.spark.sparkContext.defaultParallelism)
        writer = rows.coalesce(width).write.mode("overwrite")
        if table.time:
            # The day is in UTC for every time zone of the session.
            days = sql.floor(sql.col(table.time) / _MS_PER_DAY).cast("int")
            day = sql.date_add(sql.lit("1970-01-01").cast("date"), days)
            rows = rows.withColumn("day", day).coalesce(width)
            writer = rows.write.mode("overwrite").partitionBy("day")
        writer.parquet(f"{self.root}/{table.name}/{place}")

    def _note(self, job: str, batch: int, sequence: int) -> None:
        row = self.spark.range(1).select(sql.lit(sequence).cast("long").alias("sequence"))
        row.write.mode("overwrite").parquet(f"{self.root}/batches/job={job}/batch={batch}")

    def staging(self, job: str) -> Keep:
        """Return a function that stores a frame as Parquet, and returns it without its plan."""
        numbers = count()

        def keep(frame: DataFrame) -> DataFrame:
            path = f"{self.root}/staging/{job}/{next(numbers)}"
            frame.write.mode("overwrite").parquet(path)
            return self.spark.read.schema(frame.schema).parquet(path)

        return keep

    # --- reading --------------------------------------------------------------------------------

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table, of all complete batches; an empty frame without any batch.

        Args:
            name: name of a table in `TABLES`.
        """
        table = TABLES[name]
        folders = [StructField("job", StringType()), StructField("batch", IntegerType())]
        days = [StructField("day", DateType())] if table.time else []
        schema = StructType([*table.schema.fields, *folders, *days])
        rows = self._parquet(name, schema)
        if rows is None:
            return self.spark.createDataFrame([], table.schema)
        if table.is_snapshot:
            return rows.where(self._is_newest()).select(*table.schema.names)
        through = self._batches()
        if through is None:
            return self.spark.createDataFrame([], table.schema)
        through = sql.broadcast(through.select("job", "batch"))
        return rows.join(through, ["job", "batch"], "left_semi").select(*table.schema.names)

    def require(self, name: str, remedy: str) -> DataFrame:
        """Return the rows of a table that must not be empty.

        Args:
            name: name of a table in `TABLES`.
            remedy: command that makes rows, as the end of the sentence "...; run ...".

        Raises:
            PipelineError: the table is empty, or has rows of another version only.
        """
        rows = self.read(name)
        if rows.isEmpty():
            raise PipelineError(f"{self.folder} has no {name}{self._other_version()}; run {remedy}")
        return rows

    def has_batches(self, job: str) -> bool:
        """Return whether a job wrote any batch."""
        return self._last(job) is not None

    def is_through(self, job: str, batch: int) -> bool:
        """Return whether a batch of a growing job is complete."""
        last = self._last(job)
        return last is not None and batch <= last

    def has_checkpoint(self, job: str) -> bool:
        """Return whether a job has a checkpoint."""
        try:
            return not self.spark.read.text(f"{self.checkpoint(job)}/metadata").isEmpty()
        except AnalysisException:
            return False

    def _last(self, job: str) -> int | None:
        """Return the sequence number of a job's last complete batch."""
        rows = self._batches()
        if rows is None:
            return None
        ((last,),) = rows.where(sql.col("job") == job).agg(sql.max("sequence")).collect()
        return None if last is None else int(last)

    def _is_newest(self) -> Column:
        """Return whether a row is of the newest batch of its job.

        The batches are read immediately: otherwise Spark would later read files of other batches,
        which may be deleted by then.
        """
        rows = self._batches()
        condition = sql.lit(0).cast("boolean")
        if rows is None:
            return condition
        for job, batch in rows.groupBy("job").agg(sql.max_by("batch", "sequence")).collect():
            condition |= (sql.col("job") == job) & (sql.col("batch") == batch)
        return condition

    def _batches(self) -> DataFrame | None:
        """Return the complete batches.

        Another job may overwrite its oldest snapshot before Spark reads these rows. No reader needs
        the overwritten row.
        """
        return self._parquet("batches", _BATCHES, ignoreMissingFiles="true")

    def _parquet(self, name: str, schema: StructType, **options: str) -> DataFrame | None:
        """Return a folder of Parquet files, `None` if the folder does not exist."""
        try:
            return self.spark.read.schema(schema).options(**options).parquet(f"{self.root}/{name}")
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise ConfigurationError(
                "--tables", self.folder, f"a folder that Spark can read: {_first_line(error)}"
            ) from error

    def _other_version(self) -> str:
        """Return the end of a message if the folder has tables of another release."""
        folder = Path(self.folder)
        found = sorted(one.name for one in folder.glob("v[0-9]*") if one.name != f"v{VERSION}")
        return f" of version {VERSION}, but {', '.join(found)}" if found else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
