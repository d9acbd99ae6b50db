"""Times to stop and restore: per resource, by the rule that names it."""

import random

from coopgroup.core.model import ResourceSet
from coopgroup.simulator.scenario import Cost, Span
from coopgroup.simulator.world.costs import Costs

ALL = ResourceSet({"T": range(20)})
HEAVY = ResourceSet({"T": [3]})


def test_costs_when_fixed_are_one_group_each() -> None:
    costs = Costs(
        random.Random(1),
        (
            Cost(stop_ms=Span(5, 5), commit_ms=Span(2, 2)),
            Cost(resources=HEAVY, stop_ms=Span(900, 900), restore_ms=Span(40, 40)),
        ),
    )
    assert costs.to_stop(ALL) == [(7, ALL - HEAVY), (900, HEAVY)]
    assert costs.to_restore(ALL) == [(0, ALL - HEAVY), (40, HEAVY)]


def test_costs_when_drawn_are_each_resource_s_own() -> None:
    costs = Costs(random.Random(1), (Cost(stop_ms=Span(10, 50)),))
    groups = costs.to_stop(ALL)
    assert len(groups) > 1
    assert all(10 <= time_ms <= 50 for time_ms, _ in groups)
    assert ResourceSet.union_all(part for _, part in groups) == ALL
    assert sum(len(part) for _, part in groups) == len(ALL)


def test_costs_when_some_are_slow_take_long_for_those_only() -> None:
    costs = Costs(random.Random(1), slow=0.3, slow_ms=Span(1_000, 1_000))
    (fast_ms, fast), (slow_ms, slow) = costs.to_stop(ALL)
    assert (fast_ms, slow_ms) == (0, 1_000)
    assert 0 < len(slow) < len(fast)
    assert costs.to_restore(ALL) == [(0, ALL)]


def test_process_that_returns_pays_less_until_another_has_worked() -> None:
    costs = Costs(random.Random(1), (Cost(restore_ms=Span(90, 90), return_ms=Span(5, 5)),))
    assert costs.to_restore(ALL, "a") == [(90, ALL)]  # nobody has worked on it
    costs.note_work(ALL, "a")
    assert costs.to_restore(ALL, "a") == [(5, ALL)]
    assert costs.to_restore(ALL, "b") == [(90, ALL)]
    costs.note_work(HEAVY, "b")
    assert costs.to_restore(ALL, "a") == [(5, ALL - HEAVY), (90, HEAVY)]
    assert costs.to_restore(ALL, "a", is_warm=True) == [(0, ALL)]
