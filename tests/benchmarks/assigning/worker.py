"""The contestant coopgroup: read orders, assign, time it, answer.

An order is a line on standard input with five parts, separated by tabs: group file, answer file,
assignor, runs, and the CPU time in ms above which a run stays the only one. The answer is a line on
standard output: CPU times of the runs in ms; or `no` and the reason. Contestants in other languages
do the same (`AssignorBench.java`, `go/main.go`).

Only the CPU time of the assigning thread counts, so a busy machine does not distort a figure. The
collectors and compilers of a JVM or of Go run on other threads and are not counted, in their
favour.

`lag-aware (group)` is the assignor with that scope. `+claims` times the work that other contestants
do in their one call: resolve the claims, assign, and make a set of partitions for each member.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from coopgroup.assignors import create_assignor
from coopgroup.model import resolve_claims
from tests.benchmarks.assigning.groups import (
    Group,
    Int32Array,
    claims_of,
    drawn_lags,
    racks_by_name,
    read_group,
    snapshot_of,
    write_answer,
)

__all__ = ["prepare", "serve"]

WARM_UPS: Final = 2
WITH_CLAIMS: Final = "+claims"

Timed = Callable[[], Int32Array]


def prepare(group: Group, name: str) -> Timed:
    """Return the call that is timed."""
    plain, _, scope = name.removesuffix(WITH_CLAIMS).rstrip(")").partition(" (")
    assignor = create_assignor(plain, {"scope": scope} if scope else {})
    lags = drawn_lags(group.owner.size)
    if not name.endswith(WITH_CLAIMS):
        snapshot = snapshot_of(group)
        return lambda: assignor.assign(snapshot, lags)
    (claims, existing), racks = claims_of(group), racks_by_name(group)

    def assigned() -> Int32Array:
        snapshot = resolve_claims(claims, existing, racks)
        target = assignor.assign(snapshot, lags)
        assert len(snapshot.by_member(target)) == len(claims)
        return target

    return assigned


def serve() -> None:
    """Carry out orders until the input ends."""
    for line in sys.stdin:
        group_path, answer_path, assignor, runs, limit_ms = line.rstrip("\n").split("\t")
        timed = prepare(read_group(Path(group_path)), assignor)
        try:
            times_ms, result = _timed(timed, int(runs), float(limit_ms))
        except Exception as error:  # noqa: BLE001 - whatever an assignor stumbles at
            print(f"no: {type(error).__name__}", flush=True)
            continue
        write_answer(result, Path(answer_path))
        print(*(f"{one:.3f}" for one in times_ms), flush=True)


def _timed(timed: Timed, runs: int, limit_ms: float) -> tuple[list[float], Int32Array]:
    first_ms, result = _once(timed)
    if first_ms > limit_ms:
        return [first_ms], result
    for _ in range(WARM_UPS - 1):
        _once(timed)
    return [_once(timed)[0] for _ in range(runs)], result


def _once(timed: Timed) -> tuple[float, Int32Array]:
    gc.collect()
    began_ns = time.thread_time_ns()
    result = np.asarray(timed())
    return (time.thread_time_ns() - began_ns) / 1e6, result


if __name__ == "__main__":
    serve()
