"""The page of a sweep, in a browser."""

from pathlib import Path

from coopgroup.report.charts import Setting, Spread
from coopgroup.report.sweep_page import write_sweep_page
from tests.browser.chromium import Page

TIMEOUTS_MS = (0, 5_000, 30_000)


def settings() -> list[Setting]:
    """Return two scenarios: a policy over three timeouts, and one without; one run failed."""
    found = []
    for scenario in ("process_death", "rolling-bounce"):
        for policy, timeout_ms in (("simple", None), *(("deferred", one) for one in TIMEOUTS_MS)):
            cost = 10.0 if timeout_ms is None else 20.0 + timeout_ms / 1_000
            found.append(
                Setting(
                    parameters={
                        "scenario": scenario,
                        "policy": policy,
                        "scheduled_rebalance_timeout_ms": timeout_ms,
                    },
                    seeds=3,
                    failed=int(timeout_ms == 0),
                    violations=0,
                    spreads={
                        "unavailable_partition_s": Spread(median=cost, low=cost - 5, high=cost),
                        "moved": Spread(median=4, low=4, high=4),
                    },
                )
            )
    return found


def test_page_shows_curves_and_heat_maps_of_each_scenario(page: Page, tmp_path: Path) -> None:
    """Without network and without a console message."""
    path = tmp_path / "sweep.html"
    write_sweep_page("Time-outs", settings(), path)
    page.open(path)
    assert page.complaints() == []
    assert page.requests() == []
    for prefix in ("process_death_", "rolling_bounce_"):
        chart = f"{prefix}scheduled_rebalance_timeout_ms_unavailable_partition_s"
        assert page.column(f"{chart}_1", "y") == [20, 25, 50]
        assert page.column(f"{chart}_0", "y") == [10, 10]
        cells = page.column(f"{prefix}heat_unavailable_partition_s_cells", "value")
        assert cells == [10, 10, 10, 20, 25, 50]
    heat = "process_death_heat_unavailable_partition_s"
    assert page.is_near(heat, 1.6, 0.7, "#0a3a6b")  # the worst value is dark, the best is light
    assert page.is_near(heat, 0.4, -0.3, "#f4f8fb")
    tip = page.point_at(heat, 2, 1)
    assert tip == "50 deferred time-out for lost partitions: 30 s"
    assert "2 runs could not be played" in page.run("return document.body.innerText")
    assert page.run("return document.querySelectorAll('table.settings tbody tr').length") == 8
