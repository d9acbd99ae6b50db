"""The Bokeh figures of a page: the only package that imports Bokeh.

Everything else of `report` works without the extra of that name. All figures of a page share one
time axis in seconds since its start, so they zoom and pan as one. Models that the script of the
page looks up have a `name`.
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
    """Figures of one history, from top to bottom, and how they are drawn.

    Attributes:
        figures: the figures.
        timelines: what the timeline shows in each order of its rows.
    """

    figures: tuple[figure, ...]
    timelines: tuple[Timeline, ...]


def library() -> str:
    """Bokeh's own script, to stand in the page: all that the page needs."""
    return Resources(mode="inline", components=["bokeh"]).render()


def script_and_divs(figures: Sequence[figure]) -> tuple[str, tuple[str, ...]]:
    """The script that draws the figures, and the elements that it draws them into."""
    script, divs = components(tuple(figures))
    return script, tuple(divs)


def draw_history(history: History, paint: Sequence[Paint], lag: LagLines | None) -> Drawing:
    """Draw one history at full size.

    Args:
        history: what happened.
        paint: how each client is painted.
        lag: lines of lag, None where there are none.
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
        history: what happened.
        paint: how each client is painted.
        time: the time axis that all share.
        prefix: what names of its models begin with.
        gaps_max: upper end of the axis of unowned partitions, the same for all.
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
