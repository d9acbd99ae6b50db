"""`Basis`: what a job has read before, so that it need not compute everything again.

Delta's log lists the files that each version of a table added. A job records the versions that it
has read. At its next run, only the files since then have new input: only their days (for `lag`),
and only the groups in them (for `episodes`). Files that `optimize` joined have no new rows, and
Delta marks them so.

The log has a file for each commit, thousands a day with `--follow`. The driver reads a few of them,
executors read many. Delta deletes them after two days. After a longer pause, the job asks the
present state of the table, which has the time of each file. This way finds all new rows, and also
files without new rows: those of the day before the last run, and those that `optimize` has joined.

New files do not tell whose rows have vanished. Only `lag` loses rows. It records when that happened
(`lost_version`), and `episodes` computes everything again then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from attrs import asdict, evolve, field, fields, frozen
from pyspark.sql import functions as sql
from pyspark.sql.classic import dataframe as classic

from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from coopgroup.pipeline.schemas import Batch
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables

__all__ = ["ANEW", "Basis", "begin_anew"]

ANEW: Final = -1
"""In place of a time: the last run cannot be continued."""

_FEW_VERSIONS: Final = 20  # the driver has read them before Spark starts a job
_MS_PER_S: Final = 1_000
_LONGEST_COMMIT_MS: Final = 86_400_000  # from writing a file until its commit
_LOG_NAME: Final = "{:020d}.json"
_ACTIONS: Final = (
    "add struct<path:string,partitionValues:map<string,string>,dataChange:boolean>,"
    "remove struct<path:string,dataChange:boolean>,"
    "commitInfo struct<operation:string>"
)

_Log: TypeAlias = "list[list[dict[str, Any]]]"
"""Actions of each commit to a table."""

_Files: TypeAlias = "dict[str, str | None]"
"""Days of files, by path in the folder of their table."""


@frozen(kw_only=True)
class Basis:
    """Input and settings of a run.

    Attributes:
        settings: settings with an effect on all rows.
        groups: groups of the scope.
        since_ms: begin of the scope.
        versions: versions of the tables that the run read.
        times: times of these versions, in ms since 1970.
        ids: ids that Delta gave these tables when they were created.
        makers: basis of the job that wrote a table, for tables whose rows may vanish.
        lost_version: version of the job's own table that last lost rows of its scope.
        as_of_ms: end of the history (`Tables.as_of_ms`); 0 if unknown.
    """

    settings: str
    groups: tuple[str, ...]
    since_ms: int
    versions: Mapping[str, int] = field(factory=dict)
    times: Mapping[str, int] = field(factory=dict)
    ids: Mapping[str, str] = field(factory=dict)
    makers: Mapping[str, Basis] = field(factory=dict)
    lost_version: int = 0
    as_of_ms: int = 0

    @classmethod
    def of(cls, tables: Tables, names: Sequence[str], settings: str, scope: Scope) -> Basis:
        """Return the basis of a run that begins now.

        Args:
            tables: with fixed versions, from `Tables.current`.
            names: tables that the run reads.
            settings: settings with an effect on all rows.
            scope: groups and begin.
        """
        versions = tables.versions()
        snapshots = {name: tables.snapshot(name) for name in names if name in versions}
        # The job that writes a snapshot has the name of its table.
        written = {name: cls.last(tables, name) for name in snapshots if TABLES[name].is_snapshot}
        return cls(
            settings=settings,
            groups=scope.groups,
            since_ms=scope.since_ms,
            versions={name: versions[name] for name in snapshots},
            times={name: int(one.timestamp()) for name, one in snapshots.items()},
            ids={name: str(one.metadata().id()) for name, one in snapshots.items()},
            makers={
                name: evolve(one, versions={}, times={}, ids={})
                for name, one in written.items()
                if one is not None
            },
            as_of_ms=tables.as_of_ms() or 0,
        )

    @classmethod
    def last(cls, tables: Tables, job: str) -> Basis | None:
        """Return the basis of the last run of a job; `None` if it cannot be continued."""
        batch = tables.batches().get(job)
        return cls.from_json(batch.basis) if batch is not None and batch.basis else None

    @classmethod
    def from_json(cls, text: str) -> Basis:
        """Return the basis with this text, also if another release wrote it."""
        return cls._of_fields(json.loads(text))

    @classmethod
    def _of_fields(cls, found: Mapping[str, Any]) -> Basis:
        known = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        makers = {name: cls._of_fields(one) for name, one in known.get("makers", {}).items()}
        return cls(**{**known, "groups": tuple(known["groups"]), "makers": makers})

    def to_json(self) -> str:
        """Return the text for `Tables.record`."""
        return json.dumps(asdict(self))

    def new_from_ms(self, tables: Tables, last: Basis | None) -> int | None:
        """Return the begin of the first day with new input, in ms since 1970.

        Args:
            tables: tables with the input.
            last: basis of the last run; `None` if there is none.

        Returns:
            `ANEW` if the last run cannot be continued; `None` without new input.
        """
        if last is None or not self._continues(last):
            return ANEW
        days: set[str | None] = set()
        for name in self.versions:
            files = self._new_files(tables, name, last)
            days |= {None} if files is None else {*files.values()}
        if self.as_of_ms != last.as_of_ms:
            # Ends after the last run's end of the history count now.
            at = datetime.fromtimestamp(last.as_of_ms / _MS_PER_S, UTC)
            days.add(at.date().isoformat() if last.as_of_ms else None)
        if None in days:
            return ANEW
        first = min((date.fromisoformat(day) for day in days if day), default=None)
        if first is None:
            return None
        begin = datetime(first.year, first.month, first.day, tzinfo=UTC)
        return max(self.since_ms, int(begin.timestamp()) * _MS_PER_S)

    def new_rows(self, tables: Tables, last: Basis | None) -> dict[str, DataFrame] | None:
        """Return the new rows of each table that has any: (group, at_ms).

        Other rows in the files of new rows are included.

        Args:
            tables: tables with the input.
            last: basis of the last run; `None` if there is none.

        Returns:
            `None` if the last run cannot be continued.
        """
        if last is None or not self._continues(last):
            return None
        found: dict[str, DataFrame] = {}
        for name in self.versions:
            files = self._new_files(tables, name, last)
            if files is None:
                return None
            if files:
                paths = [f"{tables.path(name)}/{unquote(file)}" for file in sorted(files)]
                found[name] = tables.spark.read.schema("`group` string, at_ms long").parquet(*paths)
        return found

    def _continues(self, last: Basis) -> bool:
        """Return whether the rows of the last run are rows of this one, if no input is new."""
        return (
            (last.settings, last.groups) == (self.settings, self.groups)
            and last.since_ms <= self.since_ms
            and all(last.ids.get(name, one) == one for name, one in self.ids.items())
        )

    def _new_files(self, tables: Tables, name: str, last: Basis) -> _Files | None:
        """Return the present files with new rows; `None` if unknown, or if rows have vanished."""
        after, until = last.versions.get(name, -1), self.versions[name]
        if after == until:
            return {}
        # A table that was deleted begins again with a lower version.
        if until < after or (TABLES[name].is_snapshot and not self._has_kept_rows(name, last)):
            return None
        log = _read_log(tables, name, after, until)
        if log is not None:
            return _files_of(log, may_delete=TABLES[name].is_snapshot)
        return _files_from(tables, name, last.times.get(name, 0) - _LONGEST_COMMIT_MS)

    def _has_kept_rows(self, name: str, last: Basis) -> bool:
        """Return whether a table has all rows of this scope that it had at the last run."""
        now, then = self.makers.get(name), last.makers.get(name)
        return (
            now is not None
            and then is not None
            and (now.settings, now.groups) == (then.settings, then.groups)
            and now.lost_version <= last.versions.get(name, -1)
            and (now.since_ms == then.since_ms or now.since_ms <= self.since_ms)
        )


def begin_anew(tables: Tables, job: str) -> Batch | None:
    """Forget the basis of a job: after a kill, its tables may differ from it everywhere.

    Returns:
        The last batch of the job now.
    """
    if Basis.last(tables, job) is None:
        return tables.batches().get(job)
    return tables.record(job, {}, basis="")


def _read_log(tables: Tables, name: str, after: int, until: int) -> _Log | None:
    """Return the commits to a table after a version; `None` if Delta has deleted any of them."""
    folder, log = f"{tables.path(name)}/_delta_log", []
    if until - after > _FEW_VERSIONS:
        return _read_long_log(tables, folder, after, until)
    folders = Folders(tables.spark)
    for version in range(after + 1, until + 1):
        path = f"{folder}/{_LOG_NAME.format(version)}"
        if not folders.exists(path):
            return None
        log.append([json.loads(line) for line in folders.text(path).splitlines()])
    return log


def _read_long_log(tables: Tables, folder: str, after: int, until: int) -> _Log | None:
    file = sql.col("_metadata.file_name")
    reader = tables.spark.read.schema(_ACTIONS).option("pathGlobFilter", "?" * 20 + ".json")
    wanted = file.between(_LOG_NAME.format(after + 1), _LOG_NAME.format(until))
    rows = reader.json(folder).where(wanted).select(file.alias("file"), "*").collect()
    commits: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        commits.setdefault(row.file, []).append(row.asDict(recursive=True))
    return [commits[file] for file in sorted(commits)] if len(commits) == until - after else None


def _files_of(log: _Log, *, may_delete: bool) -> _Files | None:
    """Return the files with new rows after all commits of a log.

    Args:
        log: the commits.
        may_delete: whether rows may vanish; else the result is `None` if any have.
    """
    new: _Files = {}
    for actions in log:
        removed = [one["remove"] for one in actions if one.get("remove")]
        if not may_delete and any(one["dataChange"] for one in removed):
            return None
        # A commit that only joins files, or deletes some of their rows, has new rows only if these
        # files have.
        paths = {one["path"] for one in removed}
        was_new = not paths.isdisjoint(new)
        infos = [one["commitInfo"] for one in actions if one.get("commitInfo")]
        is_deletion = any(one["operation"] == "DELETE" for one in infos)
        new = {path: day for path, day in new.items() if path not in paths}
        for one in (action["add"] for action in actions if action.get("add")):
            if was_new or (one["dataChange"] and not is_deletion):
                new[one["path"]] = one["partitionValues"].get("day")
    return new


def _files_from(tables: Tables, name: str, from_ms: int) -> _Files:
    """Return the present files of a table that were written from a time on."""
    files = classic.DataFrame(tables.snapshot(name).allFiles().toDF(), tables.spark)
    rows = files.where(sql.col("modificationTime") >= from_ms)
    found = rows.select("path", sql.col("partitionValues").getItem("day").alias("day")).collect()
    return {row.path: row.day for row in found}
