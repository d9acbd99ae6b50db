"""The page of an advice: the advised setting, reasons, other settings, a snippet to paste."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from coopgroup.report.charts import Chart
from coopgroup.report.page import write_page
from coopgroup.report.writing import require_bokeh


@frozen(kw_only=True)
class TriedRow:
    """A tried setting, as the table shows it.

    Attributes:
        words: the setting, or several settings with equal figures.
        role: "advised", "today", both, or "".
        place: number of the setting; of several, the advised one or today's.
    """

    words: str
    cells: tuple[str, ...]
    role: str
    place: int


@frozen(kw_only=True)
class AdviceView:
    """An advice in texts and charts, for the terminal, the page and JSON.

    Attributes:
        lead: the advice in a sentence.
        figures: what the figures of the rows are.
        rows: the settings that matter.
        more: all other settings, which the page folds.
        price: at which price of a move the choice tips; "" if nothing depends on it.
    """

    title: str
    lead: str
    figures: str
    under: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    cards: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[TriedRow, ...]
    more: tuple[TriedRow, ...]
    price: str
    charts: tuple[Chart, ...]
    snippet: str


def write_advice_page(view: AdviceView, path: str | Path) -> None:
    """Write the page of an advice.

    Raises:
        ConfigurationError: the file cannot be written.
        MissingExtraError: Bokeh is not installed.
    """
    require_bokeh()
    from coopgroup.report import drawing  # noqa: PLC0415 - Bokeh comes with an extra
    from coopgroup.report.drawing.charts import chart_figure  # noqa: PLC0415 - likewise

    figures = drawing.embedded([chart_figure(one) for one in view.charts])
    write_page(
        path,
        "advice.html",
        figures,
        title=view.title,
        lead=view.lead,
        under=view.under,
        view=view,
        divs=figures.divs,
    )
