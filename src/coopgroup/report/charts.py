"""What charts of many runs show: curves with their bands, and heat maps; values without Bokeh.

Rules of this file: frozen values only, and how numbers become places on an axis. `drawing.charts`
draws them, `sweep_charts` and `advice_page` say what they show.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["Chart", "Curve", "Heat", "Mark", "labelled", "value_text"]


@frozen(kw_only=True)
class Curve:
    """A line over numbers, with a band from the lowest to the highest where there is one.

    Attributes:
        label: what it is of.
        x: places on the axis, ascending; one is enough for a line from end to end.
        y: one number for each.
        low: lower end of the band, one for each; empty for no band.
        high: upper end of the band.
        is_level: whether it does not depend on the axis, and is drawn dashed from end to end.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_level: bool = False


@frozen(kw_only=True)
class Mark:
    """A place on the horizontal axis with a word for it."""

    x: float
    label: str


@frozen(kw_only=True)
class Chart:
    """A figure of curves.

    Attributes:
        name: of its model, unique on the page.
        title: what is shown.
        x_label: of the horizontal axis.
        y_label: of the vertical axis.
        ticks: labels of the places on the horizontal axis; empty for numbers.
        curves: what is drawn.
        marks: places that are ruled off.
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
    """A figure of cells, the lower a number the better.

    Attributes:
        name: of its model, unique on the page.
        title: what is shown.
        x_label: of the horizontal axis.
        columns: labels of the horizontal axis.
        rows: labels of the vertical axis, from top to bottom.
        cells: column, row, number and text of each cell that there is.
    """

    name: str
    title: str
    x_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[int, int, float, str], ...]


_THOUSAND: Final = 1_000


def labelled(axis: str, value: object) -> str:
    """A value of an axis as people read it: "30 s" for 30000 of `session_timeout_ms`."""
    if value is None:
        return "none"
    if axis.endswith("_ms") and isinstance(value, int | float):
        return f"{value / _THOUSAND:,.3f}".rstrip("0").rstrip(".") + " s"
    return f"{value:,}" if isinstance(value, int) else str(value)


def value_text(measure: str, value: float) -> str:
    """A number of a measure as people read it."""
    if measure.endswith("_ms"):
        return labelled(measure, value)
    return f"{value:,.1f}".removesuffix(".0")
