"""Measures of runs as rows of a table, for one policy or for several.

A measure is any number in an attrs value. Measures of the simulator have labels here. For any other
measure the field's name gives the label and its ending the unit, so new measures need no change.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from attrs import frozen

from coopgroup.core.model import Resource
from coopgroup.report.wording import seconds

_MS: Final = "_ms"
LABELS: Final = {
    "unavailable_partition_s": "unavailable partition-seconds",
    "unavailable_peak": "most unavailable at once",
    "moved": "partitions moved",
    "moved_cold": "moved without a warm-up",
    "moved_twice": "moved twice or more",
    "returned": "returns (same process)",
    "warmups": "warm-ups",
    "rounds": "rounds",
    "converge_ms": "time to converge",
    "lag_peak": "peak lag",
    "lag_final": "final lag",
    "worst_outage_ms": "longest outage of a partition",
    "worst_resource": "partition that had it",
}
"""Names of the simulator's measures in tables."""

_OF_WARMUPS: Final = frozenset({"moved_cold", "warmups"})


@frozen(kw_only=True)
class Cell:
    """A measure of one policy over its runs.

    Attributes:
        median: median of the runs; a run without the measure counts as the worst.
        span: range of values, and number of runs without the measure; "" if all runs agree.
    """

    median: float
    low: float
    high: float
    text: str
    span: str


@frozen(kw_only=True)
class ComparisonRow:
    """A measure of all policies."""

    label: str
    cells: tuple[Cell | None, ...]


def _without_warmups(every: Sequence[Any]) -> frozenset[str]:
    """Return the measures to leave out: those of warm-ups, if no run has any."""
    warm = any(
        getattr(one, "warmups", 0) or getattr(one, "moved_cold", 0) != getattr(one, "moved", 0)
        for one in every
    )
    return frozenset() if warm else _OF_WARMUPS


def measure_rows(measures: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401 - any attrs value
    """Return label and text of each measure."""
    rows = []
    left_out = _without_warmups([measures])
    for name in _names(measures):
        if name in left_out:
            continue
        value = getattr(measures, name)
        if isinstance(value, Resource):
            rows.append((_label(name), f"{value.name} {value.index}"))
        elif value is not None:
            rows.append((_label(name), _text(name, value)))
        elif name.endswith(_MS):
            rows.append((_label(name), "never"))
    return tuple(rows)


def comparison_rows(by_policy: Mapping[str, Sequence[Any]]) -> tuple[ComparisonRow, ...]:
    """Return median and range of each measure for each policy."""
    every = [measures for runs in by_policy.values() for measures in runs]
    names = dict.fromkeys(
        name
        for measures in every
        for name in _names(measures)
        if not isinstance(getattr(measures, name), Resource)
    )
    left_out = _without_warmups(every)
    numbers = [
        name
        for name in names
        if name not in left_out
        and (name.endswith(_MS) or any(_is_number(getattr(one, name)) for one in every))
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
    missing = len(values) - len(known)
    median = statistics.median([*known, *[math.inf] * missing])
    if math.isinf(median):
        return None
    low, high = min(known), max(known)
    spans = [f"{_text(name, low)} to {_text(name, high)}"] if low < high else []
    if missing:
        spans.append(f"{missing} of {len(values)} never")
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
    return LABELS.get(name, name.removesuffix(_MS).replace("_", " "))


def _text(name: str, value: float) -> str:
    if name.endswith(_MS):
        return seconds(value)
    return f"{value:,.1f}".removesuffix(".0")
