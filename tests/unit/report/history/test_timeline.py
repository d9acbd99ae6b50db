"""Bars, gaps and double owners, compared with the state in every millisecond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.core.model import NOBODY
from coopgroup.report.history.timeline import Bars, timeline_of, unowned_counts
from tests.support.ledgers import Interval, ledger_of

END_MS = 30


def workers(intervals: list[Interval], resource: int, at_ms: int) -> set[int]:
    return {
        owner for one, owner, begin, end in intervals if one == resource and begin <= at_ms < end
    }


def covered(bars: Bars, order: list[int]) -> set[tuple[int, int, int]]:
    columns = (bars.first_row, bars.last_row, bars.owner, bars.start_ms, bars.end_ms)
    return {
        (order[row], owner, at_ms)
        for first, last, owner, start, end in zip(*map(np.ndarray.tolist, columns), strict=True)
        for row in range(first, last + 1)
        for at_ms in range(start, end)
    }


@st.composite
def lives(draw: st.DrawFn) -> list[Interval]:
    """Draw intervals that do not overlap for the same owner and resource."""
    drawn = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 28), st.integers(1, 12)),
            max_size=12,
        )
    )
    kept: list[Interval] = []
    for resource, owner, begin, length in drawn:
        end = min(END_MS, begin + length)
        if all((resource, owner) != one[:2] or end <= one[2] or one[3] <= begin for one in kept):
            kept.append((resource, owner, begin, end))
    return kept


@given(intervals=lives())
def test_doubles_are_where_two_work_at_once(intervals: list[Interval]) -> None:
    doubles = ledger_of(intervals, until_ms=END_MS).doubles
    spans = doubles.spans
    found = set()
    for resource, owner, other, start, end in zip(
        spans.resource.tolist(),
        spans.owner.tolist(),
        doubles.other.tolist(),
        spans.start_ms.tolist(),
        spans.end_ms.tolist(),
        strict=True,
    ):
        for at_ms in range(start, end):
            assert owner != other
            assert {owner, other} <= workers(intervals, resource, at_ms)
            found.add((resource, at_ms))
    assert found == {
        (resource, at_ms)
        for resource in range(3)
        for at_ms in range(END_MS)
        if len(workers(intervals, resource, at_ms)) > 1
    }


@pytest.mark.parametrize("by_owner", [True, False])
@given(intervals=lives())
def test_timeline_when_exact_covers_what_happened(
    by_owner: bool, intervals: list[Interval]
) -> None:
    drawn = timeline_of(ledger_of(intervals, until_ms=END_MS), by_owner=by_owner)
    order = drawn.order.tolist()
    assert sorted(order) == [0, 1, 2]
    assert drawn.step_ms == 1
    everywhere = [(resource, at_ms) for resource in range(3) for at_ms in range(END_MS)]
    assert covered(drawn.owned, order) == {
        (resource, owner, at_ms)
        for resource, at_ms in everywhere
        for owner in workers(intervals, resource, at_ms)
    }
    assert covered(drawn.gaps, order) == {
        (resource, NOBODY, at_ms)
        for resource, at_ms in everywhere
        if not workers(intervals, resource, at_ms)
    }


@given(intervals=lives())
def test_unowned_counts_are_right_in_each_ms(intervals: list[Interval]) -> None:
    gaps = ledger_of(intervals, until_ms=END_MS).gaps
    steps = unowned_counts(gaps, 0, END_MS)
    places = np.searchsorted(steps.times_ms, np.arange(END_MS), side="right") - 1
    assert steps.counts[places].tolist() == [
        sum(not workers(intervals, resource, at_ms) for resource in range(3))
        for at_ms in range(END_MS)
    ]


def test_timeline_when_bars_are_too_many_snaps_times_and_loses_no_gap() -> None:
    """Partitions that start some milliseconds apart are joined, but a gap of 1 ms stays."""
    count, until_ms = 1_000, 1_000_000
    held = [(number, 0, number % 400, until_ms) for number in range(1, count)]
    held += [(0, 0, 0, 500_000), (0, 0, 500_001, until_ms)]
    who = ledger_of(held, resources=count, until_ms=until_ms)
    exact = timeline_of(who, by_owner=True)
    snapped = timeline_of(who, by_owner=True, bars_max=100)
    assert exact.bars > 700
    assert snapped.bars <= 100
    assert snapped.step_ms > 1
    late = snapped.gaps.start_ms > 1_000
    assert snapped.gaps.start_ms[late] <= 500_000
    assert snapped.gaps.end_ms[late] >= 500_001
    assert snapped.gaps.end_ms.max() <= until_ms


def test_unowned_counts_when_there_are_too_many_are_exact_in_quiet_times() -> None:
    """The highest count of a busy second lasted until the next change, minutes later."""
    count, until_ms = 200, 1_000_000
    busy = [  # each partition pauses 20 times in the first ten seconds
        (number, 0, 500 * turn + number, 500 * (turn + 1) + number - 37)
        for number in range(count)
        for turn in range(20)
    ]
    quiet = [(number, 0, 10_000 + number, 900_000) for number in range(count)]
    gaps = ledger_of([*busy, *quiet], resources=count, until_ms=until_ms).gaps
    steps = unowned_counts(gaps, 0, until_ms)
    assert steps.times_ms.size < 2 * gaps.start_ms.size  # they were too many
    for at_ms, unowned in ((10_300, 0), (500_000, 0), (899_999, 0), (950_000, count)):
        place = np.searchsorted(steps.times_ms, at_ms, side="right") - 1
        assert steps.counts[place] == unowned, at_ms


@pytest.mark.parametrize(
    ("held", "highest"),
    [
        ([(0, 0, 1, 30), (1, 0, 2, 30), (2, 0, 3, 20)], 1),  # all at the begin, one at the end
        ([(0, 0, 1, 30), (1, 0, 2, 30), (2, 0, 3, 30)], 3),  # none after the begin
        ([(0, 0, 1, 30), (1, 0, 2, 30)], 3),  # the third was never worked on
        ([(0, 0, 0, 30), (1, 0, 0, 9), (2, 0, 0, 9)], 2),  # the begin had none
    ],
)
def test_highest_count_leaves_the_begin_out(held: list[Interval], highest: int) -> None:
    gaps = ledger_of(held, until_ms=END_MS).gaps
    counts = unowned_counts(gaps, 0, END_MS)
    assert counts.highest_from(counts.settled_ms) == highest
