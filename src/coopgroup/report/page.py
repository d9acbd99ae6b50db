"""The HTML around the figures: one file that needs no other file and no network.

Text in, text out. Values from records are escaped here. Bokeh's script and the figures come from
`drawing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Final

from attrs import frozen

from coopgroup.report.measures import Cell, ComparisonRow
from coopgroup.report.palette import DOUBLE, GAP, PLAIN, UNKNOWN, Paint, ranks
from coopgroup.report.rounds import RoundRow
from coopgroup.report.wording import counted, seconds

__all__ = [
    "Objection",
    "cards",
    "comparison_table",
    "html_page",
    "legend",
    "notes_section",
    "objections_section",
    "rounds_section",
    "section",
    "tools",
]

_CHIPS_MAX: Final = 40
_OBJECTIONS_MAX: Final = 50
_COLUMNS: Final = ("granted", "revoked", "lost", "unreleased")
_STRIPES: Final = {  # CSS that resembles Bokeh's patterns, for the legend
    "/": "repeating-linear-gradient(-45deg, {0} 0 3px, #fff 3px 4.5px)",
    "\\": "repeating-linear-gradient(45deg, {0} 0 3px, #fff 3px 4.5px)",
    "-": "repeating-linear-gradient(0deg, {0} 0 3px, #fff 3px 4.5px)",
    "|": "repeating-linear-gradient(90deg, {0} 0 3px, #fff 3px 4.5px)",
}
_DOTTED: Final = "radial-gradient(#fff 28%, {0} 32%) 0 0 / 5px 5px"


@frozen(kw_only=True)
class Objection:
    """A violation shown on the page.

    Attributes:
        source: a checker, the leader, or the page itself.
        at_ms: time in ms since the start.
        message: the violation.
    """

    source: str
    at_ms: int
    message: str


def html_page(title: str, under: str, sections: Iterable[str], scripts: Iterable[str]) -> str:
    """Return the whole page.

    Args:
        title: heading.
        under: the line below the heading.
        sections: HTML, from top to bottom.
        scripts: HTML of `<script>` elements: Bokeh and the figures.
    """
    own = resources.files("coopgroup.report")
    style, behaviour = (own.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',  # otherwise a browser would request an icon
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head><body><main>",
            f'<h1>{escape(title)}</h1><p class="under">{escape(under)}</p>',
            *sections,
            "</main>",
            *scripts,
            f"<script>{behaviour}</script>",
            "</body></html>",
            "",
        )
    )


def section(heading: str, hint: str, *inner: str, ident: str = "", kind: str = "") -> str:
    """Return a part of the page with a heading and a hint for reading it."""
    attributes = (f' id="{ident}"' if ident else "") + (f' class="{kind}"' if kind else "")
    below = f'<p class="hint">{escape(hint)}</p>' if hint else ""
    return f"<section{attributes}><h2>{escape(heading)}</h2>{below}{''.join(inner)}</section>"


def cards(rows: Iterable[tuple[str, str]]) -> str:
    """Return the most important figures: label and text of each."""
    inner = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in rows
    )
    return f'<dl class="cards">{inner}</dl>'


def tools(*, orders: bool) -> str:
    """Return the buttons above a timeline.

    Args:
        orders: whether the rows have a second order.
    """
    choice = (
        '<span class="group" role="group" aria-label="order of rows">rows '
        '<button data-order="by_owner" aria-pressed="true">by owner</button>'
        '<button data-order="by_name" aria-pressed="false">by name</button></span>'
    )
    return (
        f'<div class="tools">{choice if orders else ""}<span class="gap"></span>'
        "drag to move · shift + wheel to zoom · point for details "
        '<button data-whole="">whole time</button></div>'
    )


def legend(clients: Sequence[str], paint: Sequence[Paint], *, buttons: bool) -> str:
    """Return the legend: dark and pale, and a chip for each owner.

    Args:
        clients: names of the owners.
        paint: paint of each owner.
        buttons: whether a click on a chip highlights its owner.
    """
    order = sorted(range(len(clients)), key=ranks(clients).__getitem__)
    chips = [
        f'<li><span><i style="background: {colour}"></i>{words}</span></li>'
        for colour, words in ((GAP, "nobody"), (DOUBLE, "two at once"), (UNKNOWN, "not known yet"))
    ]
    for owner in order[:_CHIPS_MAX]:
        opening = f'button data-owner="{owner}" aria-pressed="false"' if buttons else "span"
        chips.append(
            f'<li><{opening}><i style="background: {_background(paint[owner])}"></i>'
            f"{escape(clients[owner])}</{opening.partition(' ')[0]}></li>"
        )
    if len(clients) > _CHIPS_MAX:
        chips.append(f"<li><span>and {len(clients) - _CHIPS_MAX:,} more</span></li>")
    return f'<ul class="legend">{"".join(chips)}</ul>'


def notes_section(notes: Sequence[str]) -> str:
    """Return notes about the records, "" without notes."""
    if not notes:
        return ""
    inner = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f'<section class="notes">{inner}</section>'


def objections_section(objections: Sequence[Objection]) -> str:
    """Return the list of violations, "" without violations."""
    if not objections:
        return ""
    ordered = sorted(objections, key=lambda one: one.at_ms)
    items = "".join(
        f"<tr><td>{_look_button(one.at_ms)}</td><td>{escape(one.source)}</td>"
        f"<td>{escape(one.message)}</td></tr>"
        for one in ordered[:_OBJECTIONS_MAX]
    )
    rest = len(objections) - _OBJECTIONS_MAX
    more = f'<p class="small">and {rest:,} more</p>' if rest > 0 else ""
    heading = counted(len(objections), "violation")
    table = (
        f'<div class="scroll low"><table id="violations"><tbody>{items}</tbody></table></div>{more}'
    )
    return section(heading, "", table, kind="bad")


def rounds_section(rounds: Sequence[RoundRow], begin_ms: int) -> str:
    """Return the table of rounds."""
    if not rounds:
        return section(
            "Rounds", "No leader wrote down a round: these are records of other members."
        )
    head = "".join(
        f'<th scope="col"{kind}>{label}</th>'
        for label, kind in (
            ("at", ""),
            ("round", ' class="number"'),
            ("led by", ""),
            ("members", ' class="number"'),
            *((name, ' class="number"') for name in _COLUMNS),
            ("time-out", ' class="number"'),
            ("what the leader decided, and why", ""),
        )
    )
    body = "".join(_round(row, begin_ms) for row in rounds)
    search = (
        '<div class="tools"><input id="search" type="search" placeholder="only rounds with …"'
        ' aria-label="only rounds with these words"></div>'
    )
    return section(
        "Rounds",
        "Lost: owner gone, kept for its return. Unreleased: somebody else has to stop first. "
        "Time-out: the leader looks again at latest then. A click on a time shows that time.",
        search,
        f'<div class="scroll"><table id="rounds"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>",
    )


def comparison_table(policies: Sequence[str], rows: Iterable[ComparisonRow]) -> str:
    """Return median and range of each measure, with a column for each policy."""
    head = "".join(f'<th scope="col">{escape(policy)}</th>' for policy in policies)
    body = "".join(_compared(row) for row in rows)
    return (
        f'<table id="measures"><thead><tr><th scope="col">measure</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _background(paint: Paint) -> str:
    pattern = _STRIPES.get(paint.pattern, _DOTTED) if paint.pattern != PLAIN else "{0}"
    return pattern.format(paint.colour)


def _look_button(at_ms: int) -> str:
    return f'<button data-at="{at_ms / 1000}">{escape(seconds(at_ms))}</button>'


def _round(row: RoundRow, begin_ms: int) -> str:
    counts = (row.granted, row.revoked, row.held_back, row.waiting)
    cells = "".join(
        f'<td class="number{"" if count else " zero"}">{count:,}</td>' for count in counts
    )
    timeout = seconds(row.timeout_ms) if row.timeout_ms else "none"
    refused = ' class="refused"' if row.refused else ""
    return (
        f"<tr{refused}>"
        f"<td>{_look_button(row.at_ms - begin_ms)}</td>"
        f'<td class="number">{row.generation}</td>'
        f'<td class="who" title="{escape(row.leader)}">{escape(row.leader)}</td>'
        f'<td class="number">{row.members:,}</td>{cells}'
        f'<td class="number{"" if row.timeout_ms else " zero"}">{timeout}</td>'
        f'<td class="why">{escape(" ".join(row.sentences))}</td></tr>'
    )


def _compared(row: ComparisonRow) -> str:
    known = [cell for cell in row.cells if cell is not None]
    highest = max((cell.high for cell in known), default=0)
    lowest = min((cell.median for cell in known), default=0)
    differ = any(cell.median != lowest for cell in known)
    cells = "".join(
        '<td class="bar">never</td>'
        if cell is None
        else f'<td class="bar{" best" if differ and cell.median == lowest else ""}">'
        f"{escape(cell.text)}{_range(cell, highest)}</td>"
        for cell in row.cells
    )
    return f'<tr><th scope="row">{escape(row.label)}</th>{cells}</tr>'


def _range(cell: Cell, highest: float) -> str:
    """Return a bar for the median and a line for the range, relative to the highest value."""
    whole = highest or 1
    median, low, high = (100 * one / whole for one in (cell.median, cell.low, cell.high))
    line = f'<u style="left: {low:.1f}%; width: {high - low:.1f}%"></u>' if cell.span else ""
    return (
        f'<span class="range"><b style="width: {median:.1f}%"></b>{line}</span>'
        f'<span class="small">{escape(cell.span)}</span>'
    )
