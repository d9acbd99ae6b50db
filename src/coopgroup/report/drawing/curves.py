"""Curves below the timeline: unowned partitions, and lag."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from bokeh.models import BasicTicker, ColumnDataSource, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from coopgroup.report.drawing.axes import FAINT, Scene, framed, hover, name_time, rule_off
from coopgroup.report.history.lag_lines import LagLines
from coopgroup.report.history.timeline import unowned_counts
from coopgroup.report.palette import GAP

_UNOWNED_HEIGHT: Final = 110
_LAG_HEIGHT: Final = 260
_HEADROOM: Final = 1.08


def unowned_figure(scene: Scene, counts_max: int | None = None) -> figure:
    """Draw the number of unowned partitions.

    Args:
        scene: scene of the figure.
        counts_max: upper end of the axis. None for the highest count after the start of the group,
            because the count at the start would dwarf everything later.
    """
    ledger = scene.history.ledger
    steps = unowned_counts(scene.history.ledger.gaps, ledger.begin_ms, ledger.until_ms)
    settled_ms = scene.history.settled_ms
    highest = steps.highest_from(settled_ms) if counts_max is None else counts_max
    plot = framed(
        scene,
        height=_UNOWNED_HEIGHT,
        y_range=Range1d(
            start=0, end=max(highest, 1) * _HEADROOM, name=scene.named("unowned_range")
        ),
        label="nobody",
        name=scene.named("unowned"),
    )
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=3, min_interval=1)
    times = scene.seconds(steps.times_ms)
    source = ColumnDataSource(
        {
            "left": times[:-1],
            "right": times[1:],
            "top": steps.counts[:-1],
        },
        name=scene.named("unowned_counts"),
    )
    renderer = plot.quad(
        left="left",
        right="right",
        top="top",
        bottom=0,
        source=source,
        fill_color=GAP,
        line_color=GAP,
        line_width=0.5,
    )
    tip = "nobody works on <b>@top{0,0}</b> partitions<br>@left{0,0.000} s to @right{0,0.000} s"
    plot.add_tools(hover(renderer, tip))
    rule_off(plot, scene)
    name_time(plot, scene)
    return plot


def lag_figure(scene: Scene, lag: LagLines) -> figure:
    """Draw lag over time: of each member and of unowned partitions.

    As above, the scale leaves out the start of the group.
    """
    settled = lag.times_ms >= scene.history.settled_ms
    if not settled.any():
        settled[:] = True
    known = np.nan_to_num(np.vstack([lag.lags, lag.nobody])[:, settled])
    highest = max(1, int(known.max()))
    plot = framed(
        scene,
        height=_LAG_HEIGHT,
        y_range=Range1d(
            start=0, end=highest * _HEADROOM, bounds=(0, None), name=scene.named("lag_range")
        ),
        label="lag in records",
        name=scene.named("lag"),
    )
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    times = scene.seconds(lag.times_ms)
    if lag.others:
        band: dict[str, Any] = {
            "x": times,
            "low": lag.low,
            "high": lag.high,
        }
        plot.varea(
            x="x",
            y1="low",
            y2="high",
            source=ColumnDataSource(band, name=scene.named("lag_band")),
            fill_color=FAINT,
            fill_alpha=0.3,
        )
    clients = scene.history.ledger.clients
    curves = [
        *(
            (clients[owner], scene.paint[owner].colour, lags)
            for owner, lags in zip(lag.owners, lag.lags, strict=True)
        ),
        ("nobody", GAP, lag.nobody),
    ]
    for who, colour, lags in curves:
        source = ColumnDataSource(
            {"x": times, "y": lags, "who": [who] * times.size}, name=scene.named(f"lags_of_{who}")
        )
        line = plot.line(
            x="x",
            y="y",
            source=source,
            line_color=colour,
            line_width=1.8,
            name=f"lag of {who}",
        )
        plot.add_tools(hover(line, "<b>@who</b><br>lag @y{0,0}<br>at @x{0,0.000} s"))
    rule_off(plot, scene)
    name_time(plot, scene)
    return plot
