"""`Basis`: what a job has read before, so that it need not compute everything again.

Delta's log lists the files that each version of a table added. A job records the versions that it
has read. At its next run, only the files since then have new input: only their days (for `lag`),
and only the groups in them (for `episodes`). Files that `optimize` joined have no new rows, and
Delta marks them so.

If the log does not tell, the job computes everything again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from attrs import asdict, field, frozen

from coopgroup.pipeline.folders import Folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables

__all__ = ["ANEW", "Basis", "begin_anew"]

ANEW: Final = -1
"""In place of a time: the last run cannot be continued."""

_VERSIONS_MAX: Final = 1_000
_GROUPS_MAX: Final = 1_000  # a condition with more names is slower than all groups
_MS_PER_S: Final = 1_000

_Log: TypeAlias = "list[list[dict[str, Any]]]"
"""Actions of each commit to a table."""


@frozen(kw_only=True)
class Basis:
    """Input and settings of a run.

    Attributes:
        settings: settings with an effect on all rows.
        groups: groups of the scope.
        since_ms: begin of the scope.
        versions: versions of the tables that the run read.
        ids: ids that Delta gave these tables when they were created.
    """

    settings: str
    groups: tuple[str, ...]
    since_ms: int
    versions: Mapping[str, int] = field(factory=dict)
    ids: Mapping[str, str] = field(factory=dict)

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
        known = [name for name in names if name in versions]
        return cls(
            settings=settings,
            groups=scope.groups,
            since_ms=scope.since_ms,
            versions={name: versions[name] for name in known},
            ids={name: str(tables.snapshot(name).metadata().id()) for name in known},
        )

    def to_json(self) -> str:
        """Return the text for `Tables.record`."""
        return json.dumps(asdict(self))

    def new_from_ms(self, tables: Tables, recorded: str) -> int | None:
        """Return the begin of the first day with new input, in ms since 1970.

        Args:
            tables: tables with the input.
            recorded: basis of the last run, from `to_json`; "" if there is none.

        Returns:
            `ANEW` if the last run cannot be continued; `None` without new input.
        """
        last = self._continued(recorded)
        if last is None or last["since_ms"] > self.since_ms:
            return ANEW
        days: set[date | None] = set()
        for name in self.versions:
            log = self._new_log(tables, name, last)
            days |= {None} if log is None else _new_days(log)
        if None in days:
            return ANEW
        first = min((day for day in days if day is not None), default=None)
        if first is None:
            return None
        begin = datetime(first.year, first.month, first.day, tzinfo=UTC)
        return max(self.since_ms, int(begin.timestamp()) * _MS_PER_S)

    def new_groups(self, tables: Tables, recorded: str) -> tuple[str, ...] | None:
        """Return the groups of the scope that may have new input, ascending.

        Args:
            tables: tables with the input.
            recorded: basis of the last run, from `to_json`; "" if there is none.

        Returns:
            `None` if the last run cannot be continued.
        """
        last = self._continued(recorded)
        if last is None or last["since_ms"] != self.since_ms:
            return None
        paths: list[str] = []
        for name in self.versions:
            log = self._new_log(tables, name, last)
            files = None if log is None else _new_files(log)
            if files is None:
                return None
            paths += (f"{tables.path(name)}/{unquote(file)}" for file in sorted(files))
        if not paths:
            return ()
        rows = tables.spark.read.schema("`group` string").parquet(*paths).distinct()
        found = sorted(row.group for row in rows.limit(_GROUPS_MAX + 1).collect())
        if len(found) > _GROUPS_MAX:
            return None
        return tuple(name for name in found if not self.groups or name in self.groups)

    def _continued(self, recorded: str) -> dict[str, Any] | None:
        """Return the last basis; `None` without one of the same settings, groups and tables."""
        last: dict[str, Any] = json.loads(recorded) if recorded else {}
        is_same = last.get("settings") == self.settings and last["groups"] == list(self.groups)
        ids = last.get("ids", {})
        if not is_same or any(ids.get(name, one) != one for name, one in self.ids.items()):
            return None
        return last

    def _new_log(self, tables: Tables, name: str, last: Mapping[str, Any]) -> _Log | None:
        """Return the commits to a table since the last run; `None` if that is unknown."""
        after, until = last["versions"].get(name, -1), self.versions[name]
        # A table that was deleted begins again with a lower version.
        if until < after or until - after > _VERSIONS_MAX:
            return None
        folders, log = Folders(tables.spark), []
        for version in range(after + 1, until + 1):
            path = f"{tables.path(name)}/_delta_log/{version:020d}.json"
            if not folders.exists(path):  # Delta deletes old logs
                return None
            log.append([json.loads(line) for line in folders.text(path).splitlines()])
        return log


def begin_anew(tables: Tables, job: str) -> None:
    """Forget the basis of a job: after a kill, its tables may differ from it everywhere."""
    last = tables.batches().get(job)
    if last is not None and last.basis:
        tables.record(job, {}, basis="")


def _new_days(log: _Log) -> set[date | None]:
    """Return the days to which commits added rows; with `None` for a table without days."""
    added = (one["add"] for actions in log for one in actions if "add" in one)
    days = {one["partitionValues"].get("day") for one in added if one["dataChange"]}
    return {date.fromisoformat(day) if day else None for day in days}


def _new_files(log: _Log) -> set[str] | None:
    """Return the present files with new rows; `None` if a group may have lost all its rows.

    A group that lost rows is in none of the new files.
    """
    new: set[str] = set()
    for actions in log:
        removed = [one["remove"] for one in actions if "remove" in one]
        if any(one["dataChange"] for one in removed) and not _keeps_rows(actions):
            return None
        paths = {one["path"] for one in removed}
        is_joined = not new.isdisjoint(paths)  # `optimize` joined new rows with others
        added = [one["add"] for one in actions if "add" in one]
        new = (new - paths) | {one["path"] for one in added if one["dataChange"] or is_joined}
    return new


def _keeps_rows(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a commit wrote all rows of the files again that it removed."""
    return any(
        one["commitInfo"]["operation"] == "MERGE"
        and one["commitInfo"].get("operationMetrics", {}).get("numTargetRowsDeleted") == "0"
        for one in actions
        if "commitInfo" in one
    )
