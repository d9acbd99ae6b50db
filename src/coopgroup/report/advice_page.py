"""The page of an advice: the advised setting, reasons, other settings, a snippet to paste."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from attrs import frozen

from coopgroup.report import page
from coopgroup.report.charts import Chart
from coopgroup.report.sweep_page import write_page_file
from coopgroup.report.writing import require_bokeh

__all__ = ["AdviceView", "TriedRow", "write_advice_page"]


@frozen(kw_only=True)
class TriedRow:
    """A tried setting, as the table shows it.

    Attributes:
        words: policy and options.
        cells: texts of its figures.
        role: "advised", "today", or "".
    """

    words: str
    cells: tuple[str, ...]
    role: str


@frozen(kw_only=True)
class AdviceView:
    """The content of the page, as texts and charts.

    Attributes:
        title: heading.
        under: the line below the heading.
        headline: the advice.
        reasons: the reasons, one sentence each.
        notes: warnings, and the data behind the figures.
        cards: label and text of the most important figures.
        columns: headings of the figures of the settings.
        rows: the settings.
        charts: curves.
        snippet: configuration to paste.
    """

    title: str
    under: str
    headline: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    cards: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[TriedRow, ...]
    charts: tuple[Chart, ...]
    snippet: str


def write_advice_page(view: AdviceView, path: str | Path) -> None:
    """Write the page of an advice.

    Args:
        view: content of the page.
        path: file to write; an existing file is replaced.

    Raises:
        ConfigurationError: the file cannot be written.
        CoopgroupError: Bokeh is not installed.
    """
    require_bokeh()
    from coopgroup.report import drawing  # noqa: PLC0415 - Bokeh comes with an extra
    from coopgroup.report.drawing.charts import chart_figure  # noqa: PLC0415 - likewise

    figures = [chart_figure(one) for one in view.charts]
    script, divs = drawing.script_and_divs(figures) if figures else ("", ())
    sections = [
        page.notes_section(view.notes),
        page.section(
            view.headline,
            "",
            "".join(f"<p>{escape(one)}</p>" for one in view.reasons),
            ident="advice",
        ),
        page.cards(view.cards),
        page.section(
            "To paste",
            "Instead of the confluent_kafka.Consumer of the group.",
            f'<pre id="snippet"><code>{escape(view.snippet)}</code></pre>',
        ),
    ]
    if divs:
        cells = "".join(f"<section>{one}</section>" for one in divs)
        sections.append(
            page.section(
                "Time-outs",
                "What the history would have cost, replayed in the simulator; bands hold nine of "
                "ten resampled histories.",
                f'<div class="compare">{cells}</div>',
            )
        )
    sections.append(page.section("What was tried", "Cheapest first.", _table(view)))
    scripts = (drawing.library(), script) if figures else ()
    write_page_file(path, page.html_page(view.title, view.under, sections, scripts))


def _table(view: AdviceView) -> str:
    head = "".join(f'<th scope="col" class="number">{escape(one)}</th>' for one in view.columns)
    return (
        '<div class="scroll"><table id="tried"><thead><tr><th scope="col">setting</th>'
        f'<th scope="col"></th>{head}</tr></thead><tbody>{_rows(view.rows)}</tbody></table></div>'
    )


def _rows(rows: Sequence[TriedRow]) -> str:
    return "".join(
        f"<tr><td>{escape(row.words)}</td><td><b>{escape(row.role)}</b></td>"
        + "".join(f'<td class="number">{escape(cell)}</td>' for cell in row.cells)
        + "</tr>"
        for row in rows
    )
