"""CPU time and memory of the assignors.

Goals:

- lag-aware with 1,000,000 partitions and 10,000 members: below 0.25 s, and below 3 times one
  argsort of the same lags.
- sticky with 1,000,000 partitions and 2,000 members: below 0.25 s for the first assignment, a join
  and a leave.
- five disjoint subscriptions with 10,000 partitions and 1,000 members: below 10 ms.
- peak memory: below 50 bytes per partition in addition to the input.

Only the CPU time of the assigning thread counts, so a busy machine does not distort a figure.
`python -m tests.benchmarks.assignors --write` puts the last limits into docs/assignors.md.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from attrs import evolve

from coopgroup.assignors import Assignor, create_assignor
from coopgroup.core.model import resolve_claims
from tests.benchmarks.drawn_groups import (
    CASES,
    Group,
    Int32Array,
    claims_of,
    draw,
    drawn_lags,
    pools_of,
    racks_by_name,
    snapshot_of,
)
from tests.benchmarks.results import DOCS, show_table

__all__ = ["calls", "misplaced", "run", "table"]

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
CASES_OF: Final[Mapping[str, Sequence[str]]] = {
    "sticky": tuple(CASES),
    "lag-aware": ("full", "join", "leave", "bounce", "buckets", "skewed"),
    "lag-aware (group)": ("full", "join", "leave", "bounce", "buckets", "skewed"),
    "drain-time": ("full", "join", "leave"),
    "range": ("full", "racks", "skewed"),
    "round-robin": ("full", "random"),
}
RUNS: Final = 5
LIMIT_PARTITIONS: Final = 1_000_000
LIMIT_MEMBERS: Final = 10_000


def run(
    *,
    sizes: Sequence[int] = SIZES,
    partitions: int = LIMIT_PARTITIONS,
    members: int = LIMIT_MEMBERS,
) -> dict[str, Any]:
    """Measure all assignors in all cases, then some of them on a very large group.

    Returns:
        `times`, by assignor, case and size: the median ms of `assign` alone, and of the whole way
        from the claims of members to a set of partitions for each. `limits`: `ms`, and `bytes` per
        partition at the peak of memory.
    """
    times: dict[str, Any] = {}
    for assignor, cases in CASES_OF.items():
        for case in cases:
            for size in sizes:
                found = _measured(draw(CASES[case], size), assignor)
                times.setdefault(assignor, {}).setdefault(case, {})[str(size)] = found
                print(f"assignors: {assignor} {case} {size} {found}", flush=True)
    lags = drawn_lags(partitions)
    limits: dict[str, Any] = {"argsort": {"ms": _median_ms(partial(np.argsort, lags))}}
    for assignor in ("lag-aware", "sticky", "drain-time"):
        for event in ("full", "join", "leave"):
            case_ = evolve(CASES[event], partitions_per_member=partitions // members)
            group = snapshot_of(draw(case_, partitions, members_max=members))
            assigned = partial(create_assignor(assignor).assign, group, lags)
            limits[f"{assignor}, {case_.title}"] = {
                "ms": _median_ms(assigned),
                "bytes": round(_peak_bytes(assigned) / partitions, 1),
            }
    print(f"assignors: {limits}", flush=True)
    return {"times": times, "limits": limits}


def _measured(group: Group, name: str) -> dict[str, float]:
    alone, whole = calls(group, name)
    return {"ms": _median_ms(alone), "with_claims_ms": _median_ms(whole)}


def calls(group: Group, name: str) -> tuple[Callable[[], Int32Array], Callable[[], Int32Array]]:
    """Return `assign` of an assignor, and the whole way from claims to sets of partitions."""
    plain, _, scope = name.rstrip(")").partition(" (")
    assignor: Assignor = create_assignor(plain, {"scope": scope} if scope else {})
    snapshot, lags = snapshot_of(group), drawn_lags(group.owner.size)
    (claims, existing), racks = claims_of(group), racks_by_name(group)

    def whole() -> Int32Array:
        resolved = resolve_claims(claims, existing, racks)
        target = assignor.assign(resolved, lags)
        assert len(resolved.by_member(target)) == len(claims)
        return target

    return lambda: assignor.assign(snapshot, lags), whole


def misplaced(group: Group, holder: Int32Array) -> int:
    """Return how many partitions have no holder, or one that does not subscribe; 0 is right."""
    wrong = 0
    for pool in pools_of(group):
        subscribes = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last element: `NOBODY`
        subscribes[pool.subscribers] = True
        wrong += int(np.count_nonzero(~subscribes[holder[pool.resources]]))
    return wrong


def _median_ms(call: Callable[[], object]) -> float:
    times_ms = []
    for _ in range(RUNS):
        began_ns = time.thread_time_ns()
        call()
        times_ms.append((time.thread_time_ns() - began_ns) / 1e6)
    return round(statistics.median(times_ms), 3)


def _peak_bytes(call: Callable[[], object]) -> int:
    """Return how much memory a call adds at its peak."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def table(found: Mapping[str, Any]) -> str:
    """Return the limits as Markdown."""
    limits = found["limits"]
    rows = [
        f"| {name} | {one['ms']:.0f} | {one['ms'] / limits['argsort']['ms']:.1f} "
        f"| {one.get('bytes', 0):.0f} |"
        for name, one in limits.items()
    ]
    return "\n".join(["|  | ms | of one argsort | bytes a partition |", "|---|--:|--:|--:|", *rows])


if __name__ == "__main__":
    show_table("assignors", table, DOCS / "assignors.md")
