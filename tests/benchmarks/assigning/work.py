"""The loop of a contestant in Python: read orders, assign, time it, answer.

An order is a line on standard input with five parts, separated by tabs: group file, answer file,
assignor, runs, and the CPU time in ms above which a run stays the only one. The answer is a line on
standard output: CPU times of the runs in ms; or `no` and the reason. Contestants in other languages
do the same (`AssignorBench.java`, `go/main.go`).

Only the CPU time of the assigning thread counts, so a busy machine does not distort a figure. The
collectors and compilers of a JVM or of Go run on other threads and are not counted, in their
favour.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.benchmarks.assigning.group_file import read_group, write_answer
from tests.benchmarks.assigning.groups import Group, Int32Array

__all__ = ["Prepared", "serve"]

WARM_UPS: Final = 2

Prepared = tuple[Callable[[], object], Callable[[object], Int32Array]]
"""What is timed, and what makes the answer of its result."""


def serve(prepare: Callable[[Group, str], Prepared | None]) -> None:
    """Carry out orders until the input ends.

    Args:
        prepare: returns the timed call for a group and an assignor; None for an unknown assignor.
    """
    for line in sys.stdin:
        group_path, answer_path, assignor, runs, limit_ms = line.rstrip("\n").split("\t")
        prepared = prepare(read_group(Path(group_path)), assignor)
        if prepared is None:
            print("no such assignor", flush=True)
            continue
        timed, answer = prepared
        try:
            times_ms, result = _timed(timed, int(runs), float(limit_ms))
        except Exception as error:  # noqa: BLE001 - whatever a contestant's assignor stumbles at
            print(f"no: {type(error).__name__}", flush=True)
            continue
        write_answer(answer(result), Path(answer_path))
        print(*(f"{one:.3f}" for one in times_ms), flush=True)


def _timed(timed: Callable[[], object], runs: int, limit_ms: float) -> tuple[list[float], object]:
    first_ms, result = _once(timed)
    if first_ms > limit_ms:
        return [first_ms], result
    for _ in range(WARM_UPS - 1):
        _once(timed)
    return [_once(timed)[0] for _ in range(runs)], result


def _once(timed: Callable[[], object]) -> tuple[float, object]:
    gc.collect()
    began_ns = time.thread_time_ns()
    result = timed()
    return (time.thread_time_ns() - began_ns) / 1e6, result
