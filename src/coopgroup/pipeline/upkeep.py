"""Upkeep of a folder of tables: join small files, and delete old files, logs and rows.

`optimize` joins small files, and deletes files that readers no longer need. A joined file has its
rows in order of groups, so a question about one group reads a part of it.

`forget` deletes old rows of a raw table. The last fact of each subject stays, because it still
holds: the last commit of a partition, the last state of a group.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from attrs import frozen
from pyspark.sql import functions as sql
from pyspark.sql.classic import dataframe as classic

from coopgroup.pipeline.episodes.job import EPISODES_INPUT, EPISODES_JOB
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.lag import LAG_INPUT, LAG_JOB, LOADS_JOB
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.tables import day_of

if TYPE_CHECKING:
    from coopgroup.pipeline.tables import Tables

__all__ = ["Compaction", "forget", "optimize", "vacuum"]

# Vacuum has as many tasks as the last setting says, by default 10,000, also for ten files. Its
# entries in the log of a table would be versions without new rows.
_OF_VACUUM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    }
)
_MS_PER_HOUR: Final = 3_600_000
_FILE_BYTES_MAX: Final = 2**30  # of a joined file, by default of Delta
# The table with the last fact of each subject, and the columns of a subject.
_STATE: Final = ("generations", ("group",))
_LAST: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "commits": ("commits", ("group", "topic", "partition")),
        "consumer_records": ("consumer_records", ("group", "kind", "name")),
        **dict.fromkeys(("generations", "members", "assignments"), _STATE),
    }
)
_READERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {LAG_JOB: LAG_INPUT, LOADS_JOB: LAG_INPUT, EPISODES_JOB: EPISODES_INPUT}
)


@frozen(kw_only=True)
class Compaction:
    """What `optimize` did to a table.

    Attributes:
        table: its name.
        files_before: number of files that a reader of the table reads.
        files_after: the same, afterwards.
        size_bytes: size of these files, afterwards.
    """

    table: str
    files_before: int
    files_after: int
    size_bytes: int


def optimize(tables: Tables, retention_hours: float) -> list[Compaction]:
    """Join small files of all tables but `loads`, and delete old files of all tables.

    Args:
        tables: the tables.
        retention_hours: age of the files to delete, in hours since a commit replaced them. A reader
            that reads for longer fails.
    """
    found = [_optimized(tables, name, retention_hours) for name in sorted(tables.versions())]
    before_ms = time.time_ns() // 1_000_000 - retention_hours * _MS_PER_HOUR
    folders = Folders(tables.spark)
    for name, at_ms in folders.names(tables.path("staging")).items():
        if at_ms < before_ms:
            folders.delete(f"{tables.path('staging')}/{name}")
    return found


def _optimized(tables: Tables, name: str, retention_hours: float) -> Compaction:
    before, columns = _detail(tables, name), TABLES[name].schema.names
    days = _days_of_small_files(tables, name) if TABLES[name].time else []
    if days:
        order = next((f" ZORDER BY (`{one}`)" for one in ("group", "topic") if one in columns), "")
        where = " OR ".join(f"day <=> {day}" for day in days)
        tables.execute(name, f"OPTIMIZE {tables.in_sql(name)} WHERE {where}{order}")
    vacuum(tables, name, retention_hours)
    after = _detail(tables, name)
    return Compaction(table=name, files_before=before[0], files_after=after[0], size_bytes=after[1])


def _days_of_small_files(tables: Tables, name: str) -> list[str]:
    """Return the days with more files than they need, as literals of SQL."""
    files = classic.DataFrame(tables.snapshot(name).allFiles().toDF(), tables.spark)
    days = files.groupBy(sql.col("partitionValues").getItem("day").alias("day"))
    counts = days.agg(sql.count("*").alias("files"), sql.sum("size").alias("bytes"))
    small = counts.where(sql.col("files") > 1 + sql.floor(sql.col("bytes") / _FILE_BYTES_MAX))
    return [f"DATE'{row.day}'" if row.day else "CAST(NULL AS DATE)" for row in small.collect()]


def forget(tables: Tables, name: str, before_ms: int) -> None:
    """Delete the rows of a raw table of the days before a time, without facts that still hold.

    All that follows from these rows is computed again by the next runs of the jobs.

    Args:
        tables: the tables.
        name: name of the table.
        before_ms: the time.
    """
    if name not in tables.versions():
        return
    table, is_old = tables.in_sql(name), f"old.day < {day_of(before_ms)}"
    if name not in _LAST:
        lost = f"{table} AS old WHERE {is_old}"
        _delete(tables, name, lost, f"DELETE FROM {lost}")  # noqa: S608 - quoted
        return
    facts, subject = _LAST[name]
    columns = ", ".join(f"`{one}`" for one in subject)
    is_same = " AND ".join(f"old.`{one}` <=> kept.`{one}`" for one in subject)
    last = (
        f"SELECT {columns}, MAX(source_offset) AS last FROM {tables.in_sql(facts)} AS old"  # noqa: S608 - quoted
        f" WHERE {is_old} GROUP BY {columns}"
    )
    is_lost = f"{is_same} AND {is_old} AND old.source_offset < kept.last"
    _delete(
        tables,
        name,
        f"{table} AS old JOIN ({last}) AS kept ON {is_lost}",
        f"MERGE INTO {table} AS old USING ({last}) AS kept ON {is_lost} WHEN MATCHED THEN DELETE",
    )


def _delete(tables: Tables, name: str, lost: str, statement: str) -> None:
    """Delete rows, and let the next run of each job that reads the table compute all its rows.

    A job must not go on with rows that follow from deleted ones. So its progress is forgotten
    before the rows are deleted, because of a kill, and again afterwards, because a run at the same
    time may have noted it.
    """
    if tables.spark.sql(f"SELECT 1 FROM {lost} LIMIT 1").isEmpty():  # noqa: S608 - quoted
        return
    jobs = [job for job, input_ in _READERS.items() if name in input_]
    for job in jobs:
        tables.note(job, None)
    tables.execute(name, statement)
    for job in jobs:
        tables.note(job, None)


def vacuum(tables: Tables, name: str, retention_hours: float) -> None:
    """Delete the files of a table that were replaced long ago.

    Args:
        tables: the tables.
        name: name of the table.
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
