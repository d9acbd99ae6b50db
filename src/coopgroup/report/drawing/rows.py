"""The timeline: a row for each partition, a colour for each owner, dark for gaps.

`row_frame` and `add_bars` also draw the warm-ups, which have the same rows (`warm_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from bokeh.models import (
    BasicTicker,
    CDSView,
    ColumnDataSource,
    IndexFilter,
    Range1d,
    SingleIntervalTicker,
    Ticker,
)
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

from coopgroup.core.model import NOBODY, ResourceSet
from coopgroup.report.drawing.axes import Scene, framed, hover, rule_off
from coopgroup.report.history.timeline import Bars, Timeline
from coopgroup.report.palette import DOUBLE, GAP, PLAIN, UNKNOWN
from coopgroup.report.wording import counted, listed

Columns: TypeAlias = dict[str, Any]

ORDERS: Final = ("by_owner", "by_name")
"""Names of the row orders in the page's script."""

_ROWS_LABELLED_MAX: Final = 40
_PARTED_ROW_PIXELS: Final = 7  # minimum height of a row that has room for a separating line
_ROW_PIXELS: Final = 20
_HEIGHT_MIN: Final = 120
_HEIGHT_MAX: Final = 540
_AXIS_PIXELS: Final = 10
_LABEL_LETTERS_MAX: Final = 18
_NAMED_RANGES_MAX: Final = 4
_LAYERS: Final = ("owned", "gaps", "unsure", "doubles")
_UNSURE: Final = "/"
_EDGES: Final[dict[str, Any]] = {"left": "left", "right": "right", "top": "top", "bottom": "bottom"}
_TIP: Final = (
    "<b>@who</b><br>@rows<br>from <b>@left{0,0.000} s</b> to <b>@right{0,0.000} s</b>"
    "<br>@length{0,0.000} s"
)


def rows_figure(
    scene: Scene, timelines: Sequence[Timeline], *, height: int | None = None
) -> figure:
    """Draw the timeline.

    Args:
        scene: scene of the figure.
        timelines: the same rows in one or more orders. The first is shown; the page's script
            switches to another on request.
        height: height of the figure in pixels; None derives it from the number of rows.
    """
    count = len(scene.history.ledger.resources)
    pixels = _height(count) if height is None else height
    ticker = (
        SingleIntervalTicker(interval=1)
        if count <= _ROWS_LABELLED_MAX and height is None
        else BasicTicker(min_interval=1, desired_num_ticks=12 if height is None else 5)
    )
    plot = row_frame(scene, timelines, "ownership", pixels, ticker)
    end_s = scene.span_ms / 1000
    plot.quad(
        left=0, right=end_s, top=-0.5, bottom=count - 0.5, fill_color=UNKNOWN, line_color=None
    )
    plot.grid.visible = False
    plot.xaxis.visible = False  # the figure below shows the same axis
    for order, timeline in zip(ORDERS, timelines, strict=False):
        for layer in _LAYERS:
            if layer != "unsure" or timeline.unsure.owner.size:
                _add_layer(plot, scene, timeline, order, layer)
    if pixels > count * _PARTED_ROW_PIXELS:
        plot.hspan(y=np.arange(count - 1) + 0.5, line_color="white", line_width=1.5)
    rule_off(plot, scene)
    return plot


def row_frame(
    scene: Scene, timelines: Sequence[Timeline], name: str, height: int, ticker: Ticker
) -> figure:
    """Return an empty figure with a row for each resource, and with their labels."""
    ledger = scene.history.ledger
    bottom = max(len(ledger.resources), 1) - 0.5
    plot = framed(
        scene,
        height=height,
        y_range=Range1d(start=bottom, end=-0.5, bounds=(-0.5, bottom)),
        label="",
        name=scene.named(name),
    )
    labels = _labels(ledger.resources)
    # The page's script finds the labels of the other order here. A formatter in JavaScript would
    # need `eval`, which a page with a Content-Security-Policy refuses.
    plot.tags = [[labels[number] for number in one.order.tolist()] for one in timelines]
    plot.yaxis.major_label_overrides = dict(enumerate(plot.tags[0]))
    plot.yaxis.ticker = ticker
    return plot


def _height(count: int) -> int:
    return int(np.clip(count * _ROW_PIXELS, _HEIGHT_MIN, _HEIGHT_MAX)) + _AXIS_PIXELS


def add_bars(
    plot: figure,
    source: ColumnDataSource,
    order: str,
    tip: str,
    **more: Any,  # noqa: ANN401
) -> GlyphRenderer[Any]:
    """Draw a bar for each line of a source, visible in one order of the rows."""
    # Lines in the colour of the bar close the seams between neighbours, and keep a gap of a
    # fraction of a pixel visible.
    renderer = plot.quad(
        **_EDGES,
        source=source,
        fill_color="colour",
        fill_alpha="alpha",
        line_color="colour",
        line_alpha="alpha",
        visible=order == ORDERS[0],
        **more,
    )
    renderer.tags = [order]
    plot.add_tools(hover(renderer, tip))
    return renderer


def _add_layer(plot: figure, scene: Scene, timeline: Timeline, order: str, layer: str) -> None:
    """Draw a layer; gaps and double owners are drawn last, so they cover owned time."""
    source = ColumnDataSource(
        _columns(scene, timeline, getattr(timeline, layer)), name=scene.named(f"{order}_{layer}")
    )
    add_bars(
        plot,
        source,
        order,
        _TIP,
        line_width=0.5 if layer == "owned" else 1,
        name=scene.named(f"{order}_{layer}_bars"),
    )
    patterns = np.array(source.data["pattern"], dtype=np.str_)
    for pattern in sorted(set(patterns.tolist()) - {PLAIN}):
        # One pattern for all bars of a renderer: with a pattern per bar Bokeh needs 1 ms for each
        # bar.
        hatched = plot.quad(
            **_EDGES,
            source=source,
            view=CDSView(
                filter=IndexFilter(
                    indices=np.flatnonzero(patterns == pattern).tolist(),
                    name=scene.named(f"{order}_{layer}_{pattern}"),
                )
            ),
            fill_color=None,
            line_color=None,
            hatch_pattern=pattern,
            hatch_color="white",
            hatch_alpha=0.55,
            hatch_scale=9,
            visible=order == ORDERS[0],
        )
        hatched.tags = [order]


def _columns(scene: Scene, timeline: Timeline, bars: Bars) -> Columns:
    clients = scene.history.ledger.clients
    owners = bars.owner.tolist()
    nobody = bars.owner == NOBODY
    prefix = "perhaps " if bars is timeline.unsure else ""
    return {
        "left": scene.seconds(bars.start_ms),
        "right": scene.seconds(bars.end_ms),
        "top": bars.first_row - 0.5,
        "bottom": bars.last_row + 0.5,
        "length": (bars.end_ms - bars.start_ms) / 1000,
        "owner": bars.owner.astype(np.int32),
        "alpha": np.ones(bars.owner.size, dtype=np.float32),
        **_look(scene, timeline, bars),
        "who": [
            "nobody" if without else prefix + clients[owner]
            for owner, without in zip(owners, nobody.tolist(), strict=True)
        ],
        "rows": names_of(
            scene.history.ledger.resources,
            timeline.order,
            zip(bars.first_row.tolist(), bars.last_row.tolist(), strict=True),
        ),
    }


def _look(scene: Scene, timeline: Timeline, bars: Bars) -> Columns:
    if bars is timeline.gaps:
        return {"colour": [GAP] * bars.owner.size, "pattern": [PLAIN] * bars.owner.size}
    if bars is timeline.unsure:
        return {"colour": [GAP] * bars.owner.size, "pattern": [_UNSURE] * bars.owner.size}
    if bars is timeline.doubles:
        return {"colour": [DOUBLE] * bars.owner.size, "pattern": ["x"] * bars.owner.size}
    paints = [scene.paint[owner] for owner in bars.owner.tolist()]
    return {
        "colour": [paint.colour for paint in paints],
        "pattern": [paint.pattern for paint in paints],
    }


def names_of(
    resources: ResourceSet, order: npt.NDArray[np.int64], rows: Iterable[tuple[int, int]]
) -> list[str]:
    """Return the text for the resources of each pair of first and last row."""
    singles = [f"{name} {index}" for name, index in resources]
    picked = np.zeros(len(resources), dtype=np.bool_)
    named = []
    for first, last in rows:
        numbers = order[first : last + 1]
        if numbers.size == 1:
            named.append(singles[numbers[0]])
            continue
        picked[:] = False
        picked[numbers] = True
        several = resources.take(picked)
        named.append(f"{listed(several, _NAMED_RANGES_MAX)} ({counted(len(several), 'partition')})")
    return named


def _labels(resources: ResourceSet) -> list[str]:
    """Return a label for each resource; long names lose their start, as ends differ more."""
    labels = [f"{name} {index}" for name, index in resources]
    return [
        label if len(label) <= _LABEL_LETTERS_MAX else "…" + label[1 - _LABEL_LETTERS_MAX :]
        for label in labels
    ]
