"""`Scope`: the groups and the time that a job looks at (`--group`, `--since`).

Groups are independent of each other, so a job with `--group` computes the rows of these groups, and
leaves the rows of other groups unchanged. With `--since` the tables of lag and episodes have only
rows from that time on. Their input (commits, states of groups) stays complete, so a later run with
an earlier time brings the older rows back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from attrs import frozen
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ALL", "Scope", "in_groups", "quoted"]

_VERSION_BYTES: Final = 2
_LENGTH_BYTES: Final = 2


@frozen(kw_only=True)
class Scope:
    """The part of the history that a job looks at.

    Attributes:
        groups: names of the groups; empty for all groups.
        since_ms: begin, in ms since 1970.
    """

    groups: tuple[str, ...] = ()
    since_ms: int = 0

    def of_groups(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the groups, of all times."""
        return frame.where(sql.col("group").isin(*self.groups)) if self.groups else frame

    def since(self, frame: DataFrame, time: str = "at_ms", *, before_ms: int = 0) -> DataFrame:
        """Return the rows from the begin on; a row without a time is not over yet.

        Args:
            frame: rows.
            time: column of the time, in ms.
            before_ms: how much earlier the rows may be.
        """
        if self.since_ms <= before_ms:
            return frame
        at_ms = sql.col(time)
        return frame.where((at_ms >= self.since_ms - before_ms) | at_ms.isNull())

    def of_records(self, raw: DataFrame) -> DataFrame:
        """Return the records of the groups, before they are decoded.

        Args:
            raw: records whose keys begin with a version and the name of a group.
        """
        if not self.groups:
            return raw
        return raw.where(reduce(lambda one, other: one | other, map(_is_of, self.groups)))


ALL: Final = Scope()
"""All groups, at all times."""


def in_groups(groups: Sequence[str]) -> str:
    """Return a condition of SQL: the row is of one of the groups."""
    return f"`group` IN ({', '.join(map(quoted, groups))})"


def quoted(text: str) -> str:
    """Return a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _is_of(group: str) -> Column:
    name = group.encode()
    begin = len(name).to_bytes(_LENGTH_BYTES, "big") + name
    return sql.substring("key", _VERSION_BYTES + 1, len(begin)) == sql.lit(begin)
