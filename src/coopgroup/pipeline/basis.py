"""`Basis`: what a job has read before, so that it need not compute everything again.

Delta's log lists the files that each version of a table added, with their day. A job records the
versions that it has read. At its next run, the days of the files since then are the only days with
new input. Files that `optimize` joined have no new rows, and Delta marks them so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from attrs import asdict, field, frozen

from coopgroup.pipeline.folders import Folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables

__all__ = ["ANEW", "Basis"]

ANEW: Final = -1
"""In place of a time: the last run cannot be continued."""

_VERSIONS_MAX: Final = 1_000
_MS_PER_S: Final = 1_000


@frozen(kw_only=True)
class Basis:
    """Input and settings of a run.

    Attributes:
        settings: settings with an effect on all rows.
        groups: groups of the scope.
        since_ms: begin of the scope.
        versions: versions of the tables that the run read.
    """

    settings: str
    groups: tuple[str, ...]
    since_ms: int
    versions: Mapping[str, int] = field(factory=dict)

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
        return cls(
            settings=settings,
            groups=scope.groups,
            since_ms=scope.since_ms,
            versions={name: versions[name] for name in names if name in versions},
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
        last = json.loads(recorded) if recorded else {"versions": {}}
        is_same = last.get("settings") == self.settings and last["groups"] == list(self.groups)
        if not is_same or last["since_ms"] > self.since_ms:
            return ANEW
        days: set[date | None] = set()
        for name, version in self.versions.items():
            days |= _new_days(tables, name, last["versions"].get(name, -1), version)
        if None in days:
            return ANEW
        first = min((day for day in days if day is not None), default=None)
        if first is None:
            return None
        begin = datetime(first.year, first.month, first.day, tzinfo=UTC)
        return max(self.since_ms, int(begin.timestamp()) * _MS_PER_S)


def _new_days(tables: Tables, name: str, after: int, until: int) -> set[date | None]:
    """Return the days to which versions of a table added rows; with `None` if that is unknown."""
    # A table that was deleted begins again with a lower version.
    if until < after or until - after > _VERSIONS_MAX:
        return {None}
    folders = Folders(tables.spark)
    days: set[date | None] = set()
    for version in range(after + 1, until + 1):
        path = f"{tables.path(name)}/_delta_log/{version:020d}.json"
        if not folders.exists(path):  # Delta deletes old logs
            return {None}
        for line in folders.text(path).splitlines():
            added = json.loads(line).get("add")
            if added is not None and added["dataChange"]:
                day = added["partitionValues"].get("day")
                days.add(date.fromisoformat(day) if day else None)
    return days
