"""HTML around the figures."""

from coopgroup.report.measures import Cell, ComparisonRow
from coopgroup.report.page import (
    Objection,
    cards,
    comparison_table,
    html_page,
    legend,
    objections_section,
    rounds_section,
)
from coopgroup.report.palette import paints
from coopgroup.report.rounds import RoundRow

EVIL = "</script><script>alert('x')</script>&"
SAFE = "&lt;/script&gt;&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;"


def test_what_comes_from_records_is_escaped() -> None:
    row = RoundRow(at_ms=5, generation=1, leader=EVIL, sentences=(EVIL,))
    cell = Cell(median=1, low=1, high=1, text=EVIL, span=EVIL)
    pieces = [
        html_page(EVIL, EVIL, [], []),
        cards([(EVIL, EVIL)]),
        legend([EVIL], paints(1), buttons=True),
        legend([EVIL], paints(1), buttons=False),
        objections_section([Objection(source=EVIL, at_ms=0, message=EVIL)]),
        rounds_section([row], 0),
        comparison_table([EVIL], [ComparisonRow(label=EVIL, cells=(cell,))]),
    ]
    assert [piece.count(SAFE) for piece in pieces] == [3, 2, 1, 1, 2, 3, 4]
    assert [piece for piece in pieces if EVIL in piece] == []


def test_objections_stand_in_order_of_time_and_the_rest_is_counted() -> None:
    many = [Objection(source="c", at_ms=at_ms, message=f"m{at_ms}") for at_ms in range(60, 0, -1)]
    text = objections_section(many)
    assert "<h2>60 violations</h2>" in text
    assert text.count("<tr>") == 50
    assert text.index(">m1<") < text.index(">m2<") < text.index("and 10 more")
    assert objections_section([]) == ""


def test_legend_is_in_the_order_of_people_and_ends_somewhere() -> None:
    names = [f"c-{number}" for number in range(45, 0, -1)]
    text = legend(names, paints(45), buttons=True)
    assert text.index('data-owner="44"') < text.index('data-owner="43"') < text.index("and 5 more")
    assert text.count("<button") == 40


def test_rounds_are_timed_from_the_begin() -> None:
    row = RoundRow(at_ms=1_730_000_012_500, generation=3, leader="a", refused=True)
    text = rounds_section([row], 1_730_000_000_000)
    assert '<button data-at="12.5">12.5 s</button>' in text
    assert '<tr class="refused">' in text


def test_rounds_that_nobody_wrote_down_are_no_empty_table() -> None:
    """Files of members that never led are useful, too."""
    text = rounds_section([], 0)
    assert "<table" not in text
    assert "No leader wrote down a round" in text


def test_comparison_marks_the_lowest_only_where_policies_differ() -> None:
    """A policy has no bar if its runs have no value."""

    def cell(median: float) -> Cell:
        return Cell(median=median, low=median, high=8, text=f"{median}", span="s")

    rows = [
        ComparisonRow(label="x", cells=(cell(4), cell(2), None)),
        ComparisonRow(label="y", cells=(cell(4), cell(4), None)),
    ]
    text = comparison_table(["a", "b", "c"], rows)
    assert text.count("best") == 1
    assert '<td class="bar best">2<span class="range"><b style="width: 25.0%"></b>' in text
    assert '<u style="left: 25.0%; width: 75.0%"></u>' in text
    assert text.count('<td class="bar">never</td>') == 2
