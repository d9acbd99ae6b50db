"""Parts that all figures share: scene, frame, fonts, axes and the lines of faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from attrs import frozen
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.plotting import figure

from coopgroup.report.history import History
from coopgroup.report.history.timeline_events import TimelineEvent, TimelineEventKind, clustered
from coopgroup.report.palette import Paint

INK: Final = "#2b313a"
FAINT: Final = "#7b8490"
FAULT: Final = "#c2001f"
FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
PLOT_PIXELS: Final = 1_000
"""Width of a plot in a window of normal size; labels are laid out for it."""

_GRID: Final = "#e6e9ed"
_LEFT: Final = 112  # room for labels; equal in all figures, so that their time axes are aligned
_RIGHT: Final = 18
_PADDING: Final = 0.008  # share of the time span; keeps symbols at both ends whole
_LINES_MAX: Final = 200  # more lines would hide the symbols
_LINES_BOLD_MAX: Final = 12


@frozen(kw_only=True)
class Scene:
    """The common input of all figures of a history.

    Attributes:
        time: time axis, in seconds since the start.
        faults: events of faults; events that are too close to distinguish are joined.
        prefix: prefix of model names; it differs between histories on one page.
        since: words for 0 s on the time axis.
    """

    history: History
    paint: Sequence[Paint]
    time: Range1d
    faults: tuple[TimelineEvent, ...]
    prefix: str = ""
    since: str = "the start"

    @classmethod
    def of(
        cls,
        history: History,
        paint: Sequence[Paint],
        time: Range1d,
        *,
        prefix: str = "",
        since: str = "the start",
    ) -> Scene:
        """Build the scene of a history."""
        near_ms = (history.ledger.until_ms - history.ledger.begin_ms) / PLOT_PIXELS
        faults = (
            event for event in history.timeline_events if event.kind is TimelineEventKind.FAULT
        )
        return cls(
            history=history,
            paint=paint,
            time=time,
            faults=clustered(faults, near_ms),
            prefix=prefix,
            since=since,
        )

    def named(self, name: str) -> str:
        """Return a model name of this history that is unique on the page."""
        return self.prefix + name

    @property
    def span_ms(self) -> int:
        """Length of the history in ms."""
        return self.history.ledger.until_ms - self.history.ledger.begin_ms

    def seconds(self, at_ms: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Convert times in ms to seconds since the start."""
        since_ms = np.asarray(at_ms, dtype=np.int64) - self.history.ledger.begin_ms
        return since_ms / 1000


def time_axis(histories: Sequence[History]) -> Range1d:
    """Return one time axis for all histories, from 0 s to the end of the longest, with padding."""
    lengths_ms = [one.ledger.until_ms - one.ledger.begin_ms for one in histories]
    end_s = max(1, *lengths_ms) / 1000
    low_s, high_s = -_PADDING * end_s, (1 + _PADDING) * end_s
    return Range1d(start=low_s, end=high_s, bounds=(low_s, high_s), min_interval=0.005, name="time")


def styled(**properties: Any) -> figure:  # noqa: ANN401 - whatever a figure takes
    """Return an empty figure in the page's style, without tools."""
    plot = figure(
        sizing_mode="stretch_width",
        min_border_right=_RIGHT,
        toolbar_location=None,
        tools=[],
        outline_line_color=None,
        background_fill_color=None,
        border_fill_color=None,
        **properties,
    )
    plot.grid.grid_line_color = _GRID
    for axis in plot.axis:
        axis.axis_line_color = None
        axis.minor_tick_line_color = None
        axis.major_tick_line_color = _GRID
        axis.major_label_text_font = FONT
        axis.major_label_text_font_size = "11px"
        axis.major_label_text_color = INK
        axis.axis_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "11px"
        axis.axis_label_text_color = FAINT
    return plot


def framed(scene: Scene, *, height: int, y_range: Range1d, label: str, **more: Any) -> figure:  # noqa: ANN401 - whatever a figure takes
    """Return an empty figure on the time axis of its scene."""
    plot = styled(
        height=height,
        x_range=scene.time,
        y_range=y_range,
        min_border_left=_LEFT,
        min_border_top=6,
        min_border_bottom=4,
        **more,
    )
    pan = PanTool(dimensions="width")
    # Zooming without the key would trap a reader who only scrolls through the page.
    wheel = WheelZoomTool(dimensions="width", modifiers={"shift": True})
    plot.add_tools(
        pan,
        BoxZoomTool(dimensions="width"),
        wheel,
        ResetTool(),
    )
    plot.toolbar.active_drag = pan
    plot.toolbar.active_scroll = wheel
    plot.ygrid.grid_line_color = None
    plot.yaxis.axis_label = label
    return plot


def name_time(plot: figure, scene: Scene) -> None:
    """Write below a figure what its time axis shows."""
    plot.xaxis.axis_label = f"seconds since {scene.since}"


def hover(renderer: Any, tooltips: str, **more: Any) -> HoverTool:  # noqa: ANN401 - Bokeh's own
    """Return a hover tool for one renderer, in the page's style."""
    return HoverTool(renderers=[renderer], tooltips=f'<div class="tip">{tooltips}</div>', **more)


def rule_off(plot: figure, scene: Scene, *, faults: bool = True) -> None:
    """Draw vertical lines for rounds and faults; many lines are drawn fainter."""
    rounds = scene.history.rounds
    if len(rounds) <= _LINES_MAX:
        marks: dict[str, Any] = {"x": scene.seconds([row.at_ms for row in rounds])}
        plot.vspan(
            x="x",
            source=ColumnDataSource(marks, name=f"{plot.name}_round_lines"),
            line_color=INK,
            line_alpha=faded(0.4, len(rounds)),
            line_width=1,
            line_dash=[1, 3],
        )
    if not faults or len(scene.faults) > _LINES_MAX:
        return
    lines: dict[str, Any] = {"x": scene.seconds([event.at_ms for event in scene.faults])}
    source = ColumnDataSource(lines, name=f"{plot.name}_fault_lines")
    alpha = faded(1, len(scene.faults))
    # A white edge separates the line from any owner's colour.
    plot.vspan(x="x", source=source, line_color="white", line_alpha=0.85 * alpha, line_width=3.5)
    plot.vspan(x="x", source=source, line_color=FAULT, line_alpha=alpha, line_width=1.5)


def faded(alpha: float, count: int) -> float:
    """Return the opacity of lines: `alpha` for few lines, less for many."""
    return alpha * min(1, max(0.3, _LINES_BOLD_MAX / max(count, 1)))
