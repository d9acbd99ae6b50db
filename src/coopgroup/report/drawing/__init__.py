"""The Bokeh figures of a page. Only this package imports Bokeh.

The rest of `report` works without the extra. All figures of a page share one time axis in seconds
since the start, so they zoom and pan together. Models that the page's script looks up have a
`name`.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from bokeh.embed import components
from bokeh.models import Range1d
from bokeh.plotting import figure
from bokeh.resources import Resources

from coopgroup.report.drawing.axes import Scene, time_axis
from coopgroup.report.drawing.curves import lag_figure, unowned_figure
from coopgroup.report.drawing.rows import rows_figure
from coopgroup.report.drawing.strip import strip_figure
from coopgroup.report.history import History
from coopgroup.report.lag_lines import LagLines
from coopgroup.report.palette import Paint
from coopgroup.report.timeline import Timeline, timeline_of

__all__ = ["Drawing", "draw_history", "draw_small", "library", "script_and_divs", "time_axis"]

_SMALL_BARS_MAX = 5_000


@frozen(kw_only=True)
class Drawing:
    """Figures of one history, from top to bottom.

    Attributes:
        figures: the figures.
        timelines: content of the timeline in each order of its rows.
    """

    figures: tuple[figure, ...]
    timelines: tuple[Timeline, ...]


def library() -> str:
    """Return Bokeh's script for embedding; the page needs no other script file."""
    return Resources(mode="inline", components=["bokeh"]).render()


def script_and_divs(figures: Sequence[figure]) -> tuple[str, tuple[str, ...]]:
    """Return the script that draws the figures, and the elements that contain them."""
    script, divs = components(tuple(figures))
    return script, tuple(divs)


def draw_history(history: History, paint: Sequence[Paint], lag: LagLines | None) -> Drawing:
    """Draw one history at full size.

    Args:
        history: the history.
        paint: paint of each client.
        lag: lines of lag, or None.
    """
    scene = Scene.of(history, paint, time_axis([history]))
    timelines = tuple(
        timeline_of(history.ownership, history.known_ms, by_owner=by_owner)
        for by_owner in (True, False)
    )
    figures = [
        strip_figure(scene),
        rows_figure(scene, timelines),
        unowned_figure(scene),
    ]
    if lag is not None:
        figures.append(lag_figure(scene, lag))
    return Drawing(figures=tuple(figures), timelines=timelines)


def draw_small(
    history: History, paint: Sequence[Paint], time: Range1d, *, prefix: str, gaps_max: int
) -> Drawing:
    """Draw one history beside others.

    Args:
        history: the history.
        paint: paint of each client.
        time: time axis that all histories share.
        prefix: prefix of its models' names.
        gaps_max: upper end of the axis of unowned partitions, the same for all histories.
    """
    scene = Scene.of(history, paint, time, prefix)
    timeline = timeline_of(
        history.ownership, history.known_ms, by_owner=True, bars_max=_SMALL_BARS_MAX
    )
    figures = (
        rows_figure(scene, (timeline,), height=240),
        unowned_figure(scene, counts_max=gaps_max),
    )
    return Drawing(figures=figures, timelines=(timeline,))
