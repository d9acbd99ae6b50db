"""Who worked on what when, as bars that can be drawn: rows by time.

Rules of this file: pure functions from an `Ownership` to arrays; no drawing.

Theory of operation: a resource is a row. Spans of neighbouring rows with the same owner and the
same times become one bar, so what is drawn grows with what happened and not with the partitions.
In owner order, rows that went the same way lie side by side, and a thousand of them may be a dozen
bars. Where that is still too many, times are snapped to a step, ever coarser, until the bars are
few enough; gaps and double owners are snapped outwards, so that none gets lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from coopgroup.report.palette import ranks
from coopgroup.telemetry.ownership import Ownership

__all__ = [
    "BARS_MAX",
    "NOBODY",
    "Bars",
    "Counts",
    "Doubles",
    "Spans",
    "Timeline",
    "doubles_of",
    "gaps_of",
    "name_order",
    "owner_order",
    "spans_of",
    "timeline_of",
    "unowned_counts",
]

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

NOBODY: Final = -1
BARS_MAX: Final = 20_000
"""Bars of a timeline, beyond which times are snapped: a canvas draws so many in 0.1 s."""
_STEPS_OF_SPAN: Final = (8_000, 4_000, 2_000, 1_000, 500)  # finer than the pixels of a screen first
_POINTS_MAX: Final = 4_000
_ROWS_BY_NAME_MAX: Final = 80
_NEXT_TO_NOTHING: Final = 0.05  # of the highest count
_WORTH: Final = 1.2  # a coarser step is worth it if it saves as many bars


@frozen(eq=False, kw_only=True)
class Spans:
    """Stretches of time of single resources; all arrays int64, shape (N,).

    Attributes:
        resource: number of the resource.
        owner: number of the client; NOBODY in a gap.
        start_ms: begin.
        end_ms: end.
    """

    resource: Int64Array
    owner: Int64Array
    start_ms: Int64Array
    end_ms: Int64Array

    def take(self, picked: npt.NDArray[np.intp] | BoolArray) -> Spans:
        """Some of the spans, by position or mask."""
        return Spans(
            resource=self.resource[picked],
            owner=self.owner[picked],
            start_ms=self.start_ms[picked],
            end_ms=self.end_ms[picked],
        )


@frozen(eq=False, kw_only=True)
class Doubles:
    """When two worked on one resource.

    Attributes:
        spans: when, and who came second.
        other: int64, shape (N,): who was there already.
    """

    spans: Spans
    other: Int64Array


@frozen(eq=False, kw_only=True)
class Bars:
    """Rectangles of rows by time; all arrays int64, shape (B,).

    Attributes:
        first_row: uppermost row.
        last_row: lowest row, included.
        owner: number of the client; NOBODY in a gap.
        start_ms: begin.
        end_ms: end.
    """

    first_row: Int64Array
    last_row: Int64Array
    owner: Int64Array
    start_ms: Int64Array
    end_ms: Int64Array


@frozen(eq=False, kw_only=True)
class Timeline:
    """What is drawn in one order of the rows.

    Attributes:
        order: int64, shape (R,): number of the resource in each row.
        owned: somebody works on it.
        gaps: nobody does.
        doubles: two do.
        step_ms: times are right to so many ms; 1 is exact.
    """

    order: Int64Array
    owned: Bars
    gaps: Bars
    doubles: Bars
    step_ms: int

    @property
    def bars(self) -> int:
        """How many bars are drawn."""
        return sum(layer.owner.size for layer in (self.owned, self.gaps, self.doubles))


@frozen(eq=False, kw_only=True)
class Counts:
    """A count that changes in steps; both arrays int64, shape (P,).

    Attributes:
        times_ms: from when.
        counts: how many, until the next time.
    """

    times_ms: Int64Array
    counts: Int64Array

    @property
    def settled_max(self) -> int:
        """Highest count once the group had begun: once the count had fallen to next to nothing.

        The highest of all where it never did, or nothing came after that.
        """
        highest = int(self.counts.max(initial=0))
        begun = np.flatnonzero(self.counts <= highest * _NEXT_TO_NOTHING)
        fallen = begun[begun > np.argmax(self.counts > 0)]
        return int(self.counts[fallen[0] :].max(initial=0)) or highest if fallen.size else highest


def spans_of(ownership: Ownership) -> Spans:
    """What was worked on, by resource and then by begin."""
    spans = Spans(
        resource=ownership.resource.astype(np.int64),
        owner=ownership.owner.astype(np.int64),
        start_ms=ownership.start_ms,
        end_ms=ownership.end_ms,
    )
    return spans.take(np.lexsort((spans.end_ms, spans.start_ms, spans.resource)))


def gaps_of(ownership: Ownership, known_ms: Int64Array) -> Spans:
    """When nobody worked on what.

    Args:
        ownership: who worked on what.
        known_ms: int64, shape (R,): when each resource was first heard of. Before that it is no
            gap that nobody has it.
    """
    spans = spans_of(ownership)
    first, last = _edges(spans.resource)
    reached = _reached(spans)
    count = len(ownership.resources)
    begins = np.full(count, ownership.until_ms, dtype=np.int64)
    begins[spans.resource[first]] = spans.start_ms[first]
    ends = np.minimum(known_ms, begins)
    ends[spans.resource[last]] = reached[last]
    without = np.ones(count, dtype=np.bool_)
    without[spans.resource] = False
    inner = ~first
    numbers = np.arange(count, dtype=np.int64)
    resource = np.concatenate([numbers[~without], spans.resource[inner], numbers])
    start_ms = np.concatenate([known_ms[~without], np.roll(reached, 1)[inner], ends])
    end_ms = np.concatenate(
        [
            begins[~without],
            spans.start_ms[inner],
            np.full(count, ownership.until_ms, dtype=np.int64),
        ]
    )
    gaps = Spans(
        resource=resource,
        owner=np.full(resource.size, NOBODY, dtype=np.int64),
        start_ms=start_ms,
        end_ms=end_ms,
    )
    gaps = gaps.take(gaps.end_ms > gaps.start_ms)
    return gaps.take(np.lexsort((gaps.start_ms, gaps.resource)))


def doubles_of(ownership: Ownership) -> Doubles:
    """When two worked on what: each span that begins before an earlier one ended."""
    spans = spans_of(ownership)
    first, _ = _edges(spans.resource)
    reached = _reached(spans)
    # Whose span reaches furthest: that of the last one that ended later than all before it.
    places = np.arange(first.size)
    further = first | (spans.end_ms > np.roll(reached, 1))
    furthest = np.maximum.accumulate(np.where(further, places, 0))
    doubles = Spans(
        resource=spans.resource,
        owner=spans.owner,
        start_ms=spans.start_ms,
        end_ms=np.minimum(spans.end_ms, np.roll(reached, 1)),
    )
    there = ~first & (doubles.end_ms > doubles.start_ms)
    return Doubles(spans=doubles.take(there), other=spans.owner[np.roll(furthest, 1)[there]])


def unowned_counts(gaps: Spans, begin_ms: int, end_ms: int) -> Counts:
    """How many resources nobody works on, from begin to end.

    Where the count changes too often to be drawn, a point stands for a stretch of time and holds
    the highest count of it.
    """
    moments = np.concatenate([[begin_ms], gaps.start_ms, gaps.end_ms, [end_ms]]).astype(np.int64)
    size = gaps.start_ms.size
    changes = np.concatenate([[0], np.ones(size), -np.ones(size), [0]]).astype(np.int64)
    times_ms, place = np.unique(moments, return_inverse=True)
    counts = np.cumsum(np.bincount(place, weights=changes, minlength=times_ms.size))
    counts = counts.astype(np.int64)
    if times_ms.size > _POINTS_MAX:
        bins = (times_ms - begin_ms) * _POINTS_MAX // (end_ms - begin_ms + 1)
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        # The count that a stretch begins with came from before it.
        carried = np.concatenate([counts[:1], counts[starts[1:] - 1]])
        counts = np.maximum(np.maximum.reduceat(counts, starts), carried)
        times_ms = times_ms[starts]
    return Counts(times_ms=times_ms, counts=counts)


def name_order(ownership: Ownership) -> Int64Array:
    """Rows by name and index: int64, shape (R,), number of the resource in each row."""
    return np.arange(len(ownership.resources), dtype=np.int64)


def owner_order(ownership: Ownership, step_ms: int = 1) -> Int64Array:
    """Rows that went from owner to owner alike side by side, by their first owner.

    Few rows stand by name within those; of many, those that also went at the same times stand
    together, so that they become one bar.

    Args:
        ownership: who worked on what.
        step_ms: times that are no further apart than this count as the same.

    Returns:
        int64, shape (R,): number of the resource in each row.
    """
    spans = spans_of(ownership)
    rank = ranks(ownership.clients)
    paths: list[list[int]] = [[] for _ in ownership.resources]
    moments: list[list[int]] = [[] for _ in ownership.resources]
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
    ownership: Ownership,
    known_ms: Int64Array,
    *,
    by_owner: bool,
    bars_max: int = BARS_MAX,
) -> Timeline:
    """Bars for every row, few enough to be drawn at once.

    Args:
        ownership: who worked on what.
        known_ms: int64, shape (R,): when each resource was first heard of.
        by_owner: rows in owner order, not by name.
        bars_max: how many bars are few enough. There may be more where no step makes them few.
    """
    layers = (
        spans_of(ownership),
        gaps_of(ownership, known_ms),
        doubles_of(ownership).spans,
    )
    span_ms = ownership.until_ms - ownership.begin_ms
    tried: list[Timeline] = []
    for step_ms in sorted({1, *(max(1, span_ms // parts) for parts in _STEPS_OF_SPAN)}):
        tried.append(_timeline(ownership, layers, step_ms, by_owner=by_owner))
        if tried[-1].bars <= bars_max:
            return tried[-1]
    # Where rows have nothing in common, snapping loses times and gains little.
    return next(one for one in tried if one.bars <= tried[-1].bars * _WORTH)


def _timeline(
    ownership: Ownership, layers: Sequence[Spans], step_ms: int, *, by_owner: bool
) -> Timeline:
    order = owner_order(ownership, step_ms) if by_owner else name_order(ownership)
    rows = np.empty_like(order)
    rows[order] = np.arange(order.size)
    owned, gaps, doubles = layers
    limits_ms = ownership.begin_ms, ownership.until_ms
    return Timeline(
        order=order,
        owned=_bars(_snapped(owned, limits_ms, step_ms), rows),
        gaps=_bars(_widened(gaps, limits_ms, step_ms), rows),
        doubles=_bars(_widened(doubles, limits_ms, step_ms), rows),
        step_ms=step_ms,
    )


def _snapped(spans: Spans, limits_ms: tuple[int, int], step_ms: int) -> Spans:
    """Both ends to the nearest step; what then has no length would not be seen anyway."""
    if step_ms == 1:
        return spans
    half_ms = step_ms // 2
    snapped = _moved(spans, limits_ms, lambda at_ms: (at_ms + half_ms) // step_ms * step_ms)
    return snapped.take(snapped.end_ms > snapped.start_ms)


def _widened(spans: Spans, limits_ms: tuple[int, int], step_ms: int) -> Spans:
    """Both ends outwards to a step, so that every span keeps a length."""
    widened = _moved(spans, limits_ms, lambda at_ms: at_ms // step_ms * step_ms)
    outwards = _moved(spans, limits_ms, lambda at_ms: -(-at_ms // step_ms) * step_ms)
    return evolve(widened, end_ms=outwards.end_ms)


def _moved(
    spans: Spans, limits_ms: tuple[int, int], moved: Callable[[Int64Array], Int64Array]
) -> Spans:
    """Both ends where a function of the time since the begin puts them, within the limits."""
    begin_ms, until_ms = limits_ms
    return evolve(
        spans,
        start_ms=np.minimum(moved(spans.start_ms - begin_ms) + begin_ms, until_ms),
        end_ms=np.minimum(moved(spans.end_ms - begin_ms) + begin_ms, until_ms),
    )


def _bars(spans: Spans, rows: Int64Array) -> Bars:
    """Join the spans of neighbouring rows that have owner and times in common."""
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


def _edges(resource: Int64Array) -> tuple[BoolArray, BoolArray]:
    """Which spans are the first and which the last of their resource."""
    first = np.ones(resource.size, dtype=np.bool_)
    np.not_equal(resource[1:], resource[:-1], out=first[1:])
    return first, np.roll(first, -1)


def _reached(spans: Spans) -> Int64Array:
    """Latest end of each span and those of its resource before it."""
    if not spans.end_ms.size:
        return spans.end_ms
    low_ms = int(spans.end_ms.min())
    stride = int(spans.end_ms.max()) - low_ms + 1  # lifts each resource above the one before it
    lifted: Int64Array = np.maximum.accumulate(spans.end_ms - low_ms + spans.resource * stride)
    return lifted - spans.resource * stride + low_ms
