"""Charts of many runs as values, without Bokeh: curves with bands, and heat maps.

Frozen values, and the conversion of numbers to positions on an axis. `drawing.charts` draws them;
`sweep_charts` and `advice_page` fill them.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["Chart", "Curve", "Heat", "Mark", "labelled", "value_text"]


@frozen(kw_only=True)
class Curve:
    """A line over numbers, with an optional band from the lowest to the highest value.

    Attributes:
        label: subject of the line.
        x: positions on the axis, ascending; a level line needs only one.
        y: one number for each position.
        low: lower end of the band for each position; empty without a band.
        high: upper end of the band.
        is_level: whether the value does not depend on the axis; such a line is dashed from end to
            end.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_level: bool = False


@frozen(kw_only=True)
class Mark:
    """A labelled position on the horizontal axis."""

    x: float
    label: str


@frozen(kw_only=True)
class Chart:
    """A figure of curves.

    Attributes:
        name: name of its model, unique on the page.
        title: subject.
        x_label: label of the horizontal axis.
        y_label: label of the vertical axis.
        ticks: labels of the positions on the horizontal axis; empty for numbers.
        curves: lines to draw.
        marks: positions with a vertical line.
    """

    name: str
    title: str
    x_label: str
    y_label: str = ""
    ticks: tuple[str, ...] = ()
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()


@frozen(kw_only=True)
class Heat:
    """A figure of cells; lower numbers are better.

    Attributes:
        name: name of its model, unique on the page.
        title: subject.
        x_label: label of the horizontal axis.
        columns: labels of the horizontal axis.
        rows: labels of the vertical axis, from top to bottom.
        cells: column, row, number and text of each existing cell.
    """

    name: str
    title: str
    x_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[int, int, float, str], ...]


_THOUSAND: Final = 1_000


def labelled(axis: str, value: object) -> str:
    """Format a value of an axis: "30 s" for 30000 of `session_timeout_ms`."""
    if value is None:
        return "none"
    if axis.endswith("_ms") and isinstance(value, int | float):
        return f"{value / _THOUSAND:,.3f}".rstrip("0").rstrip(".") + " s"
    return f"{value:,}" if isinstance(value, int) else str(value)


def value_text(measure: str, value: float) -> str:
    """Format a number of a measure."""
    if measure.endswith("_ms"):
        return labelled(measure, value)
    return f"{value:,.1f}".removesuffix(".0")
