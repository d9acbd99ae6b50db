"""Format times, counts and resources for readers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from coopgroup.core.model import ResourceSet

_RANGES_MAX: Final = 12


def seconds(duration_ms: float) -> str:
    """Format a duration in seconds with at most three decimals: "12.5 s"."""
    return f"{duration_ms / 1000:,.3f}".rstrip("0").rstrip(".") + " s"


def rounded(value: float) -> str:
    """Format a number with two significant digits, or three from 100 on: "0.052", "12,300"."""
    digits = 3 if abs(value) >= 99.5 else 2
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{round(value, places):,.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(count: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun: "1 round", "1,000 rounds"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(resources: ResourceSet, ranges_max: int = _RANGES_MAX) -> str:
    """Format resources briefly: "orders 0-3, 7; payments 1".

    A connector beside its tasks is "itself".
    """
    parts: list[str] = []
    ranges_left, named = ranges_max, 0
    for name, indices in resources.items():
        written = []
        for low, high in _ranges(indices):
            if not ranges_left:
                break
            ranges_left -= 1
            named += high - low + 1
            written.append(_range(low, high))
        if written:
            parts.append(f"{name} {', '.join(written)}")
    rest = len(resources) - named
    return "; ".join(parts) + (f" and {rest:,} more" if rest else "")


def _ranges(indices: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive indices; a connector (-1) is its own run."""
    breaks = np.flatnonzero((np.diff(indices) != 1) | (indices[:-1] < 0)) + 1
    for run in np.split(indices, breaks):
        yield int(run[0]), int(run[-1])


def _range(low: int, high: int) -> str:
    if low < 0:
        return "itself"
    return str(low) if low == high else f"{low}-{high}"
