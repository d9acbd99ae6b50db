"""The page that compares policies, in a browser."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.report import write_comparison_page
from coopgroup.report.palette import COLOURS, GAP
from tests.browser.chromium import Page
from tests.unit.report.histories import rolling_bounce

LOAD_S = 3  # of processor time, for a thousand partitions and four policies
POLICIES = ("eager", "simple", "deferred", "incremental")


@frozen(kw_only=True)
class Measured:
    moved: int


def run(policy: str, seed: int, partitions: int, members: int) -> Any:  # noqa: ANN401 - any run
    return SimpleNamespace(
        scenario=SimpleNamespace(
            name="rolling_bounce", description="", move_ms=400.0, returns_pay=True
        ),
        policy=policy,
        assignor="sticky",
        seed=seed,
        telemetry=rolling_bounce(partitions, members),
        violations=(),
        lag=LagHistory(
            times_ms=np.zeros(0, dtype=np.int64),
            lags=np.zeros((0, partitions), dtype=np.int64),
            resources=ResourceSet({"orders": range(partitions)}),
        ),
        measures=Measured(moved=seed * len(policy)),
        begin_ms=10_000,
    )


@pytest.mark.parametrize(
    ("partitions", "members"), [(12, 4), pytest.param(1_000, 20, marks=pytest.mark.verify)]
)
def test_policies_stand_side_by_side(
    page: Page, tmp_path: Path, partitions: int, members: int
) -> None:
    """Each has its own bars and all share one time axis; few partitions or many."""
    path = tmp_path / "page.html"
    write_comparison_page(
        {
            policy: [run(policy, seed, partitions, members) for seed in (1, 2)]
            for policy in POLICIES
        },
        path,
    )
    page.open(path)
    assert page.cpu_s() < LOAD_S
    assert page.complaints() == []
    assert page.requests() == []
    second = 3 * partitions // members // 2  # a row of the second member
    for policy in POLICIES:
        assert page.is_near(f"{policy}_ownership", 15, second, COLOURS[1])
        assert page.is_near(f"{policy}_ownership", 20, second, GAP)
    tip = page.point_at("deferred_ownership", 15, second)
    assert tip.startswith("c-2 orders 1, 5, 9" if partitions == 12 else "c-2 orders")
    axes = (
        "return new Set(Array.from(Bokeh.index.roots).filter((one) => one.frame)"
        ".map((one) => one.frame.x_range.id)).size"
    )
    assert page.run(axes) == 1
    cells = "return document.querySelectorAll('#measures td.bar').length"
    assert page.run(cells) == len(POLICIES)


@frozen(kw_only=True)
class Priced(Measured):
    unavailable_partition_s: float
    moved_cold: int
    returned: int = 0
    warmups: int = 0
    converge_ms: int = 0


def test_verdict_comes_first_and_its_lines_cross(page: Page, tmp_path: Path) -> None:
    simple, deferred = run("simple", 1, 12, 4), run("deferred", 1, 12, 4)
    simple.measures = Priced(moved=10, moved_cold=10, unavailable_partition_s=24.0)
    deferred.measures = Priced(moved=0, moved_cold=0, unavailable_partition_s=80.0)
    path = tmp_path / "page.html"
    write_comparison_page({"simple": [simple], "deferred": [deferred]}, path)
    page.open(path)
    text = "return document.querySelector(arguments[0]).textContent"
    lead = "Simple: 24 partition-seconds out of service, 10 moves. Deferred: 80 and 0."
    assert page.run(text, ".lead") == lead
    assert "simple if a move costs less than 6 s; deferred above" in page.run(text, "#verdict")
    assert page.column("verdict_0", "y")[0] == 20.0
    try:
        page.resize(380)
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        page.wait_for(lambda: page.run(wide) <= 0, "no overflow")
    finally:
        page.resize(0)
    assert page.complaints() == []
