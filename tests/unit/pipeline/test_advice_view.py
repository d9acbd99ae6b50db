"""Content of an advice page."""

import pytest

from coopgroup.pipeline.advice_view import tried_rows, view_of
from tests.unit.pipeline.advices import made_advice
from tests.unit.pipeline.return_times import history


def test_settings_stand_cheapest_first_with_their_roles() -> None:
    rows = tried_rows(made_advice())
    assert [row.role for row in rows] == ["advised", "", "today", ""]
    assert rows[0].words == "deferred:scheduled_rebalance_timeout_ms=30000"
    assert rows[0].cells[0] == "40.0 (36.0 to 44.0)"


def test_too_little_history_shows_figures_of_an_episode_without_intervals() -> None:
    few = made_advice(evidence=3)
    view = view_of(few)
    assert [row.role for row in view.rows] == ["", "", "today", ""]
    assert view.rows[0].cells[0] == "40.0"
    assert view.columns[0] == "partition-seconds out of service an episode"
    assert view.charts[0].curves[0].low == ()
    assert [mark.label for mark in view.charts[0].marks] == ["today"]
    assert view.snippet == ""


def test_charts_mark_what_is_advised_and_what_is_today() -> None:
    chart = view_of(made_advice()).charts[0]
    assert chart.ticks == ("0 s", "5 s", "30 s", "300 s")
    assert list(chart.curves[0].y) == [90, 80, 40, 200]
    assert [(mark.x, mark.label) for mark in chart.marks] == [(2, "advised"), (0, "today")]


def test_chart_of_returns_rises_to_the_part_that_came_back() -> None:
    (curve,) = view_of(made_advice()).charts[2].curves
    assert curve.x[-1] == 12
    assert curve.y[-1] == pytest.approx(100 * 29 / 30)


def test_group_to_which_nobody_came_back_has_no_such_chart() -> None:
    view = view_of(made_advice(history=history([None] * 30)))
    assert [chart.name for chart in view.charts] == [
        "unavailable_over_timeout",
        "moves_over_timeout",
    ]


def test_cards_show_what_was_observed_beside_what_was_replayed() -> None:
    cards = dict(view_of(made_advice()).cards)
    assert cards["out of service a day, today"] == "90.0 s"
    assert cards["out of service a day, as observed"] == "95.0 s"
    assert cards["moves a day, as observed"] == "12.0"
