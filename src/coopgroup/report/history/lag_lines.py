"""Lag over time as lines: per member, and of unowned partitions.

A thousand members are not drawn as a thousand lines. Members with the highest peaks get lines, and
the others are a band from the lowest to the highest lag. A point is the highest lag of an interval,
so peaks stay visible.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.telemetry import Ledger

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]

_LINES_MAX: Final = 20
_POINTS_MAX: Final = 600


@frozen(eq=False, kw_only=True)
class LagLines:
    """Lag in records, sampled over time.

    A lag is NaN where that of a partition is unknown, and lines have gaps there.

    Attributes:
        times_ms: int64, shape (P,).
        nobody: shape (P,): lag of unowned partitions.
        owners: numbers of the L clients with the highest peaks.
        lags: shape (L, P): lag of each of these clients.
        others: number of clients in the band.
        low: shape (P,): lowest known lag in the band; zero without a band.
        high: shape (P,): highest known lag in the band.
    """

    times_ms: Int64Array
    nobody: Float64Array
    owners: tuple[int, ...]
    lags: Float64Array
    others: int
    low: Float64Array
    high: Float64Array


def lag_lines(
    ledger: Ledger,
    lag: LagHistory,
    *,
    lines_max: int = _LINES_MAX,
    points_max: int = _POINTS_MAX,
) -> LagLines:
    """Attribute each sample's lag to the client that works on the resource at that time."""
    by_client = _lag_by_client(ledger, lag)
    times_ms, by_client = _thinned(lag.times_ms, by_client, points_max)
    nobody, members = by_client[-1], by_client[:-1]
    peaks = np.fmax.reduce(members, axis=1, initial=0)  # the greatest known lags
    ranked = np.argsort(-peaks, kind="stable")
    shown, rest = ranked[:lines_max], ranked[lines_max:]
    none = np.zeros(times_ms.size)
    return LagLines(
        times_ms=times_ms,
        nobody=nobody,
        owners=tuple(shown.tolist()),
        lags=members[shown],
        others=int(rest.size),
        low=np.fmin.reduce(members[rest], axis=0) if rest.size else none,
        high=np.fmax.reduce(members[rest], axis=0) if rest.size else none,
    )


def _lag_by_client(ledger: Ledger, lag: LagHistory) -> Float64Array:
    """Return the lag of each client, and last of unowned partitions: shape (C + 1, S)."""
    count = len(ledger.clients)
    samples = lag.times_ms.size
    held_by = np.full((len(lag.resources), samples), NOBODY, dtype=np.int64)
    spans = ledger.work
    rows = lag.resources.positions(ledger.resources)[spans.resource]
    begins = np.searchsorted(lag.times_ms, spans.start_ms, side="left")
    ends = np.searchsorted(lag.times_ms, spans.end_ms, side="left")
    # the last sample is taken exactly at the end
    ends[spans.end_ms == ledger.until_ms] = samples
    for row, owner, begin, end in zip(
        rows.tolist(), spans.owner.tolist(), begins.tolist(), ends.tolist(), strict=True
    ):
        if row >= 0:
            held_by[row, begin:end] = owner
    held_by[held_by == NOBODY] = count
    cells = held_by + np.arange(samples) * (count + 1)
    sums = np.bincount(cells.ravel(), weights=lag.lags.T.ravel(), minlength=samples * (count + 1))
    return sums.astype(np.float64).reshape(samples, count + 1).T


def _thinned(
    times_ms: Int64Array, lags: Float64Array, points_max: int
) -> tuple[Int64Array, Float64Array]:
    if times_ms.size <= points_max:
        return times_ms, lags
    starts = np.arange(points_max) * times_ms.size // points_max
    return times_ms[starts], np.fmax.reduceat(lags, starts, axis=1)
