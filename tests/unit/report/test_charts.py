"""Content of a sweep's page, as values."""

from typing import Any

from coopgroup.report.charts import Setting, Spread, charts_of, heats_of

AXIS = "scheduled_rebalance_timeout_ms"


def setting(policy: str, timeout_ms: int | None, cost: float, **more: Any) -> Setting:  # noqa: ANN401 - any part
    plain: dict[str, Any] = {
        "parameters": {"scenario": "s", "policy": policy, AXIS: timeout_ms, "size": 1},
        "seeds": 3,
        "failed": 0,
        "violations": 0,
        "spreads": {
            "unavailable_partition_s": Spread(median=cost, low=cost - 1, high=cost + 1),
            "converge_ms": Spread(median=1_000 * cost, low=0, high=2_000 * cost),
        },
    }
    return Setting(**{**plain, **more})


SETTINGS = (
    setting("simple", None, 5),
    setting("deferred", 0, 6),
    setting("deferred", 30_000, 8),
    setting("deferred", 2_500, 7),
)


def test_chart_has_a_curve_for_each_policy() -> None:
    chart = charts_of(SETTINGS, "s_")[0]
    assert chart.name == f"s_{AXIS}_unavailable_partition_s"
    assert chart.ticks == ("0 s", "2.5 s", "30 s")
    assert [(one.label, one.is_level) for one in chart.curves] == [
        ("simple", True),
        ("deferred", False),
    ]
    assert [one.x for one in chart.curves] == [(0,), (0, 1, 2)]
    assert [one.y for one in chart.curves] == [(5,), (6, 7, 8)]
    assert [one.low for one in chart.curves] == [(4,), (5, 6, 7)]
    assert [one.high for one in chart.curves] == [(6,), (7, 8, 9)]


def test_heat_map_repeats_what_does_not_depend_on_the_axis() -> None:
    heat = heats_of(SETTINGS, "")[0]
    assert heat.rows == ("simple", "deferred")
    assert heat.columns == ("0 s", "2.5 s", "30 s")
    assert heat.cells == (
        *((place, 0, 5, "5") for place in range(3)),
        (0, 1, 6, "6"),
        (1, 1, 7, "7"),
        (2, 1, 8, "8"),
    )


def test_settings_without_numbers_that_vary_have_no_charts() -> None:
    assert not charts_of(SETTINGS[:2], "")
    assert not heats_of(SETTINGS[:2], "")
