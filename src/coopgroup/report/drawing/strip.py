"""The strip above the timeline: rounds, process starts and ends, and named faults."""

from __future__ import annotations

from typing import Any, Final

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, FixedTicker, Range1d
from bokeh.plotting import figure

from coopgroup.report.drawing.axes import (
    FAULT,
    FONT,
    INK,
    PLOT_PIXELS,
    Scene,
    faded,
    framed,
    hover,
    rule_off,
)
from coopgroup.report.history.timeline_events import HOVER_ONLY, TimelineEventKind, clustered, lanes
from coopgroup.report.wording import counted

_LANES_MAX: Final = 4
_LANE_PIXELS: Final = 18
_LETTER_PIXELS: Final = 6.2
_MARGIN_PIXELS: Final = 16
_LETTERS_MAX: Final = 40
_OFFSET_PIXELS: Final = 7
_SYMBOL_PIXELS: Final = 9
_BOTTOM: Final = -0.6
# rows of the strip, from the bottom; lanes of faults follow above
_ROUNDS, _PROCESSES, _FAULTS = 0, 1, 2
_LOOK: Final = {
    TimelineEventKind.STARTED: ("triangle", "#228833"),
    TimelineEventKind.ENDED: ("inverted_triangle", "#7b8490"),
}


def strip_figure(scene: Scene) -> figure:
    """Draw the strip."""
    flags = _flags(scene)
    rows = _FAULTS + 1 + max((lane for lane in flags["lane"]), default=0)
    plot = framed(
        scene,
        height=rows * _LANE_PIXELS + 12,
        y_range=Range1d(start=_BOTTOM, end=rows - 0.4),
        label="",
        name=scene.named("strip"),
    )
    plot.xaxis.visible = False
    plot.yaxis.ticker = FixedTicker(ticks=[_ROUNDS, _PROCESSES, _FAULTS])
    plot.yaxis.major_label_overrides = {
        _ROUNDS: "rounds",
        _PROCESSES: "processes",
        _FAULTS: "faults",
    }
    plot.yaxis.major_tick_line_color = None
    rule_off(plot, scene, faults=False)
    _add_flags(plot, scene, flags)
    _add_rounds(plot, scene)
    _add_processes(plot, scene)
    return plot


def _flags(scene: Scene) -> dict[str, list[Any]]:
    """Place the labels of faults right of their symbol, or left of it near the right edge."""
    pixel_ms = max(1, scene.span_ms) / PLOT_PIXELS
    end_ms = scene.history.ledger.until_ms
    labels = [_short(event.label) for event in scene.faults]
    flags: dict[str, list[Any]] = {"label": labels, "align": [], "offset": [], "lane": []}
    spans = []
    for event, label in zip(scene.faults, labels, strict=True):
        width_ms = (len(label) * _LETTER_PIXELS + _MARGIN_PIXELS) * pixel_ms
        leaves = event.at_ms + width_ms > end_ms
        flags["align"].append("right" if leaves else "left")
        flags["offset"].append(-_OFFSET_PIXELS if leaves else _OFFSET_PIXELS)
        spans.append((event.at_ms - width_ms * leaves, event.at_ms + width_ms * (not leaves)))
    chosen = lanes(spans, _LANES_MAX)
    flags["label"] = [
        "" if lane == HOVER_ONLY else label for label, lane in zip(labels, chosen, strict=True)
    ]
    # Events without a label get their own lane at the bottom. Otherwise they would cover labels.
    lowest = int(HOVER_ONLY in chosen)
    flags["lane"] = [0 if lane == HOVER_ONLY else lowest + lane for lane in chosen]
    return flags


def _add_flags(plot: figure, scene: Scene, flags: dict[str, list[Any]]) -> None:
    source = ColumnDataSource(
        {
            "x": scene.seconds([event.at_ms for event in scene.faults]),
            "y": [_FAULTS + lane for lane in flags["lane"]],
            "label": flags["label"],
            "align": flags["align"],
            "offset": flags["offset"],
            "story": [event.story for event in scene.faults],
        },
        name=scene.named("faults"),
    )
    plot.segment(
        x0="x",
        x1="x",
        y0="y",
        y1=_BOTTOM,
        source=source,
        line_color=FAULT,
        line_alpha=faded(1, len(scene.faults)),
        line_width=1.2,
    )
    dots = plot.scatter(x="x", y="y", source=source, size=8, color=FAULT, line_color="white")
    texts = plot.text(
        x="x",
        y="y",
        text="label",
        source=source,
        x_offset="offset",
        text_align="align",
        text_baseline="middle",
        text_font=value(FONT),
        text_font_size="11px",
        text_color=FAULT,
    )
    texts.glyph.update(background_fill_color="white", background_fill_alpha=0.75)
    plot.add_tools(hover(dots, "<b>@story</b><br>at @x{0,0.000} s"))


def _add_rounds(plot: figure, scene: Scene) -> None:
    rounds = scene.history.rounds
    source = ColumnDataSource(
        {
            "x": scene.seconds([row.at_ms for row in rounds]),
            "y": [_ROUNDS] * len(rounds),
            "colour": [FAULT if row.refused else INK for row in rounds],
            "title": [f"Round {row.generation}, led by {row.leader}" for row in rounds],
            "moves": [
                "refused"
                if row.refused
                else f"{row.granted:,} granted, {row.revoked:,} revoked, "
                f"{row.held_back:,} lost and waiting"
                for row in rounds
            ],
            "members": [counted(row.members, "member") for row in rounds],
        },
        name=scene.named("rounds"),
    )
    symbols = plot.scatter(
        x="x",
        y="y",
        source=source,
        marker="diamond",
        size=10,
        color="colour",
        line_color="white",
    )
    tip = "<b>@title</b><br>@moves<br>@members<br>at @x{0,0.000} s"
    plot.add_tools(hover(symbols, tip))


def _add_processes(plot: figure, scene: Scene) -> None:
    near_ms = max(1, scene.span_ms) / PLOT_PIXELS * _SYMBOL_PIXELS
    for kind, (marker, colour) in _LOOK.items():
        events = clustered(
            (event for event in scene.history.timeline_events if event.kind is kind), near_ms
        )
        source = ColumnDataSource(
            {
                "x": scene.seconds([event.at_ms for event in events]),
                "y": [_PROCESSES] * len(events),
                "story": [event.story for event in events],
            },
            name=scene.named(kind.value),
        )
        symbols = plot.scatter(
            x="x",
            y="y",
            source=source,
            marker=marker,
            size=_SYMBOL_PIXELS,
            color=colour,
            line_color="white",
        )
        plot.add_tools(hover(symbols, "<b>@story</b><br>at @x{0,0.000} s"))


def _short(label: str) -> str:
    return label if len(label) <= _LETTERS_MAX else label[: _LETTERS_MAX - 1] + "…"
