"""Warm-ups and standbys below the timeline: the same rows, a colour for each member that prepares.

Pale: the member restores the state beside the owner. Full colour: it is warm. A mark says how it
ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from bokeh.models import BasicTicker, ColumnDataSource
from bokeh.plotting import figure

from coopgroup.report.drawing.axes import FAINT, FAULT, INK, Scene, name_time, rule_off
from coopgroup.report.drawing.rows import ORDERS, add_bars, names_of, row_frame
from coopgroup.report.history.timeline import Timeline
from coopgroup.report.history.warm_bars import WarmBar, lanes_of, warm_bars
from coopgroup.report.wording import seconds
from coopgroup.telemetry import WarmEnd

_HEIGHT_MIN: Final = 110
_HEIGHT_MAX: Final = 320
_LANE_PIXELS: Final = 9
_AXIS_PIXELS: Final = 52
_PALE: Final = 0.32
_FULL: Final = 0.95
_MARKS: Final = {
    WarmEnd.MOVED: ("circle", INK),
    WarmEnd.CANCELLED: ("x", FAINT),
    WarmEnd.FAILED: ("x", FAULT),
    WarmEnd.ENDED: ("inverted_triangle", FAINT),
}
_WORDS: Final = {
    WarmEnd.MOVED: "moved to it at {}",
    WarmEnd.CANCELLED: "cancelled at {}",
    WarmEnd.FAILED: "failed at {}",
    WarmEnd.ENDED: "its process ended at {}",
    WarmEnd.OPEN: "still so at {}",
}
_TIP: Final = "<b>@who</b><br>@rows<br>@begun<br>@warm<br>@ended"


def warm_figure(
    scene: Scene, timelines: Sequence[Timeline], *, height: int | None = None
) -> figure:
    """Draw the warm-ups and standbys of a history.

    Args:
        scene: scene of the figure.
        timelines: orders of the rows, as for the timeline of owners.
        height: height of the figure in pixels; None derives it from the number of rows.
    """
    ledger, spans = scene.history.ledger, scene.history.ledger.warm_spans
    lanes = 1 + max(lanes_of(spans).values(), default=0)
    rows = len(ledger.resources) * lanes
    pixels = int(np.clip(rows * _LANE_PIXELS, _HEIGHT_MIN, _HEIGHT_MAX)) + _AXIS_PIXELS
    ticker = BasicTicker(min_interval=1, desired_num_ticks=8 if height is None else 4)
    plot = row_frame(scene, timelines, "warmups", pixels if height is None else height, ticker)
    plot.ygrid.visible = False
    name_time(plot, scene)
    for order, timeline in zip(ORDERS, timelines, strict=False):
        bars = warm_bars(spans, ledger, timeline.order)
        _add_bars(plot, scene, timeline, bars, order, lanes)
    rule_off(plot, scene)
    return plot


def _add_bars(
    plot: figure,
    scene: Scene,
    timeline: Timeline,
    bars: Sequence[WarmBar],
    order: str,
    lanes: int,
) -> None:
    begun = [one for one in bars if one.warm_ms is None or one.warm_ms > one.begin_ms]
    warm = [one for one in bars if one.warm_ms is not None]
    for name, some, alpha in (("restoring", begun, _PALE), ("warm", warm, _FULL)):
        source = ColumnDataSource(
            _columns(scene, timeline, some, lanes, name=name, alpha=alpha),
            name=scene.named(f"{order}_{name}"),
        )
        add_bars(plot, source, order, _TIP, line_width=0.5)
    for end, (marker, colour) in _MARKS.items():
        some = [one for one in bars if one.end is end]
        source = ColumnDataSource(
            {
                "x": scene.seconds([one.end_ms for one in some]),
                "y": [sum(_edges(one, lanes)) / 2 for one in some],
            },
            name=scene.named(f"{order}_{end.value}"),
        )
        marks = plot.scatter(
            x="x",
            y="y",
            source=source,
            marker=marker,
            size=5,
            color=colour,
            line_width=1.5,
            visible=order == ORDERS[0],
        )
        marks.tags = [order]


def _columns(
    scene: Scene,
    timeline: Timeline,
    bars: Sequence[WarmBar],
    lanes: int,
    *,
    name: str,
    alpha: float,
) -> dict[str, Any]:
    clients = scene.history.ledger.clients
    begin_ms = scene.history.ledger.begin_ms
    edges = [_edges(one, lanes) for one in bars]
    warm_ms = [one.end_ms if one.warm_ms is None else one.warm_ms for one in bars]
    is_warm = name == "warm"
    return {
        "left": scene.seconds(warm_ms if is_warm else [one.begin_ms for one in bars]),
        "right": scene.seconds([one.end_ms for one in bars] if is_warm else warm_ms),
        "top": [top for top, _ in edges],
        "bottom": [bottom for _, bottom in edges],
        "owner": np.array([one.owner for one in bars], dtype=np.int32),
        "alpha": np.full(len(bars), alpha, dtype=np.float32),
        "base": np.full(len(bars), alpha, dtype=np.float32),
        "colour": [scene.paint[one.owner].colour for one in bars],
        "who": [f"{clients[one.owner]} {'is warm for' if is_warm else 'restores'}" for one in bars],
        "rows": names_of(
            scene.history.ledger.resources,
            timeline.order,
            ((one.first_row, one.last_row) for one in bars),
        ),
        "begun": [f"begun at {seconds(one.begin_ms - begin_ms)}" for one in bars],
        "warm": [
            "never warm" if one.warm_ms is None else f"warm at {seconds(one.warm_ms - begin_ms)}"
            for one in bars
        ],
        "ended": [_WORDS[one.end].format(seconds(one.end_ms - begin_ms)) for one in bars],
    }


def _edges(bar: WarmBar, lanes: int) -> tuple[float, float]:
    """Return top and bottom of a bar on the axis of rows."""
    top = bar.first_row - 0.5 + bar.lane / lanes
    return top, bar.last_row - 0.5 + (bar.lane + 1) / lanes
