"""Content of an advice page."""

from attrs import evolve

from coopgroup.pipeline.advice.choose import Estimate
from coopgroup.pipeline.advice.cost import deferred
from coopgroup.pipeline.advice.view import tried_rows, view_of
from tests.unit.pipeline.advices import made_advice, option
from tests.unit.pipeline.return_times import history


def test_settings_stand_cheapest_first_with_their_roles() -> None:
    rows, more = tried_rows(made_advice())
    assert [row.role for row in rows] == ["advised", "", "today", ""]
    assert rows[0].words == "deferred, waits 30 s"
    assert rows[0].cells == ("40 (36 to 44)", "4", "300", "6")
    assert more == ()
    sure = evolve(option(deferred(5_000), 7.0), unavailable_s=Estimate(mean=7, low=7.001, high=7))
    rows, _ = tried_rows(made_advice(options=(sure,), best=0))
    assert rows[0].cells[0] == "7"


def test_equal_settings_share_a_row_and_five_rows_are_shown() -> None:
    """Equal to the reader: their figures are written alike. Today's row is always shown."""
    costs = {0: 990.0, 5_000: 41.0, 6_000: 40.98, 7_000: 41.02, 8_000: 42.0}
    costs |= {9_000 + place: 50.0 + place for place in range(5)}
    options = [option(deferred(waits), cost) for waits, cost in costs.items()]
    # The lags of equal settings differ by chance.
    options[2] = evolve(options[2], lag_peak=Estimate(mean=312, low=300, high=320))
    rows, more = tried_rows(made_advice(options=tuple(options), best=2))
    assert [row.cells[2] for row in rows] == ["300 to 312", "300", "300", "300", "300"]
    assert [row.words for row in rows] == [
        "deferred, waits 5, 6 or 7 s",
        "deferred, waits 8 s",
        "deferred, waits 9 s",
        "deferred, waits 9.001 s",
        "simple",
    ]
    assert [row.role for row in rows] == ["advised", "", "", "", "today"]
    assert [row.words for row in more] == [f"deferred, waits 9.00{place} s" for place in (2, 3, 4)]


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


def test_group_to_which_nobody_came_back_has_no_such_chart() -> None:
    view = view_of(made_advice(history=history([None] * 30)))
    assert [chart.name for chart in view.charts] == [
        "price_of_move",
        "unavailable_over_timeout",
        "moves_over_timeout",
    ]
