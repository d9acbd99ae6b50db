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
from coopgroup.report.drawing.warm_rows import warm_figure
from coopgroup.report.history import History
from coopgroup.report.history.lag_lines import LagLines
from coopgroup.report.history.timeline import Timeline, timeline_of
from coopgroup.report.page import Figures
from coopgroup.report.palette import Paint

__all__ = ["Drawing", "draw_history", "draw_small", "embedded", "time_axis"]

_SMALL_BARS_MAX = 5_000
_SMALL_WARM_PIXELS = 170


@frozen(kw_only=True)
class Drawing:
    """Figures of one history, from top to bottom.

    Attributes:
        figures: those of owners; then that of warm-ups, if there are any; then that of lag, if it
            is known.
        timelines: content of the timeline in each order of its rows.
    """

    figures: tuple[figure, ...]
    timelines: tuple[Timeline, ...]


def embedded(figures: Sequence[figure]) -> Figures:
    """Return figures as markup; the page needs no other script file."""
    if not figures:
        return Figures()
    script, divs = components(tuple(figures))
    library = Resources(mode="inline", components=["bokeh"]).render()
    return Figures(divs=tuple(divs), scripts=(library, script))


def draw_history(history: History, paint: Sequence[Paint], lag: LagLines | None) -> Drawing:
    """Draw one history at full size."""
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
    if history.warm_spans:
        figures.append(warm_figure(scene, timelines))
    if lag is not None:
        figures.append(lag_figure(scene, lag))
    return Drawing(figures=tuple(figures), timelines=timelines)


def draw_small(
    history: History, paint: Sequence[Paint], time: Range1d, *, prefix: str, gaps_max: int
) -> Drawing:
    """Draw one history beside others."""
    scene = Scene.of(history, paint, time, prefix)
    timeline = timeline_of(
        history.ownership, history.known_ms, by_owner=True, bars_max=_SMALL_BARS_MAX
    )
    figures = [
        rows_figure(scene, (timeline,), height=240),
        unowned_figure(scene, counts_max=gaps_max),
    ]
    if history.warm_spans:
        figures.append(warm_figure(scene, (timeline,), height=_SMALL_WARM_PIXELS))
    return Drawing(figures=tuple(figures), timelines=(timeline,))
