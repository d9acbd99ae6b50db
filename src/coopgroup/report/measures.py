"""Measures of runs as rows of a table, alone or policy by policy.

A measure is any number of an attrs value. Those of the simulator have words of their own here; of
any other the name says what it is and the ending the unit, so that a new one needs no change.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from attrs import frozen

from coopgroup.model import Resource
from coopgroup.report.wording import seconds

__all__ = ["Cell", "ComparisonRow", "comparison_rows", "measure_rows"]

_MS: Final = "_ms"
_LABELS: Final = {
    "unavailable_partition_s": "unavailable partition-seconds",
    "unavailable_peak": "most unavailable at once",
    "moved": "partitions moved",
    "moved_twice": "moved twice or more",
    "converge_ms": "time to converge",
    "lag_peak": "peak lag",
    "lag_final": "final lag",
    "worst_outage_ms": "longest outage of a partition",
    "worst_resource": "partition that had it",
}


@frozen(kw_only=True)
class Cell:
    """A measure of one policy over its runs.

    Attributes:
        median: of the runs that have it.
        low: lowest.
        high: highest.
        text: median with its unit.
        span: from lowest to highest, and how many runs do not have it; "" where all agree.
    """

    median: float
    low: float
    high: float
    text: str
    span: str


@frozen(kw_only=True)
class ComparisonRow:
    """A measure of all policies.

    Attributes:
        label: what is measured.
        cells: one for each policy, None where no run has it.
    """

    label: str
    cells: tuple[Cell | None, ...]


def measure_rows(measures: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401 - any attrs value
    """Label and text of each measure: numbers, and what names a resource.

    Args:
        measures: an attrs value.
    """
    rows = []
    for name in _names(measures):
        value = getattr(measures, name)
        if isinstance(value, Resource):
            rows.append((_label(name), f"{value.name} {value.index}"))
        elif value is not None:
            rows.append((_label(name), _text(name, value)))
        elif name.endswith(_MS):
            rows.append((_label(name), "never"))
    return tuple(rows)


def comparison_rows(by_policy: Mapping[str, Sequence[Any]]) -> tuple[ComparisonRow, ...]:
    """Median and range of each measure, policy by policy.

    Args:
        by_policy: for each policy the measures of its runs, attrs values of one class.
    """
    every = [measures for runs in by_policy.values() for measures in runs]
    names = dict.fromkeys(
        name
        for measures in every
        for name in _names(measures)
        if not isinstance(getattr(measures, name), Resource)
    )
    numbers = [
        name for name in names if any(_is_number(getattr(measures, name)) for measures in every)
    ]
    return tuple(
        ComparisonRow(
            label=_label(name),
            cells=tuple(
                _cell(name, [getattr(measures, name) for measures in runs])
                for runs in by_policy.values()
            ),
        )
        for name in numbers
    )


def _cell(name: str, values: Sequence[float | None]) -> Cell | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high, median = min(known), max(known), statistics.median(known)
    spans = [f"{_text(name, low)} to {_text(name, high)}"] if low < high else []
    if len(known) < len(values):
        spans.append(f"{len(values) - len(known)} of {len(values)} never")
    return Cell(median=median, low=low, high=high, text=_text(name, median), span=", ".join(spans))


def _names(measures: Any) -> list[str]:  # noqa: ANN401 - any attrs value
    return [
        field.name
        for field in attrs.fields(type(measures))
        if _is_number(value := getattr(measures, field.name))
        or value is None
        or isinstance(value, Resource)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _label(name: str) -> str:
    return _LABELS.get(name, name.removesuffix(_MS).replace("_", " "))


def _text(name: str, value: float) -> str:
    if name.endswith(_MS):
        return seconds(value)
    return f"{value:,.1f}".removesuffix(".0")
