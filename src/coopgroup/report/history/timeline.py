"""Turn a `Ledger` into bars to draw: resources as rows, time as columns.

Pure functions on arrays; nothing is drawn here.

Theory of operation: a resource is a row. Intervals of neighbouring rows with the same owner and the
same times become one bar, so the number of bars grows with events and not with partitions. In owner
order, rows with the same history are neighbours, and a thousand rows can become a dozen bars. If
there are still too many bars, times are snapped to ever coarser steps until the bars are few
enough. Gaps and double owners are snapped outwards, so that all of them stay visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from coopgroup.report.palette import ranks
from coopgroup.telemetry import Ledger, Spans

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

BARS_MAX: Final = 20_000
"""Above this number of bars a timeline rounds times: a canvas draws this many in 0.1 s."""
# the first steps are finer than the pixels of a screen
_STEPS_OF_SPAN: Final = (8_000, 4_000, 2_000, 1_000, 500)
_POINTS_MAX: Final = 4_000
_ROWS_BY_NAME_MAX: Final = 80
_NEXT_TO_NOTHING: Final = 0.05  # share of the highest count
_WORTH: Final = 1.2  # a coarser step must reduce the bars by this factor


@frozen(eq=False, kw_only=True)
class Bars:
    """Rectangles of rows and time; all arrays int64, shape (B,).

    Attributes:
        owner: number of the client; `NOBODY` in a gap.
    """

    first_row: Int64Array
    last_row: Int64Array
    owner: Int64Array
    start_ms: Int64Array
    end_ms: Int64Array


@frozen(eq=False, kw_only=True)
class Timeline:
    """The bars in one order of the rows.

    Attributes:
        order: int64, shape (R,): number of the resource in each row.
        unsure: gaps in which a silent client may have worked.
        step_ms: precision of the times in ms; 1 is exact.
    """

    order: Int64Array
    owned: Bars
    gaps: Bars
    doubles: Bars
    unsure: Bars
    step_ms: int

    @property
    def bars(self) -> int:
        """Return the number of bars."""
        layers = self.owned, self.gaps, self.doubles, self.unsure
        return sum(layer.owner.size for layer in layers)


@frozen(eq=False, kw_only=True)
class Counts:
    """A count that changes in steps; both arrays int64, shape (P,).

    Attributes:
        times_ms: begin of each step.
        counts: value until the next step.
    """

    times_ms: Int64Array
    counts: Int64Array

    @property
    def settled_ms(self) -> int:
        """Return when the count first fell to nearly zero; the begin if it never did."""
        highest = int(self.counts.max(initial=0))
        begun = np.flatnonzero(self.counts <= highest * _NEXT_TO_NOTHING)
        fallen = begun[begun > np.argmax(self.counts > 0)]
        return int(self.times_ms[fallen[0] if fallen.size else 0])

    def highest_from(self, from_ms: int) -> int:
        """Return the highest count from a time on; the highest of all if that is zero."""
        place = max(0, int(np.searchsorted(self.times_ms, from_ms, side="right")) - 1)
        return int(self.counts[place:].max(initial=0)) or int(self.counts.max(initial=0))


def unowned_counts(gaps: Spans, begin_ms: int, end_ms: int) -> Counts:
    """Return the number of unowned resources over time.

    If the count changes too often to draw, the changes within a short interval become one step with
    their highest count. The step ends with the last of these changes. Between two such steps the
    count is exact.
    """
    moments = np.concatenate([[begin_ms], gaps.start_ms, gaps.end_ms, [end_ms]]).astype(np.int64)
    size = gaps.start_ms.size
    changes = np.concatenate([[0], np.ones(size), -np.ones(size), [0]]).astype(np.int64)
    times_ms, position = np.unique(moments, return_inverse=True)
    counts = np.cumsum(np.bincount(position, weights=changes, minlength=times_ms.size))
    counts = counts.astype(np.int64)
    if times_ms.size > _POINTS_MAX:
        bins = (times_ms - begin_ms) * (_POINTS_MAX // 2) // (end_ms - begin_ms + 1)
        firsts = np.flatnonzero(np.diff(bins, prepend=-1))
        lasts = np.append(firsts[1:], bins.size) - 1
        highest = np.maximum.reduceat(counts, firsts)
        # Without a point at the last change, the highest count would last until the next interval
        # with a change, however far away.
        places = np.concatenate([firsts, lasts])
        shown = np.concatenate([highest, counts[lasts]])
        places, kept = np.unique(places, return_index=True)
        times_ms, counts = times_ms[places], shown[kept]
    return Counts(times_ms=times_ms, counts=counts)


def name_order(ledger: Ledger) -> Int64Array:
    """Return the rows by name and index: int64, shape (R,), number of the resource in each row."""
    return np.arange(len(ledger.resources), dtype=np.int64)


def owner_order(ledger: Ledger, step_ms: int = 1) -> Int64Array:
    """Return the rows by history: rows with the same sequence of owners are neighbours.

    Groups are sorted by their first owner. A small group of rows is sorted by name. In a large
    group rows with the same times are neighbours, so that they become one bar.

    Returns:
        int64, shape (R,): number of the resource in each row.
    """
    spans = ledger.work
    rank = ranks(ledger.clients)
    paths: list[list[int]] = [[] for _ in ledger.resources]
    moments: list[list[int]] = [[] for _ in ledger.resources]
    for resource, owner, start_ms, end_ms in zip(
        spans.resource.tolist(),
        spans.owner.tolist(),
        (spans.start_ms // step_ms).tolist(),
        (spans.end_ms // step_ms).tolist(),
        strict=True,
    ):
        paths[resource].append(rank[owner])
        moments[resource] += (start_ms, end_ms)
    if len(paths) <= _ROWS_BY_NAME_MAX:
        moments = [[] for _ in paths]
    order = sorted(
        range(len(paths)), key=lambda number: (not paths[number], paths[number], moments[number])
    )
    return np.array(order, dtype=np.int64)


def timeline_of(
    ledger: Ledger,
    *,
    by_owner: bool,
    bars_max: int = BARS_MAX,
) -> Timeline:
    """Return the bars of all rows, few enough to draw."""
    layers = (
        ledger.work,
        ledger.gaps,
        ledger.doubles.spans,
        ledger.unsure,
    )
    span_ms = ledger.until_ms - ledger.begin_ms
    tried: list[Timeline] = []
    for step_ms in sorted({1, *(max(1, span_ms // parts) for parts in _STEPS_OF_SPAN)}):
        tried.append(_timeline(ledger, layers, step_ms, by_owner=by_owner))
        if tried[-1].bars <= bars_max:
            return tried[-1]
    # If rows have nothing in common, snapping loses precision and gains little.
    return next(one for one in tried if one.bars <= tried[-1].bars * _WORTH)


def _timeline(ledger: Ledger, layers: Sequence[Spans], step_ms: int, *, by_owner: bool) -> Timeline:
    order = owner_order(ledger, step_ms) if by_owner else name_order(ledger)
    rows = np.empty_like(order)
    rows[order] = np.arange(order.size)
    owned, gaps, doubles, unsure = layers
    limits_ms = ledger.begin_ms, ledger.until_ms
    return Timeline(
        order=order,
        owned=_bars(_snapped(owned, limits_ms, step_ms), rows),
        gaps=_bars(_widened(gaps, limits_ms, step_ms), rows),
        doubles=_bars(_widened(doubles, limits_ms, step_ms), rows),
        unsure=_bars(_widened(unsure, limits_ms, step_ms), rows),
        step_ms=step_ms,
    )


def _snapped(spans: Spans, limits_ms: tuple[int, int], step_ms: int) -> Spans:
    """Snap both ends to the nearest step; intervals without length are invisible and dropped."""
    if step_ms == 1:
        return spans
    half_ms = step_ms // 2
    snapped = _moved(spans, limits_ms, lambda at_ms: (at_ms + half_ms) // step_ms * step_ms)
    return snapped.take(snapped.end_ms > snapped.start_ms)


def _widened(spans: Spans, limits_ms: tuple[int, int], step_ms: int) -> Spans:
    """Snap both ends outwards to a step, so that every interval keeps a length."""
    widened = _moved(spans, limits_ms, lambda at_ms: at_ms // step_ms * step_ms)
    outwards = _moved(spans, limits_ms, lambda at_ms: -(-at_ms // step_ms) * step_ms)
    return evolve(widened, end_ms=outwards.end_ms)


def _moved(
    spans: Spans, limits_ms: tuple[int, int], moved: Callable[[Int64Array], Int64Array]
) -> Spans:
    """Map both ends by a function of the time since the begin, within the limits."""
    begin_ms, until_ms = limits_ms
    return evolve(
        spans,
        start_ms=np.minimum(moved(spans.start_ms - begin_ms) + begin_ms, until_ms),
        end_ms=np.minimum(moved(spans.end_ms - begin_ms) + begin_ms, until_ms),
    )


def _bars(spans: Spans, rows: Int64Array) -> Bars:
    """Join the intervals of neighbouring rows with the same owner and times."""
    row = rows[spans.resource]
    order = np.lexsort((row, spans.end_ms, spans.start_ms, spans.owner))
    spans, row = spans.take(order), row[order]
    fresh = np.ones(row.size, dtype=np.bool_)
    fresh[1:] = (
        (np.diff(row) != 1)
        | (np.diff(spans.owner) != 0)
        | (np.diff(spans.start_ms) != 0)
        | (np.diff(spans.end_ms) != 0)
    )
    firsts = np.flatnonzero(fresh)
    lasts = np.flatnonzero(np.roll(fresh, -1))
    return Bars(
        first_row=row[firsts],
        last_row=row[lasts],
        owner=spans.owner[firsts],
        start_ms=spans.start_ms[firsts],
        end_ms=spans.end_ms[firsts],
    )
