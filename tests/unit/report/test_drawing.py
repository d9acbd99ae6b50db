"""Every number that a page draws, compared with the measures of the run."""

import itertools
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from bokeh.models import ColumnDataSource

from coopgroup.core.model import ResourceSet
from coopgroup.report.drawing import Drawing, draw_history
from coopgroup.report.history import facts_of, history_of
from coopgroup.report.history.lag_lines import lag_lines
from coopgroup.report.palette import paints
from coopgroup.simulator import Run, simulate
from coopgroup.simulator.scenario import (
    Choice,
    Close,
    Cost,
    Crash,
    Group,
    MemberSet,
    Scale,
    Scenario,
    Span,
    Topic,
)
from coopgroup.telemetry import AssignmentReceived
from tests.unit.report.histories import Story

Array = npt.NDArray[np.float64]

PARTITIONS = 12
SCENARIO = Scenario(
    duration_ms=120_000,
    settle_ms=60_000,
    group=Group(session_timeout_ms=6_000, rebalance_timeout_ms=30_000),
    topics=(Topic(name="t", partitions=PARTITIONS, rate_per_s=(5.0,) * PARTITIONS),),
    members=(MemberSet(name="m", count=3, topics=("t",), capacity_per_s=200.0),),
    costs=(Cost(stop_ms=Span(10, 90), restore_ms=Span(300, 900)),),
    events=(
        Crash(at_ms=30_000, member="m-1", back_after_ms=4_000),
        Close(at_ms=60_000, member="m-2", back_after_ms=9_000),
        Scale(at_ms=90_000, members="m", to=5),
    ),
)
POLICIES = (
    Choice(name="eager"),
    Choice(name="simple"),
    Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 20_000}),
    Choice(name="incremental", options={"warmup": {"timeout_ms": 60_000, "standbys": 1}}),
)


def sources_of(drawing: Drawing) -> dict[str, Any]:
    return {
        source.name: source.data
        for figure in drawing.figures
        for source in figure.select({"type": ColumnDataSource})
        if isinstance(source, ColumnDataSource) and source.name
    }


class Drawn:
    """The data of all figures of a run, from its begin of the window to its end, in seconds."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.history = history_of(run.telemetry, run.lag, settled_ms=run.begin_ms)
        self.lag = lag_lines(self.history.ledger, run.lag)
        paint = paints(len(self.history.ledger.clients))
        self.drawing = draw_history(self.history, paint, self.lag)
        self.from_s = (run.begin_ms - self.history.ledger.begin_ms) / 1_000
        self.sources = sources_of(self.drawing)

    def figure(self, name: str) -> Any:  # noqa: ANN401 - Bokeh's types hide most properties
        (found,) = (one for one in self.drawing.figures if one.name == name)
        return found

    def bars(self, name: str) -> tuple[Array, Array, Array]:
        """Return row count, begin and end of each bar, limited to the window."""
        data = self.sources[name]
        left, right = np.asarray(data["left"]), np.asarray(data["right"])
        height = np.asarray(data["bottom"]) - np.asarray(data["top"])
        return height, np.maximum(left, self.from_s), np.maximum(right, self.from_s)


@cache
def drawn(policy: Choice) -> Drawn:
    return Drawn(simulate(SCENARIO, policy=policy, seed=3))


each_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
each_order = pytest.mark.parametrize("order", ["by_owner", "by_name"])


@each_policy
@each_order
def test_gaps_are_the_outages(policy: Choice, order: str) -> None:
    one = drawn(policy)
    measures = one.run.measures
    height, begin_s, end_s = one.bars(f"{order}_gaps")
    assert (height * (end_s - begin_s)).sum() == pytest.approx(measures.unavailable_partition_s)
    assert (end_s - begin_s).max() * 1_000 == pytest.approx(measures.worst_outage_ms)
    assert one.sources[f"{order}_doubles"]["left"].size == 0


@each_policy
@each_order
def test_bars_show_the_moves_and_the_returns(policy: Choice, order: str) -> None:
    one = drawn(policy)
    data = one.sources[f"{order}_owned"]
    rows: dict[int, list[tuple[float, float, str]]] = {}
    for top, bottom, left, right, who in zip(
        *(data[key] for key in ("top", "bottom", "left", "right", "who")), strict=True
    ):
        for row in range(round(top + 0.5), round(bottom + 0.5)):
            rows.setdefault(row, []).append((left, right, who))
    moved = returned = 0
    for bars in map(sorted, rows.values()):
        for before, after in itertools.pairwise(bars):
            if after[0] >= one.from_s:
                moved += before[2] != after[2]
                returned += before[2] == after[2]
    assert len(rows) == PARTITIONS
    assert (moved, returned) == (one.run.measures.moved, one.run.measures.returned)


def test_rows_of_warm_ups_are_the_warm_ups() -> None:
    one = drawn(POLICIES[-1])
    facts = facts_of(one.history)
    for order in ("by_owner", "by_name"):
        data = one.sources[f"{order}_restoring"]
        assert len(data["left"]) == facts.warmups
        begun = sum(left >= one.from_s for left in data["left"])
        assert begun == one.run.measures.warmups > 0
        in_window = sum(at_s >= one.from_s for at_s in one.sources[f"{order}_moved"]["x"])
        warm_moves = one.run.measures.moved - one.run.measures.moved_cold
        assert in_window >= warm_moves > 0


def test_time_in_which_a_silent_member_may_have_worked_is_hatched() -> None:
    """Real consumers: the second one is killed at 20 s, and the round at 30 s shows it."""
    story, both = Story(), ResourceSet({"orders": [0, 1]})
    story.lead(0, ["a", "b"], granted=both)
    for number, name in enumerate(("a", "b")):
        received = AssignmentReceived(leader=name == "a", session_timeout_ms=8_000)
        story.write(100, name, received)
        story.work(200, name, ResourceSet({"orders": [number]}))
    story.lead(30_000, ["a"], lost=ResourceSet({"orders": [1]}))
    history = history_of(story.envelopes)
    data = sources_of(draw_history(history, paints(2), None))["by_name_unsure"]
    assert (data["left"].tolist(), data["right"].tolist()) == ([22.0], [30.0])
    assert (data["who"], data["pattern"]) == (["perhaps b"], ["/"])
    assert "by_name_unsure" not in drawn(POLICIES[0]).sources
