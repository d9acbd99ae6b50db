"""Upkeep of a folder of tables: `convert` an earlier layout, `optimize` files and logs.

Theory of operation. Version 1 was plain Parquet, in folders by job and batch:

    FOLDER/v1/commits/job=history/batch=12/day=2026-11-22/part-....parquet
    FOLDER/v1/batches/job=history/batch=12/part-....parquet     (the batch is complete)

`convert` copies the complete batches and the checkpoints of growing tables, and then renames `v1`.
Until then every other job refuses the folder. Each table is one commit of Delta with a fixed
number, so a conversion that was killed can run again. Snapshots are not copied: the jobs `lag` and
`episodes` compute them again.

`optimize` joins small files, and deletes files that no reader needs any more. Readers read the
versions in `batches` (see `tables`). So `optimize` records the versions that it makes, as a job of
its own. A table whose recorded version is old, because a job was killed long ago, keeps its files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from attrs import frozen
from pyspark.sql import functions as sql
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from coopgroup.errors import PipelineError
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.tables import NO_BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from coopgroup.pipeline.tables import Tables

__all__ = ["Compaction", "convert", "optimize", "vacuum"]

_OLD: Final = "v1"
_CONVERTED: Final = "converted-v1"
_PLACE: Final = (StructField("job", StringType()), StructField("batch", IntegerType()))
_CONVERSION: Final = "convert"
_OPTIMIZE: Final = "optimize"
# Vacuum has as many tasks as the last setting says, by default 10,000, also for ten files. Its
# entries in the log of a table would be newer versions than those of the batches.
_OF_VACUUM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    }
)
_MS_PER_HOUR: Final = 3_600_000


def convert(tables: Tables) -> dict[str, int]:
    """Copy the growing tables of version 1, and rename its folder to `converted-v1`.

    Args:
        tables: tables of a folder with version 1.

    Returns:
        Number of rows by table.

    Raises:
        PipelineError: the folder has no tables of version 1.
    """
    folders, old = Folders(tables.spark), f"{tables.folder.rstrip('/')}/{_OLD}"
    names = folders.names(old)
    if not names:
        raise PipelineError(f"{tables.folder} has no tables of version 1 to convert")
    batches = tables.spark.read.parquet(f"{old}/batches") if "batches" in names else None
    rows = {}
    for name, table in TABLES.items():
        if batches is not None and name in names and not table.is_snapshot:
            _copy_table(tables, name, f"{old}/{name}", batches)
            rows[name] = tables.read(name).count()
    for name in folders.names(f"{old}/checkpoints"):
        folders.copy(f"{old}/checkpoints/{name}", tables.checkpoint(name))
    for name in folders.names(f"{old}/sources"):
        source = tables.spark.read.parquet(f"{old}/sources/{name}")
        source.write.format("delta").mode("overwrite").save(f"{tables.root}/sources/{name}")
    # A job with a checkpoint continues after its last complete batch.
    if batches is not None:
        for last in batches.groupBy("job").agg(sql.max("sequence").alias("number")).collect():
            if last.job in folders.names(f"{old}/checkpoints"):
                tables.record(last.job, {}, last.number)
    folders.rename(old, f"{tables.folder.rstrip('/')}/{_CONVERTED}")
    return rows


def _copy_table(tables: Tables, name: str, path: str, batches: DataFrame) -> None:
    # Spark cannot infer the columns of a table without rows.
    schema = StructType([*TABLES[name].schema.fields, *_PLACE])
    stored = tables.spark.read.schema(schema).parquet(path)
    complete = stored.join(sql.broadcast(batches.select("job", "batch")), ["job", "batch"], "semi")
    tables.append(_CONVERSION, _number_of(name), {name: complete})


def _number_of(name: str) -> int:
    """Return the number of a table's only batch in a conversion."""
    return list(TABLES).index(name)


@frozen(kw_only=True)
class Compaction:
    """What `optimize` did to a table.

    Attributes:
        table: its name.
        files_before: number of files that a reader of the table reads.
        files_after: the same, afterwards.
        size_bytes: size of these files, afterwards.
        is_vacuumed: whether old files were deleted. They are not if a batch was interrupted longer
            ago than half of the retention: readers still read an old version.
    """

    table: str
    files_before: int
    files_after: int
    size_bytes: int
    is_vacuumed: bool


def optimize(tables: Tables, retention_hours: float) -> list[Compaction]:
    """Join small files of all tables but `loads`, and delete old files of all tables.

    Args:
        tables: the tables.
        retention_hours: age of the files to delete, in hours since a commit replaced them. A reader
            that reads for longer fails.
    """
    found = [_optimized(tables, name, retention_hours) for name in sorted(tables.versions())]
    if found:
        vacuum(tables, "batches", retention_hours)
    before_ms = _now_ms() - retention_hours * _MS_PER_HOUR
    folders = Folders(tables.spark)
    for name, at_ms in folders.names(tables.path("staging")).items():
        if at_ms < before_ms:
            folders.delete(f"{tables.path('staging')}/{name}")
    return found


def _optimized(tables: Tables, name: str, retention_hours: float) -> Compaction:
    before, recorded = _detail(tables, name), tables.versions()[name]
    is_current = recorded == tables.version(name)
    # A job replaces `loads` as a whole, in few files.
    if is_current and name != "loads":
        version = tables.execute(name, f"OPTIMIZE {tables.in_sql(name)}")
        # Another job may have written part of a batch meanwhile.
        if version == recorded + 1:
            tables.record(_OPTIMIZE, {name: version}, NO_BATCH)
    age_ms = _now_ms() - max(
        one.at_ms for one in tables.batches().values() if one.versions.get(name) == recorded
    )
    is_vacuumed = is_current or age_ms < retention_hours * _MS_PER_HOUR / 2
    if is_vacuumed:
        vacuum(tables, name, retention_hours)
    after = _detail(tables, name)
    return Compaction(
        table=name,
        files_before=before[0],
        files_after=after[0],
        size_bytes=after[1],
        is_vacuumed=is_vacuumed,
    )


def vacuum(tables: Tables, name: str, retention_hours: float) -> None:
    """Delete the files of a table that were replaced long ago.

    Args:
        tables: the tables.
        name: name of the table, whose newest version must be recorded.
        retention_hours: age of the files to delete, in hours since a commit replaced them.
    """
    settings = tables.spark.conf
    before = {key: settings.get(key, None) for key in _OF_VACUUM}
    try:
        for key, value in _OF_VACUUM.items():
            settings.set(key, value)
        tables.spark.sql(f"VACUUM {tables.in_sql(name)} RETAIN {retention_hours} HOURS")
    finally:
        for key, earlier in before.items():
            if earlier is None:
                settings.unset(key)
            else:
                settings.set(key, earlier)


def _detail(tables: Tables, name: str) -> tuple[int, int]:
    row = tables.spark.sql(f"DESCRIBE DETAIL {tables.in_sql(name)}").collect()[0]
    return row["numFiles"], row["sizeInBytes"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
