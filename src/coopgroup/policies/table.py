"""`DecisionTable`: a decision as rows that a reader, a test and an array can all go through.

Rules of this file: a table has columns of facts that are true or not, and rows whose cells say
`_1` (is so), `_0` (is not so) or `__` (does not matter). Exactly one row fits any combination of
facts; the tests of each table go through all of them. The same table decides one case or, column
by column, a million of them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.model.resource_set import BoolArray

__all__ = ["DecisionTable", "Row", "_0", "_1", "__"]

_0: Final = False
_1: Final = True
__: Final = None

Action = TypeVar("Action")


@frozen
class Row(Generic[Action]):
    """One row.

    Attributes:
        label: by which the prose beside the table argues for it.
        cells: one per column: `_1`, `_0` or `__`.
        action: what is decided where the cells fit.
    """

    label: str
    cells: tuple[bool | None, ...]
    action: Action


@frozen
class DecisionTable(Generic[Action]):
    """Rows of which exactly one fits.

    Attributes:
        columns: names of the facts.
        rows: in any order.
    """

    columns: tuple[str, ...]
    rows: tuple[Row[Action], ...]

    def fitting(self, facts: tuple[bool, ...]) -> tuple[Row[Action], ...]:
        """All rows that fit; one, in a table that is right.

        Args:
            facts: one per column.
        """
        return tuple(
            row
            for row in self.rows
            if all(
                cell is None or cell is fact for cell, fact in zip(row.cells, facts, strict=True)
            )
        )

    def decide(self, **facts: bool) -> Action:
        """Decide one case.

        Args:
            facts: every column by name.
        """
        (row,) = self.fitting(tuple(bool(facts[column]) for column in self.columns))
        return row.action

    def decide_each(self, action: Action, **facts: BoolArray) -> BoolArray:
        """Say in which of many cases an action is decided.

        Args:
            action: the action that is asked for.
            facts: every column by name, as bool (N,).

        Returns:
            bool (N,).
        """
        decided = np.zeros_like(facts[self.columns[0]])
        for row in self.rows:
            if row.action == action:
                fits = np.ones_like(decided)
                for column, cell in zip(self.columns, row.cells, strict=True):
                    if cell is not None:
                        fits &= facts[column] if cell else ~facts[column]
                decided |= fits
        return decided
