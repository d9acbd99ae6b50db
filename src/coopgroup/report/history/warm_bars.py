"""Turn warm-ups and standbys into bars to draw: resources as rows, time as columns.

Pure functions; nothing is drawn here. A row has as many lanes as clients prepared one resource at
the same time. With one lane, neighbouring rows with the same client and the same times become one
bar, as in `timeline`. If there are too many bars, times are rounded to a step, and short bars keep
a length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.core.model.resource_set import Resource
from coopgroup.telemetry import Ledger, WarmEnd, WarmSpan

Int64Array: TypeAlias = npt.NDArray[np.int64]

_BARS_MAX: Final = 5_000
_STEPS_OF_SPAN: Final = (2_000, 1_000, 500)


@frozen(kw_only=True)
class WarmBar:
    """A row that a client prepared, or neighbouring rows that it prepared at the same times.

    Attributes:
        lane: place of the client within each row, from 0.
        owner: number of the client.
        warm_ms: when the state was complete; None if it never was.
    """

    first_row: int
    last_row: int
    lane: int
    owner: int
    begin_ms: int
    warm_ms: int | None
    end_ms: int
    end: WarmEnd


def lanes_of(spans: Iterable[WarmSpan]) -> dict[WarmSpan, int]:
    """Return a lane for each span, so that spans of one resource never overlap in a lane."""
    free_ms: dict[Resource, list[int]] = defaultdict(list)
    lanes: dict[WarmSpan, int] = {}
    for span in sorted(spans, key=lambda one: (one.begin_ms, one.client, one.resource)):
        ends = free_ms[span.resource]
        lane = next((place for place, end in enumerate(ends) if end <= span.begin_ms), len(ends))
        ends[lane : lane + 1] = [span.end_ms]
        lanes[span] = lane
    return lanes


def warm_bars(
    spans: Sequence[WarmSpan],
    ledger: Ledger,
    order: Int64Array,
    *,
    bars_max: int = _BARS_MAX,
) -> tuple[WarmBar, ...]:
    """Return the bars of all rows.

    Args:
        spans: the spans; those of resources without a row are left out.
        ledger: names the clients and the resources.
        order: int64 (R,): number of the resource in each row.
        bars_max: above this number, times are rounded.
    """
    rows = np.empty_like(order)
    rows[order] = np.arange(order.size)
    row_of = dict(zip(ledger.resources, rows.tolist(), strict=True))
    number_of = {name: number for number, name in enumerate(ledger.clients)}
    shown = {
        span: lane
        for span, lane in lanes_of(spans).items()
        if span.resource in row_of and span.client in number_of
    }
    span_ms = ledger.until_ms - ledger.begin_ms
    bars: tuple[WarmBar, ...] = ()
    for step_ms in (1, *(max(1, span_ms // parts) for parts in _STEPS_OF_SPAN)):
        bars = _bars(shown, row_of, number_of, step_ms)
        if len(bars) <= bars_max:
            break
    return bars


def _bars(
    lanes: dict[WarmSpan, int],
    row_of: dict[Resource, int],
    number_of: dict[str, int],
    step_ms: int,
) -> tuple[WarmBar, ...]:
    rows_of: dict[tuple[int, int, int, int | None, int, WarmEnd], list[int]] = defaultdict(list)
    for span, lane in lanes.items():
        begin_ms = span.begin_ms // step_ms * step_ms
        warm_ms = None if span.warm_ms is None else span.warm_ms // step_ms * step_ms
        end_ms = -(-span.end_ms // step_ms) * step_ms
        same = (lane, number_of[span.client], begin_ms, warm_ms, end_ms, span.end)
        rows_of[same].append(row_of[span.resource])
    # A bar over several rows would cover their other lanes.
    is_joined = max(lanes.values(), default=0) == 0
    return tuple(
        WarmBar(
            first_row=first,
            last_row=last,
            lane=lane,
            owner=owner,
            begin_ms=begin_ms,
            warm_ms=warm_ms,
            end_ms=end_ms,
            end=end,
        )
        for (lane, owner, begin_ms, warm_ms, end_ms, end), rows in rows_of.items()
        for first, last in _runs(sorted(rows), is_joined=is_joined)
    )


def _runs(rows: Sequence[int], *, is_joined: bool) -> list[tuple[int, int]]:
    """Return first and last of each run of neighbours, or of each row if they are not joined."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if is_joined and runs and row == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], row
        else:
            runs.append((row, row))
    return runs
