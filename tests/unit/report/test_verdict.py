"""Which policy for which price of a move."""

from typing import Any

import pytest
from attrs import evolve, frozen

from coopgroup.report.verdict import Reach, Verdict, verdict_of


@frozen(kw_only=True)
class Measured:
    unavailable_partition_s: float
    moved: int
    moved_cold: int
    returned: int = 0
    warmups: int = 0
    converge_ms: int | None = 1_000


def cold(unavailable_s: float, moved: int, **more: Any) -> Measured:  # noqa: ANN401 - any measure
    return Measured(unavailable_partition_s=unavailable_s, moved=moved, moved_cold=moved, **more)


def judged(played_s: float = 0, *, returns_pay: bool = True, **costs: Measured) -> Verdict:
    verdict = verdict_of(
        {policy: [cost] for policy, cost in costs.items()},
        1_000 * played_s,
        returns_pay=returns_pay,
    )
    assert verdict is not None
    return verdict


def test_balance_tips_where_the_lines_cross() -> None:
    found = judged(simple=cold(4_810, 400), deferred=cold(8_067, 0))
    tips_s = (8_067 - 4_810) / 400
    assert [(one.policies, one.to_s) for one in found.reaches] == [
        (("simple",), pytest.approx(tips_s)),
        (("deferred",), None),
    ]
    assert found.reaches[1].from_s == found.reaches[0].to_s
    assert found.sentences[0] == (
        "Fewest partition-seconds out of service: simple if a move costs less than 8.1 s; deferred "
        "above."
    )
    assert found.sentences[1].endswith("a move costs 0 s, so the choice is simple.")


def test_warm_moves_cost_nothing_and_their_restores_are_named() -> None:
    warm = Measured(unavailable_partition_s=5, moved=24, moved_cold=0, warmups=24)
    found = judged(30, simple=cold(722, 24), warm=warm)
    assert found.summary.endswith("Warm: 5 and 24 with 24 warm-ups.")
    assert found.reaches[-1].policies == ("warm",)
    assert found.sentences[-1] == "Its price: 24 restores beside the owners."


def test_eager_and_groups_that_never_converge_are_no_choice() -> None:
    never = evolve(cold(1, 0), converge_ms=None)
    found = judged(eager=cold(0, 0), simple=cold(100, 5), deferred=never)
    assert found.reaches == (Reach(policies=("simple",), from_s=0.0, to_s=None),)
    assert found.sentences[-1] == "Left out, because a run did not converge: deferred."
    assert judged(eager=cold(0, 0), simple=never).sentences[:1] == (
        "No policy that consumers can use converged in every run.",
    )


def test_seeds_that_overlap_are_said() -> None:
    found = verdict_of(
        {
            "simple": [cold(90, 5), cold(100, 5), cold(110, 5)],
            "deferred": [cold(105, 0), cold(120, 0), cold(130, 0)],
        },
        0,
    )
    assert found is not None
    assert found.sentences[-1] == (
        "The seeds of deferred overlap with it: the difference may be chance."
    )


def test_chart_has_a_line_for_each_policy_that_can_be_chosen() -> None:
    chart = judged(5, eager=cold(0, 0), simple=cold(150, 10), deferred=cold(220, 0)).chart
    assert chart is not None
    assert [one.label for one in chart.curves] == ["simple", "deferred"]
    assert (chart.curves[0].x[0], chart.curves[0].y[0]) == (0.0, 100.0)
    assert chart.curves[0].x[-1] == 18.0  # the balance tips at 12 s
    assert chart.marks[0].x == 5
    alone = judged(simple=cold(150, 10))
    assert (alone.chart, alone.sentences) == (None, ())
