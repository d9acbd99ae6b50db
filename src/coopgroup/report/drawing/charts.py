"""Figures of many runs: curves with bands, and heat maps (values of `report.charts`)."""

from __future__ import annotations

from typing import Any, Final

from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.models.annotations import Legend, LegendItem, Span, Title
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

from coopgroup.report.charts import Chart, Curve, Heat
from coopgroup.report.drawing.axes import FAULT, FONT, INK, hover, styled
from coopgroup.report.palette import COLOURS

_CHART_PIXELS: Final = 280
_LEGEND_ROW_PIXELS: Final = 22
_ROW_PIXELS: Final = 26
_HEAT_MARGIN_PIXELS: Final = 64
_LABEL_PIXELS: Final = 6.4
_LEFT_PIXELS_MAX: Final = 420
_TEXTS_MAX: Final = 400  # above this count numbers are shown only on hover
# From good to bad, light to dark, so that the map is readable without colours.
_HEAT: Final = (
    *("#f4f8fb", "#dfeaf3", "#c5daea", "#a7c8df", "#84b3d3", "#609cc4", "#4184b3", "#286b9f"),
    *("#155288", "#0a3a6b"),
)
_DARK: Final = 0.55
_WHOLE: Final = 10  # above this value an axis has whole numbers


def chart_figure(chart: Chart) -> figure:
    """Draw curves."""
    highest = max((y for one in chart.curves for y in (*one.y, *one.high)), default=0) or 1
    count = len(chart.ticks)
    if count:
        axis = Range1d(start=-0.2, end=max(count - 1, 0) + 0.2)
    else:
        ends = [x for one in chart.curves for x in one.x] + [one.x for one in chart.marks]
        axis = Range1d(start=min(ends, default=0), end=max(ends, default=1) or 1)
    plot = _titled(
        chart.title,
        height=_CHART_PIXELS + _LEGEND_ROW_PIXELS * len(chart.curves),
        x_range=axis,
        y_range=Range1d(start=0, end=1.06 * highest),
        name=chart.name,
    )
    plot.xaxis.axis_label = chart.x_label
    plot.yaxis.axis_label = chart.y_label
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0" if highest >= _WHOLE else "0.[000]")
    if count:
        plot.xaxis.ticker = FixedTicker(ticks=list(range(count)))
        plot.xaxis.major_label_overrides = dict(enumerate(chart.ticks))
    items = [
        LegendItem(label=one.label, renderers=_add_curve(plot, chart, one, number))
        for number, one in enumerate(chart.curves)
    ]
    legend = Legend(items=items, location="left", border_line_color=None)
    legend.label_text_font, legend.label_text_font_size = FONT, "11px"
    legend.label_text_color, legend.background_fill_color = INK, None
    plot.add_layout(legend, "below")
    for mark in chart.marks:
        _add_mark(plot, mark.x, mark.label, highest)
    return plot


def heat_figure(heat: Heat) -> figure:
    """Draw a heat map."""
    left = min(_LEFT_PIXELS_MAX, max(80, round(_LABEL_PIXELS * max(map(len, heat.rows)) + 24)))
    plot = _titled(
        heat.title,
        height=_ROW_PIXELS * len(heat.rows) + _HEAT_MARGIN_PIXELS,
        x_range=Range1d(start=-0.5, end=len(heat.columns) - 0.5),
        y_range=Range1d(start=len(heat.rows) - 0.5, end=-0.5),
        name=heat.name,
        min_border_left=left,
    )
    plot.grid.visible = False
    plot.xaxis.axis_label = heat.x_label
    for axis, labels in ((plot.xaxis, heat.columns), (plot.yaxis, heat.rows)):
        axis.ticker = FixedTicker(ticks=list(range(len(labels))))
        axis.major_label_overrides = dict(enumerate(labels))
    numbers = [cell[2] for cell in heat.cells]
    low, high = min(numbers), max(numbers)
    dark_from = low + _DARK * (high - low)
    source = ColumnDataSource(
        {
            "x": [cell[0] for cell in heat.cells],
            "y": [cell[1] for cell in heat.cells],
            "value": numbers,
            "text": [cell[3] for cell in heat.cells],
            "column": [heat.columns[cell[0]] for cell in heat.cells],
            "row": [heat.rows[cell[1]] for cell in heat.cells],
            "ink": [INK if one < dark_from or low == high else "#ffffff" for one in numbers],
        },
        name=f"{heat.name}_cells",
    )
    mapper = LinearColorMapper(palette=list(_HEAT), low=low, high=high if high > low else low + 1)
    cells = plot.rect(
        x="x",
        y="y",
        width=1,
        height=1,
        source=source,
        fill_color={"field": "value", "transform": mapper},
        line_color="white",
    )
    plot.add_tools(hover(cells, f"<b>@text</b><br>@row<br>{heat.x_label}: @column"))
    if len(heat.cells) <= _TEXTS_MAX:
        texts = plot.text(
            x="x",
            y="y",
            text="text",
            text_color="ink",
            source=source,
            text_align="center",
            text_baseline="middle",
            text_font_size="11px",
        )
        texts.glyph.text_font = {"value": FONT}
    return plot


def _titled(title: str, **properties: Any) -> figure:  # noqa: ANN401 - whatever a figure takes
    plot = styled(
        title=Title(text=title, text_font=FONT, text_font_size="13px", text_color=INK),
        **properties,
    )
    plot.xgrid.grid_line_color = None
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=5)
    return plot


def _add_curve(plot: figure, chart: Chart, curve: Curve, number: int) -> list[GlyphRenderer[Any]]:
    colour = COLOURS[number % len(COLOURS)]
    x, y, low, high = list(curve.x), list(curve.y), list(curve.low), list(curve.high)
    if curve.is_level:
        ends = [0.0, float(max(len(chart.ticks) - 1, 0))]
        x, y, low, high = ends, y[:1] * 2, low[:1] * 2, high[:1] * 2
    if low and low != high:
        plot.varea(x=x, y1=low, y2=high, fill_color=colour, fill_alpha=0.13)
    words = chart.ticks
    source = ColumnDataSource(
        {
            "x": x,
            "y": y,
            "who": [curve.label] * len(x),
            "at": [words[round(one)] if words and not curve.is_level else f"{one:g}" for one in x],
            "low": low or y,
            "high": high or y,
        },
        name=f"{chart.name}_{number}",
    )
    dash = "dashed" if curve.is_level else "solid"
    line = plot.line(x="x", y="y", source=source, line_color=colour, line_width=2, line_dash=dash)
    if curve.is_level:
        return [line]
    dots = plot.scatter(x="x", y="y", source=source, size=6, color=colour, line_color="white")
    tip = "<b>@who</b><br>@y{0,0.[00]} (@low{0,0.[00]} to @high{0,0.[00]})"
    plot.add_tools(hover(dots, f"{tip}<br>{chart.x_label}: @at"))
    return [line, dots]


def _add_mark(plot: figure, x: float, label: str, highest: float) -> None:
    plot.add_layout(Span(location=x, dimension="height", line_color=FAULT, line_width=1.3))
    texts = plot.text(
        x=[x],
        y=[highest],
        text=[label],
        x_offset=5,
        text_baseline="top",
        text_font_size="11px",
        text_color=FAULT,
    )
    texts.glyph.text_font = {"value": FONT}
