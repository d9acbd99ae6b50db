"""The Bokeh figures of a page. Only this package imports Bokeh.

The rest of `report` works without the extra. All figures of a page share one time axis in seconds
since the start, so they zoom and pan together. Models that the page's script looks up have a
`name`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen
from bokeh.document import Document
from bokeh.embed import components
from bokeh.embed.util import standalone_docs_json_and_render_items
from bokeh.model import collect_models
from bokeh.models import ColumnDataSource, IndexFilter, Range1d
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.util.paths import bokehjs_path

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

__all__ = [
    "Drawing",
    "changeable",
    "draw_history",
    "draw_small",
    "embedded",
    "library_file",
    "serialized",
    "time_axis",
]

_SMALL_BARS_MAX: Final = 5_000
_SMALL_WARM_PIXELS: Final = 170


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


def library_file() -> Path:
    """Return the path of Bokeh's script, for a page that a server serves."""
    return Path(bokehjs_path()) / "js" / "bokeh.min.js"


def serialized(figures: Sequence[figure]) -> dict[str, Any]:
    """Return figures as JSON values that a page's script embeds."""
    document = Document()
    for one in figures:
        document.add_root(one)
    documents, (item,) = standalone_docs_json_and_render_items(list(figures))
    return {
        "documents": documents,
        "item": item.to_json(),
        "divs": list(item.roots.to_json().values()),
    }


def changeable(figures: Sequence[figure]) -> dict[str, dict[str, Any]]:
    """Return what differs between two drawings of the same shape: attributes by model name.

    A live page sets them in the figures that it already shows, so zoom and scroll stay.
    """
    found: dict[str, dict[str, Any]] = {}
    for model in collect_models(*figures):
        if not model.name:
            continue
        if isinstance(model, ColumnDataSource):
            columns = {name: np.asarray(column).tolist() for name, column in model.data.items()}
            found[model.name] = {"data": columns}
        elif isinstance(model, IndexFilter):
            found[model.name] = {"indices": list(model.indices or ())}
        elif isinstance(model, Range1d):
            found[model.name] = {"start": model.start, "end": model.end, "bounds": model.bounds}
        elif isinstance(model, figure) and model.tags:
            found[model.name] = {"tags": model.tags}
    return found


def draw_history(
    history: History, paint: Sequence[Paint], lag: LagLines | None, *, since: str = "the start"
) -> Drawing:
    """Draw one history at full size; `since` is the time at 0 s."""
    scene = Scene.of(history, paint, time_axis([history]), since=since)
    timelines = tuple(timeline_of(history.ledger, by_owner=by_owner) for by_owner in (True, False))
    figures = [
        strip_figure(scene),
        rows_figure(scene, timelines),
        unowned_figure(scene),
    ]
    if history.ledger.warm_spans:
        figures.append(warm_figure(scene, timelines))
    if lag is not None:
        figures.append(lag_figure(scene, lag))
    return Drawing(figures=tuple(figures), timelines=timelines)


def draw_small(
    history: History, paint: Sequence[Paint], time: Range1d, *, prefix: str, gaps_max: int
) -> Drawing:
    """Draw one history beside others."""
    scene = Scene.of(history, paint, time, prefix=prefix)
    timeline = timeline_of(history.ledger, by_owner=True, bars_max=_SMALL_BARS_MAX)
    figures = [
        rows_figure(scene, (timeline,), height=240),
        unowned_figure(scene, counts_max=gaps_max),
    ]
    if history.ledger.warm_spans:
        figures.append(warm_figure(scene, (timeline,), height=_SMALL_WARM_PIXELS))
    return Drawing(figures=tuple(figures), timelines=(timeline,))
