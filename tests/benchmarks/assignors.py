"""CPU time and memory of the assignors at their limit: 1,000,000 partitions, 10,000 members.

Goals:

- lag-aware: below 0.25 s, and below 3 times one argsort of the same lags.
- sticky: below 0.25 s for the first assignment, a join and a leave.
- peak memory: below 50 bytes per partition in addition to the input.

Only the CPU time of the assigning thread counts, so a busy machine does not distort a figure.
`python -m tests.benchmarks.assignors --write` puts the last result into docs/assignors.md.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from coopgroup.assignors import create_assignor
from coopgroup.core.model import EMPTY, NOBODY, GroupSnapshot, MemberClaim, resolve_claims
from coopgroup.core.model.resource_set import ResourceSet
from docs.sections import DOCS
from tests.benchmarks.results import show_table

PARTITIONS: Final = 1_000_000
MEMBERS: Final = 10_000
TOPIC_PARTITIONS: Final = 1_000
GENERATION: Final = 7
RUNS: Final = 5
LOG_LAG_MEAN: Final = 8.0
LOG_LAG_DEVIATION: Final = 1.5
ASSIGNORS: Final = ("lag-aware", "sticky", "drain-time")
EVENTS: Final = {
    "full": "first assignment",
    "join": "a member joins",
    "leave": "a member leaves",
}


def run(*, partitions: int = PARTITIONS, members: int = MEMBERS) -> dict[str, Any]:
    """Measure the assignors; return `ms`, and `bytes` per partition at the peak, by case."""
    chance = np.random.default_rng(partitions)
    lags = chance.lognormal(LOG_LAG_MEAN, LOG_LAG_DEVIATION, partitions).astype(np.int64)
    limits: dict[str, Any] = {"argsort": {"ms": _median_ms(partial(np.argsort, lags))}}
    groups = {event: _drawn(event, partitions, members) for event in EVENTS}
    for assignor in ASSIGNORS:
        for event, title in EVENTS.items():
            assigned = partial(create_assignor(assignor).assign, groups[event], lags)
            limits[f"{assignor}, {title}"] = {
                "ms": _median_ms(assigned),
                "bytes": round(_peak_bytes(assigned) / partitions, 1),
            }
    print(f"assignors: {limits}", flush=True)
    return {"limits": limits}


def _drawn(event: str, partitions: int, members: int) -> GroupSnapshot:
    """Return a group at an event.

    Partitions are owned in turns (partition p by member p modulo their number). That is balanced,
    and it is not the placement of any assignor.
    """
    size = min(TOPIC_PARTITIONS, partitions)
    existing = ResourceSet(
        {f"topic-{number:05d}": range(size) for number in range(partitions // size)}
    )
    ids = [f"member-{number:05d}" for number in range(members)]
    free = resolve_claims([MemberClaim(member_id=one, topics=()) for one in ids], existing)
    takers = np.arange(members, dtype=np.int32)
    if event == "join":
        takers = takers[takers != members // 2]
    elif event == "leave":
        takers = np.append(takers, np.int32(NOBODY))
    owner = np.resize(takers, partitions)
    if event == "full":
        owner = np.full_like(owner, NOBODY)
    return resolve_claims(
        [
            MemberClaim(
                member_id=one, topics=existing.names, owned=owned or EMPTY, generation=GENERATION
            )
            for one, owned in zip(ids, free.by_member(owner), strict=True)
        ],
        existing,
    )


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
