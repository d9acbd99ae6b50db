"""`DecisionTable`: a decision as rows that a reader, a test and an array operation can go through.

A table has columns of boolean facts, and rows with cells: `_1` (true), `_0` (false) or `__` (any).
Exactly one row fits each combination of facts; the tests of each table check all combinations. The
same table decides one case, or with arrays a million cases together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import BoolArray


_0: Final = False
_1: Final = True
__: Final = None

Action = TypeVar("Action")


@frozen
class Row(Generic[Action]):
    """One row.

    Attributes:
        label: name of the row in the surrounding comments.
        cells: one per column: `_1`, `_0` or `__`.
        action: decision if the cells fit.
    """

    label: str
    cells: tuple[bool | None, ...]
    action: Action


@frozen
class DecisionTable(Generic[Action]):
    """Rows of a decision; exactly one fits.

    Attributes:
        columns: names of the facts.
        rows: in any order.
    """

    columns: tuple[str, ...]
    rows: tuple[Row[Action], ...]

    def fitting(self, facts: tuple[bool, ...]) -> tuple[Row[Action], ...]:
        """Return all fitting rows; exactly one in a correct table.

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
        """Return which of many cases lead to an action.

        Args:
            action: the action.
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
