"""Content of an advice page."""

from coopgroup.pipeline.advice.view import view_of
from tests.unit.pipeline.advices import made_advice
from tests.unit.pipeline.return_times import history


def test_price_of_a_move_has_a_chart_where_the_choice_tips() -> None:
    """Without the price of moves simple costs 20, and waiting 30; simple has three more moves."""
    view = view_of(made_advice())
    assert view.price == (
        "Fewest partition-seconds out of service: simple if a move costs less than 3.3 s; "
        "deferred, waits 30 s above."
    )
    chart = view.charts[0]
    assert chart.name == "price_of_move"
    assert [curve.label for curve in chart.curves] == ["deferred, waits 30 s", "simple"]
    assert [(mark.x, mark.label) for mark in chart.marks] == [(20.0, "played")]
    assert [curve.y[0] for curve in chart.curves] == [30, 20]


def test_too_little_history_shows_figures_of_an_episode_without_intervals() -> None:
    few = made_advice(history=history([12_000] * 3))
    view = view_of(few)
    assert view.lead == "Not enough history (3 of 20 episodes)."
    assert [row.role for row in view.rows] == ["", "", "today", ""]
    assert view.rows[0].cells[0] == "40"
    assert view.columns[0] == "partition-seconds out of service an episode"
    charts = {one.name: one for one in view.charts}
    assert charts["unavailable_over_timeout"].curves[0].low == ()
    assert [mark.label for mark in charts["moves_over_timeout"].marks] == ["today"]
    assert view.snippet == ""


def test_page_tells_the_end_of_the_history() -> None:
    view = view_of(made_advice(history=history([12_000] * 30, as_of_ms=1_795_731_860_000)))
    assert view.under.endswith("30 episodes · as of 2026-11-26 22:24 UTC")


def test_group_to_which_nobody_came_back_has_no_such_chart() -> None:
    view = view_of(made_advice(history=history([None] * 30)))
    assert [chart.name for chart in view.charts] == [
        "price_of_move",
        "unavailable_over_timeout",
        "moves_over_timeout",
    ]
