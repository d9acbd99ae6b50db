"""The assignors beside those of kafka-clients (Java), franz-go and kafka-python.

All contestants get the same groups in the same run. Goals, in CPU time:

- lag-aware with 1,000,000 partitions and 10,000 members: below 0.25 s, and below 3 times one
  argsort of the same lags.
- sticky with 1,000,000 partitions and 2,000 members: below 0.25 s for the first assignment, a join
  and a leave, and 4 times faster than Java in the latter two.
- five disjoint subscriptions with 10,000 partitions and 1,000 members: below 10 ms.
- peak memory: below 50 bytes per partition in addition to the input.

`python -m tests.benchmarks.assignors --write` puts the tables of the last result into
docs/assignors.md without another run. `--limits` measures only the very large group again.
`--again coopgroup,claims --of sticky:join,sticky:leave` repeats some contestants in some cases.
"""

from __future__ import annotations

import argparse
import json
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
    RUN_MS_MAX,
    RUNS,
    Contestant,
    Outcome,
    contestants,
)
from tests.benchmarks.assigning.group_file import write_group
from tests.benchmarks.assigning.groups import (
    CASES,
    Group,
    draw,
    drawn_lags,
    snapshot_of,
)
from tests.benchmarks.assigning.quality import kept_most, quality
from tests.benchmarks.assigning.tables import BEGIN, END, tables
from tests.benchmarks.results import RESULTS, merge_results, write_between

__all__ = ["run"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "assignors.md"
SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
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
PATIENCE_MS: Final = 15_000
WITH_PATIENCE: Final = (("java", "sticky", "join"), ("java", "sticky", "leave"))
"""Where a goal compares with a contestant, it gets all its runs, also if they are slow."""
NOT_ASKED: Final = "not asked"
OURS: Final = ("coopgroup", "claims")


def run(
    *, sizes: Sequence[int] = SIZES, cases: Mapping[str, Sequence[str]] = CASES_OF
) -> dict[str, Any]:
    """Measure all contestants, then our assignors at the limit.

    Args:
        sizes: partitions of the groups, ascending.
        cases: keys of `CASES` by assignor.

    Returns:
        `times`: by assignor, case, size and contestant the median time in ms, the number of runs,
        and the target's quality. `kept`: by case and size, the owned partitions and the most that a
        balanced target can keep. `limits`: of the largest group. `contestants`: titles. `notes`:
        missing contestants.
    """
    kept: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        racing, notes = contestants(folder)
        try:
            times = {
                assignor: {
                    case: _race(racing, folder, assignor, case, sizes, kept) for case in some
                }
                for assignor, some in cases.items()
            }
        finally:
            for contestant in racing.values():
                contestant.stop()
    return {
        "contestants": {key: contestant.title for key, contestant in racing.items()},
        "times": times,
        "kept": kept,
        "limits": limits(),
        "notes": list(notes),
    }


def limits(partitions: int = LIMIT_PARTITIONS, members: int = LIMIT_MEMBERS) -> dict[str, Any]:
    """Measure our assignors on a very large group, beside one argsort of its lags.

    Args:
        partitions: number in the group.
        members: number in the group.

    Returns:
        For each measurement: `ms`, and `bytes` per partition at the peak of memory.
    """
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
    racing: Mapping[str, Contestant],
    folder: Path,
    assignor: str,
    case: str,
    sizes: Sequence[int],
    kept: dict[str, dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return the results of all contestants in a case, by size and contestant."""
    found: dict[str, dict[str, Any]] = {}
    slow: set[str] = set()
    for size in sizes:
        group = draw(CASES[case], size)
        path = folder / "group"
        write_group(group, path)
        owned = int(np.count_nonzero(group.owner != NOBODY))
        kept.setdefault(case, {})[str(size)] = {"owned": owned, "most": kept_most(group)}
        by_key = found[str(size)] = {}
        for key, contestant in racing.items():
            if key in slow or (assignor in ONLY_OURS and key not in OURS):
                outcome = Outcome(note=NOT_ASKED)
            else:
                outcome = _measured(contestant, path, (key, assignor, case))
            if len(outcome.times_ms) < RUNS:
                slow.add(key)
            by_key[key] = _judged(group, outcome)
            print(f"assignors: {assignor} {case} {size} {key} {by_key[key]}", flush=True)
    return found


def _measured(contestant: Contestant, path: Path, what: tuple[str, str, str]) -> Outcome:
    return contestant.measure(
        path,
        path.with_name("answer"),
        what[1],
        run_ms_max=PATIENCE_MS if what in WITH_PATIENCE else RUN_MS_MAX,
    )


def again(found: dict[str, Any], keys: Sequence[str], cases: Sequence[tuple[str, str]]) -> None:
    """Measure some contestants again, in the groups of an earlier run.

    Args:
        found: an earlier result; changed.
        keys: keys of the contestants.
        cases: assignor and case.
    """
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "group"
        racing, _ = contestants(Path(name))
        try:
            for assignor, case in cases:
                by_case = found["times"].setdefault(assignor, {})
                by_size = by_case.setdefault(case, _nobody_yet(racing))
                for size, by_key in by_size.items():
                    group = draw(CASES[case], int(size))
                    write_group(group, path)
                    for key in keys:
                        if key in OURS or by_key[key].get("note") != NOT_ASKED:
                            outcome = _measured(racing[key], path, (key, assignor, case))
                            by_key[key] = _judged(group, outcome)
                            print(f"assignors: {assignor} {case} {size} {key} {by_key[key]}")
        finally:
            for contestant in racing.values():
                contestant.stop()


def _nobody_yet(racing: Mapping[str, Contestant]) -> dict[str, dict[str, Any]]:
    return {str(size): {key: {"runs": 0, "note": NOT_ASKED} for key in racing} for size in SIZES}


def _judged(group: Group, outcome: Outcome) -> dict[str, Any]:
    if outcome.holder is None:
        return {"runs": 0, "note": outcome.note}
    return {
        "runs": len(outcome.times_ms),
        "ms": round(statistics.median(outcome.times_ms), 3),
        **quality(group, outcome.holder, drawn_lags(group.owner.size)),
    }


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


def main() -> None:
    """Print the tables of the last result; measure part of it again, or write it into the page."""
    parser = argparse.ArgumentParser(description="Tables of the last result.")
    parser.add_argument("--limits", action="store_true", help="measure the very large group again")
    parser.add_argument("--again", default="", metavar="KEYS", help="measure contestants again")
    parser.add_argument("--of", default="", metavar="ASSIGNOR:CASE,…", help="where; default: all")
    parser.add_argument("--write", action="store_true", help="write them into docs/assignors.md")
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text())["assignors"]
    if arguments.limits:
        found["limits"] = limits()
    if arguments.again:
        cases = [(name, case) for name, by_case in found["times"].items() for case in by_case]
        if arguments.of:
            cases = [(one.split(":")[0], one.split(":")[1]) for one in arguments.of.split(",")]
        again(found, arguments.again.split(","), cases)
    if arguments.limits or arguments.again:
        merge_results({"assignors": found})
    drawn = tables(found)
    print(drawn)
    if arguments.write:
        write_between(PAGE, BEGIN, END, drawn)


if __name__ == "__main__":
    main()
