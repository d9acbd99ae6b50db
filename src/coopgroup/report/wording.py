"""Times, counts and resources as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from coopgroup.model import ResourceSet

__all__ = ["counted", "listed", "seconds"]

_RANGES_MAX: Final = 12


def seconds(duration_ms: float) -> str:
    """A duration in seconds, to the ms and no more digits than it has: "12.5 s"."""
    return f"{duration_ms / 1000:,.3f}".rstrip("0").rstrip(".") + " s"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 round", "1,000 rounds"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(resources: ResourceSet, ranges_max: int = _RANGES_MAX) -> str:
    """Resources in short: "orders 0-3, 7; payments 1"; a connector is "itself" beside its tasks.

    Args:
        resources: what to name.
        ranges_max: how many ranges to write out; how many resources follow is said in their place.
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
    """First and last of each run of consecutive indices; a connector itself is no task's."""
    breaks = np.flatnonzero((np.diff(indices) != 1) | (indices[:-1] < 0)) + 1
    for run in np.split(indices, breaks):
        yield int(run[0]), int(run[-1])


def _range(low: int, high: int) -> str:
    if low < 0:
        return "itself"
    return str(low) if low == high else f"{low}-{high}"
