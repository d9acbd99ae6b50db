"""The assignors beside those of kafka-clients (Java) and franz-go.

All contestants get the same groups in the same run. Goals, in CPU time:

- lag-aware with 1,000,000 partitions and 10,000 members: below 0.25 s, and below 3 times one
  argsort of the same lags.
- sticky with 1,000,000 partitions and 2,000 members: below 0.25 s for the first assignment, a join
  and a leave, and 4 times faster than Java in the latter two.
- five disjoint subscriptions with 10,000 partitions and 1,000 members: below 10 ms.
- peak memory: below 50 bytes per partition in addition to the input.

`python -m tests.benchmarks.assignors --write` puts the last result into docs/assignors.md.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve

from coopgroup.assignors import create_assignor
from coopgroup.model import NOBODY
from tests.benchmarks.assigning.contestants import (
    KEYS,
    RUN_MS_MAX,
    RUNS,
    Contestant,
    Outcome,
    contestants,
)
from tests.benchmarks.assigning.groups import (
    CASES,
    Group,
    Int32Array,
    draw,
    drawn_lags,
    pools_of,
    snapshot_of,
    write_group,
)
from tests.benchmarks.results import DOCS, show_table

__all__ = ["misplaced", "run", "tables"]

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
SIZES_SHOWN: Final = ("10000", "100000", "1000000")
CASES_OF: Final[Mapping[str, Sequence[str]]] = {
    "sticky": tuple(CASES),
    "lag-aware": ("full", "join", "leave", "bounce", "buckets", "skewed"),
    "lag-aware (group)": ("full", "join", "leave", "bounce", "buckets", "skewed"),
    "drain-time": ("full", "join", "leave"),
    "range": ("full", "racks", "skewed"),
    "round-robin": ("full", "random"),
}
LIMIT_PARTITIONS: Final = 1_000_000
LIMIT_MEMBERS: Final = 10_000
ONLY_OURS: Final = ("lag-aware", "lag-aware (group)", "drain-time")
OURS: Final = ("coopgroup", "claims")
PATIENCE_MS: Final = 15_000
WITH_PATIENCE: Final = (("java", "sticky", "join"), ("java", "sticky", "leave"))
"""Where a goal compares with a contestant, it gets all its runs, also if they are slow."""
NOTHING: Final = "\N{EN DASH}"
INTRODUCTION: Final = (
    "CPU time in ms for 10,000 / 100,000 / 1,000,000 partitions, and how it grows with their",
    "number n, from 1,000 on. There is a member for each hundred partitions, for each ten where",
    "subscriptions are disjoint, and there are 2,000 at most.",
    f"Each figure is the median of {RUNS} runs, one in brackets a single run: who takes more than",
    f"{RUN_MS_MAX / 1000:g} s is not asked for more partitions (Java is, where a goal needs it).",
    "The first column is `assign` alone; the second one is all that the others do in one call,",
    "from the claims of members to a set of partitions for each.",
    "How far ahead of Java both are is said for the largest group that Java finished.",
    "",
)
LIMITS: Final = (
    "",
    "A million partitions among 10,000 members: CPU time, and the peak of memory beside what goes",
    "in:",
    "",
)

Found = Mapping[str, Any]


def run(
    *, sizes: Sequence[int] = SIZES, cases: Mapping[str, Sequence[str]] = CASES_OF
) -> dict[str, Any]:
    """Measure all contestants, then our assignors at the limit.

    Returns:
        `times`: by assignor, case, size and contestant the median time in ms, and the number of
        runs. `limits`: of the largest group. `contestants`: titles. `notes`: missing contestants.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        racing, notes = contestants(folder)
        try:
            times = {
                assignor: {case: _race(racing, folder, assignor, case, sizes) for case in some}
                for assignor, some in cases.items()
            }
        finally:
            for contestant in racing.values():
                contestant.stop()
    titles = {key: contestant.title for key, contestant in racing.items()}
    return {"contestants": titles, "times": times, "limits": limits(), "notes": list(notes)}


def limits(partitions: int = LIMIT_PARTITIONS, members: int = LIMIT_MEMBERS) -> dict[str, Any]:
    """Return `ms`, and `bytes` per partition at the peak of memory, for a very large group."""
    lags = drawn_lags(partitions)
    found: dict[str, Any] = {"argsort": {"ms": _median_ms(partial(np.argsort, lags))}}
    for name in ("lag-aware", "sticky", "drain-time"):
        for event in ("full", "join", "leave"):
            case = evolve(CASES[event], partitions_per_member=partitions // members)
            group = snapshot_of(draw(case, partitions, members_max=members))
            assigned = partial(create_assignor(name).assign, group, lags)
            found[f"{name}, {case.title}"] = {
                "ms": _median_ms(assigned),
                "bytes": round(_peak_bytes(assigned) / partitions, 1),
            }
    for name, one in found.items():
        print(f"assignors: {name} {one}", flush=True)
    return found


def _race(
    racing: Mapping[str, Contestant], folder: Path, assignor: str, case: str, sizes: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Return the results of all contestants in a case, by size and contestant."""
    found: dict[str, dict[str, Any]] = {}
    slow: set[str] = set()
    for size in sizes:
        group = draw(CASES[case], size)
        path = folder / "group"
        write_group(group, path)
        by_key = found[str(size)] = {}
        for key, contestant in racing.items():
            outcome = Outcome(note="not asked")
            if key not in slow and (assignor not in ONLY_OURS or key in OURS):
                is_awaited = (key, assignor, case) in WITH_PATIENCE
                run_ms_max = PATIENCE_MS if is_awaited else RUN_MS_MAX
                outcome = contestant.measure(
                    path, folder / "answer", assignor, run_ms_max=run_ms_max
                )
            if len(outcome.times_ms) < RUNS:
                slow.add(key)
            by_key[key] = _judged(group, outcome)
            print(f"assignors: {assignor} {case} {size} {key} {by_key[key]}", flush=True)
    return found


def _judged(group: Group, outcome: Outcome) -> dict[str, Any]:
    if outcome.holder is None:
        return {"runs": 0, "note": outcome.note}
    return {
        "runs": len(outcome.times_ms),
        "ms": round(statistics.median(outcome.times_ms), 3),
        "misplaced": misplaced(group, outcome.holder),
    }


def misplaced(group: Group, holder: Int32Array) -> int:
    """Return how many partitions have no holder, or one that does not subscribe; 0 is right."""
    wrong = 0
    for pool in pools_of(group):
        subscribes = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last element: `NOBODY`
        subscribes[pool.subscribers] = True
        wrong += int(np.count_nonzero(~subscribes[holder[pool.resources]]))
    assert NOBODY == -1
    return wrong


def _median_ms(call: Callable[[], object]) -> float:
    times_ms = []
    for _ in range(RUNS):
        began_ns = time.thread_time_ns()
        call()
        times_ms.append((time.thread_time_ns() - began_ns) / 1e6)
    return round(statistics.median(times_ms), 2)


def _peak_bytes(call: Callable[[], object]) -> int:
    """Return how much memory a call adds at its peak."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def tables(found: Found) -> str:
    """Return the result of `run` as Markdown."""
    keys = [key for key in KEYS if key in found["contestants"]]
    titles = [found["contestants"][key] for key in keys]
    # The file of results sorts keys by name.
    times = [
        [assignor, CASES[case].title, *_time_cells(found["times"][assignor][case], keys)]
        for assignor in CASES_OF
        for case in CASES
        if case in found["times"].get(assignor, {})
    ]
    lines = [
        *INTRODUCTION,
        *_table(["assignor", "case", *titles, "ahead of Java"], times),
        *LIMITS,
        *_table(["", "ms", "of one argsort", "bytes a partition"], _limit_rows(found["limits"])),
        "",
        *found["notes"],
    ]
    return "\n".join(lines).rstrip()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---" if place < 2 else "---:" for place in range(len(head))]
    return ["| " + " | ".join(row) + " |" for row in (head, marks, *rows)]


def _time_cells(by_size: Found, keys: Sequence[str]) -> list[str]:
    cells = []
    for key in keys:
        timed = {size: by_key[key] for size, by_key in by_size.items() if by_key[key]["runs"]}
        parts = []
        for size in SIZES_SHOWN:
            text = _number(timed[size]["ms"]) if size in timed else NOTHING
            parts.append(f"({text})" if size in timed and timed[size]["runs"] == 1 else text)
        exponent = _growth({size: one["ms"] for size, one in timed.items()})
        cells.append(" / ".join(parts) + exponent if timed else NOTHING)
    both = [
        by_key
        for _, by_key in sorted(by_size.items(), key=lambda one: int(one[0]))
        if by_key.get("java", {}).get("runs") and by_key["coopgroup"]["runs"]
    ]
    if not both:
        return [*cells, NOTHING]
    ratios = [both[-1]["java"]["ms"] / both[-1][key]["ms"] for key in OURS]
    return [*cells, " / ".join(map(_number, ratios))]


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _growth(ms_by_size: Mapping[str, float]) -> str:
    """Return n^e, where the exponent e fits the times best; empty for less than two sizes."""
    if len(ms_by_size) < 2:
        return ""
    logs = [(math.log(int(size)), math.log(ms)) for size, ms in ms_by_size.items()]
    return f", n^{statistics.linear_regression(*zip(*logs, strict=True)).slope:.1f}"


def _limit_rows(limits: Found) -> list[list[str]]:
    return [
        [
            name,
            f"{one['ms']:.0f}",
            f"{one['ms'] / limits['argsort']['ms']:.1f}",
            f"{one['bytes']:.0f}" if "bytes" in one else NOTHING,
        ]
        for name, one in limits.items()
    ]


if __name__ == "__main__":
    show_table("assignors", tables, DOCS / "assignors.md")
