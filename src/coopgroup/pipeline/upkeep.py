"""Upkeep of a folder of tables: join small files, and delete old files and logs.

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

from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.tables import NO_BATCH

if TYPE_CHECKING:
    from coopgroup.pipeline.tables import Tables

__all__ = ["Compaction", "optimize", "vacuum"]

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
