"""`Progress`: what the rows of a derived table were computed from.

A job notes the versions of the raw tables that it has read. At its next run, Delta's Change Data
Feed has the rows that came since then. Only their time (for `lag`), and only their groups (for
`episodes`) are computed again.

A job notes its progress after it has written. So after a kill, the next run computes at least what
the killed run computed. A job forgets its progress before it writes rows that follow from other
settings: a kill would otherwise leave rows of two settings.

    FOLDER/v1/progress/lag.json
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from attrs import asdict, field, frozen
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.tables import ConflictError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables

__all__ = ["UNKNOWN", "Progress", "is_deleted"]

UNKNOWN: Final = -1
"""In place of a time: all input may be new."""

_LOG: Final = "{}/_delta_log/{:020d}.json"
_DELETED: Final = re.compile("FILE_NOT_EXIST|FileNotFoundException")


@frozen(kw_only=True)
class Progress:
    """Input and settings of a run.

    Attributes:
        settings: settings with an effect on all rows.
        groups: groups of the scope; empty for all.
        since_ms: begin of the scope.
        as_of_ms: end of the history (`Tables.as_of_ms`); 0 if unknown.
        read: versions of the raw tables that the run read.
        ids: ids that Delta gave these tables when they were created.
        lag: progress of the table `lag`, if the run read it.
    """

    settings: str
    groups: tuple[str, ...] = ()
    since_ms: int = 0
    as_of_ms: int = 0
    read: Mapping[str, int] = field(factory=dict)
    ids: Mapping[str, str] = field(factory=dict)
    lag: Progress | None = None

    @classmethod
    def of(cls, tables: Tables, names: Sequence[str], settings: str, scope: Scope) -> Progress:
        """Return the progress of a run that begins now.

        Args:
            tables: with fixed versions, from `Tables.current`.
            names: raw tables that the run reads.
            settings: settings with an effect on all rows.
            scope: groups and begin.
        """
        versions = tables.versions()
        known = [name for name in names if name in versions]
        return cls(
            settings=settings,
            groups=scope.groups,
            since_ms=scope.since_ms,
            as_of_ms=tables.as_of_ms() or 0,
            read={name: versions[name] for name in known},
            ids={name: str(tables.snapshot(name).metadata().id()) for name in known},
        )

    @classmethod
    def last(cls, tables: Tables, job: str) -> Progress | None:
        """Return the progress of the last run of a job; `None` if it cannot be continued."""
        found = tables.noted(job)
        return None if found is None else cls._of(found)

    @classmethod
    def _of(cls, found: Mapping[str, Any]) -> Progress:
        lag = None if found["lag"] is None else cls._of(found["lag"])
        return cls(**{**found, "groups": tuple(found["groups"]), "lag": lag})

    def note(self, tables: Tables, job: str, *, after: Progress | None) -> Progress:
        """Note the progress of a job, and return it.

        Args:
            tables: tables that the job writes.
            job: its name.
            after: progress of the job when the run began.

        Raises:
            ConflictError: another run has noted its progress meanwhile. Rows of both runs may be in
                the tables, so the next run computes all of them.
        """
        if Progress.last(tables, job) != after:
            tables.note(job, None)
            raise ConflictError(f"the progress of {job} in {tables.folder}")
        tables.note(job, asdict(self))
        return self

    def continues(self, last: Progress | None) -> bool:
        """Return whether the rows of the last run are rows of this one, if no input is new."""
        return (
            last is not None
            and (last.settings, last.groups) == (self.settings, self.groups)
            and last.since_ms <= self.since_ms
            and bool(last.as_of_ms) == bool(self.as_of_ms)
        )

    def new_rows(self, tables: Tables, last: Progress) -> dict[str, DataFrame] | None:
        """Return the rows that came after the last run, by raw table.

        Returns:
            `None` if unknown: Delta has deleted part of a log, or a table was made again.
        """
        if not self.read.keys() >= last.read.keys():
            return None
        found = {}
        for name, until in self.read.items():
            after = last.read.get(name, -1)
            if last.ids.get(name, self.ids[name]) != self.ids[name] or after > until:
                return None
            if after < until:
                if not Folders(tables.spark).exists(_LOG.format(tables.path(name), after + 1)):
                    return None
                found[name] = tables.added(name, after, until)
        return found

    def new_from_ms(self, tables: Tables, last: Progress) -> int | None:
        """Return the first time with new input: `UNKNOWN`, or `None` without new input."""
        rows = self.new_rows(tables, last)
        if rows is None:
            return UNKNOWN
        # Ends after the last run's end of the history count now.
        times = [last.as_of_ms + 1] if self.as_of_ms != last.as_of_ms else []
        if rows:
            some = (one.select("at_ms") for one in rows.values())
            first = reduce(lambda one, other: one.union(other), some).agg(sql.min("at_ms"))
            try:
                times += [at_ms for (at_ms,) in first.collect() if at_ms is not None]
            except (PySparkException, Py4JError) as error:
                if not is_deleted(error):
                    raise
                return UNKNOWN
        return min(times, default=None)


def is_deleted(error: Exception) -> bool:
    """Return whether the files of changes are gone: `optimize` has joined and deleted them."""
    return _DELETED.search(str(error)) is not None
