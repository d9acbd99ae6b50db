"""Resource sets of a million: time of each set operation, and bytes per resource.

Goal: union, difference and intersection of a million resources in tens of milliseconds, about four
bytes per resource.
"""

from __future__ import annotations

import operator
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from coopgroup.model import ResourceSet

__all__ = ["run"]

RESOURCES: Final = 1_000_000
NAMES: Final = (1, 1_000, 100_000)
RUNS: Final = 7
OPERATIONS: Final[Mapping[str, Callable[[ResourceSet, ResourceSet], object]]] = {
    "difference_ms": operator.sub,
    "equality_ms": operator.eq,
    "intersection_ms": operator.and_,
    "union_ms": operator.or_,
}


def run(*, resources: int = RESOURCES, runs: int = RUNS) -> dict[str, Any]:
    """Measure sets of the same size, spread over few and many names.

    Args:
        resources: size of each set; two sets overlap by half.
        runs: runs of each operation; the median counts.

    Returns:
        By number of names: median time of each operation in ms, bytes per resource.
    """
    found: dict[str, Any] = {"resources": resources}
    for names in NAMES:
        one, other, bytes_per_resource = overlapping(names, resources // names)
        times = {
            name: round(median_ms(operation, one, other, runs), 2)
            for name, operation in OPERATIONS.items()
        }
        found[f"{names}_names"] = {**times, "bytes_per_resource": bytes_per_resource}
        print(f"resource_set: {names} names {found[f'{names}_names']}", flush=True)
    return found


def overlapping(names: int, size: int) -> tuple[ResourceSet, ResourceSet, float]:
    """Return two sets over the same names, `size` resources each, that overlap by half.

    Returns:
        Both sets, and the bytes that the second set takes per resource.
    """
    topics = [f"topic-{number:06d}" for number in range(names)]
    first = np.arange(size, dtype=np.int32)
    one = ResourceSet(dict.fromkeys(topics, first))
    indices_by_name = dict.fromkeys(topics, first + np.int32(size // 2))
    tracemalloc.start()
    other = ResourceSet(indices_by_name)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return one, other, round(taken / len(other), 2)


def median_ms(
    operation: Callable[[ResourceSet, ResourceSet], object],
    one: ResourceSet,
    other: ResourceSet,
    runs: int,
) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        operation(one, other)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)
