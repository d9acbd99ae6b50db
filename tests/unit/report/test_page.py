"""The templates of pages, and the values that they get."""

from pathlib import Path
from typing import Any

from coopgroup.report.history.rounds import RoundRow
from coopgroup.report.measures import Cell, ComparisonRow
from coopgroup.report.page import (
    Figures,
    Objection,
    legend_of,
    templates,
    write_page,
)
from coopgroup.report.palette import paints

EVIL = "</script><script>alert('x')</script>&"
SAFE = "&lt;/script&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;"


def part(name: str, *values: Any, **named: Any) -> str:  # noqa: ANN401 - whatever the part takes
    """Return a part of a page as its template writes it."""
    return str(getattr(templates().get_template("parts.html").module, name)(*values, **named))


def legend(names: list[str], *, buttons: bool) -> str:
    return part("legend", legend_of(names, paints(len(names))), buttons=buttons)


def test_what_comes_from_records_is_escaped(tmp_path: Path) -> None:
    row = RoundRow(at_ms=5, generation=1, leader=EVIL, sentences=(EVIL,))
    cell = Cell(median=1, low=1, high=1, text=EVIL, span=EVIL)
    write_page(tmp_path / "page.html", "base.html", Figures(), title=EVIL, under=EVIL)
    pieces = [
        (tmp_path / "page.html").read_text(),
        part("cards", [(EVIL, EVIL)]),
        part("notes", [EVIL]),
        legend([EVIL], buttons=True),
        legend([EVIL], buttons=False),
        part("objections", [Objection(source=EVIL, at_ms=0, message=EVIL)]),
        part("rounds", [row], 0),
        part("comparison", [EVIL], [ComparisonRow(label=EVIL, cells=(cell,))]),
    ]
    assert [piece.count(SAFE) for piece in pieces] == [3, 2, 1, 1, 1, 2, 3, 4]
    assert [piece for piece in pieces if EVIL in piece] == []


def test_comparison_marks_the_lowest_only_where_policies_differ() -> None:
    def cell(median: float) -> Cell:
        return Cell(median=median, low=median, high=8, text=f"{median}", span="s")

    rows = [
        ComparisonRow(label="x", cells=(cell(4), cell(2), None)),
        ComparisonRow(label="y", cells=(cell(4), cell(4), None)),
        ComparisonRow(label="z", cells=(None, None, None)),
    ]
    text = part("comparison", ["a", "b", "c"], rows)
    assert text.count("best") == 1
    assert '<td class="bar best">2<span class="range"><b style="width: 25.0%"></b>' in text
    assert '<u style="left: 25.0%; width: 75.0%"></u>' in text
    assert text.count('<td class="bar">never</td>') == 5
