"""Rows per second of the pipeline: history decoded, telemetry read; growth with size.

Records are made by Spark itself, so that neither disk nor broker is measured: commits of a thousand
partitions in the newest version, and lines of telemetry. What making them costs is measured alone
and taken off. Goal: growth is linear, ten million records take minutes. Next to the time on the
wall stands the processors' time, of the JVM and its Python workers together: on a machine that is
busy otherwise only that means anything.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coopgroup.model import ResourceSet
from coopgroup.pipeline.history import commit_records, commits_of
from coopgroup.pipeline.internal_topic import OffsetKey, encode_key
from coopgroup.pipeline.session import build_session
from coopgroup.pipeline.telemetry import events_of, read_lines, work_of
from coopgroup.telemetry import Envelope, ResourcesStarted, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run"]

HISTORY: Final = (1_000_000, 3_000_000, 10_000_000)
TELEMETRY: Final = (100_000, 300_000, 1_000_000)
WARM_UP: Final = 50_000
KEYS: Final = 1_000
SLICES: Final = 50
FIRST_MS: Final = 1_730_000_000_000
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MB: Final = 1_024


def run() -> dict[str, Any]:
    """Measure all sizes.

    Returns:
        By what and how many: seconds, processor seconds and rows per second of either, with the
        making of the rows taken off; `memory_mb`, the most that the JVM took.
    """
    spark = build_session(master="local[2]", extra={"spark.sql.shuffle.partitions": "4"})
    # Start the workers, and let the JVM compile what it will need.
    _spent(commits_of(commit_records(_records(spark, WARM_UP))))
    _spent(work_of(events_of(read_lines(_lines(spark, WARM_UP)))))
    found: dict[str, Any] = {"history": {}, "telemetry": {}}
    for size in HISTORY:
        raw = _records(spark, size)
        found["history"][size] = _rates(size, raw, commits_of(commit_records(raw)))
        print(f"pipeline: history {size} {found['history'][size]}", flush=True)
    for size in TELEMETRY:
        lines = _lines(spark, size)
        found["telemetry"][size] = _rates(size, lines, work_of(events_of(read_lines(lines))))
        print(f"pipeline: telemetry {size} {found['telemetry'][size]}", flush=True)
    found["memory_mb"] = max(_status(pid, "VmHWM:") for pid in _descendants()) // _MB
    print(f"pipeline: memory_mb {found['memory_mb']}", flush=True)
    return found


def _rates(size: int, made: DataFrame, computed: DataFrame) -> dict[str, float]:
    (making_s, making_cpu_s), (whole_s, whole_cpu_s) = _spent(made), _spent(computed)
    seconds, cpu_s = whole_s - making_s, whole_cpu_s - making_cpu_s
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "rows_per_s": round(size / seconds),
        "rows_per_cpu_s": round(size / cpu_s),
    }


def _records(spark: SparkSession, size: int) -> DataFrame:
    """Commits as they are read from the topic."""
    keys = [encode_key(OffsetKey(group="g", topic="orders", partition=one)) for one in range(KEYS)]
    table = ", ".join(f"X'{key.hex()}'" for key in keys)
    value = (
        "concat(X'0004', unhex(lpad(hex(id), 16, '0')), X'00000005', X'01',"
        f" unhex(lpad(hex({FIRST_MS} + id), 16, '0')), X'00')"
    )
    return spark.range(0, size, 1, SLICES).selectExpr(
        f"element_at(array({table}), cast(id % {KEYS} AS int) + 1) AS key",
        f"{value} AS value",
        "cast(0 AS int) AS source_partition",
        "id AS source_offset",
        f"{FIRST_MS} + id AS written_ms",
    )


def _lines(spark: SparkSession, size: int) -> DataFrame:
    """Telemetry: members begin to work on four partitions each time."""
    envelope = Envelope(
        at_ms=FIRST_MS,
        group="g",
        member="a-1",
        generation=7,
        client="pod",
        record=ResourcesStarted(resources=ResourceSet({"orders": range(4)})),
    )
    before, _, after = json.dumps(to_json(envelope)).partition(str(FIRST_MS))
    return spark.range(0, size, 1, SLICES).selectExpr(
        "'file' AS source",
        "cast(null AS int) AS source_partition",
        "cast(null AS long) AS source_offset",
        "cast(null AS long) AS written_ms",
        f"concat('{before}', cast({FIRST_MS} + id AS string), '{after}') AS line",
    )


def _spent(frame: DataFrame) -> tuple[float, float]:
    """Seconds and processor seconds that it takes to compute all rows of a frame."""
    began, began_cpu = time.perf_counter(), _cpu_s()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, _cpu_s() - began_cpu


# --- processes ------------------------------------------------------------------------------------


def _descendants() -> list[int]:
    """Processes that this one started, and those that they did."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [os.getpid()]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found


_SEEN_TICKS: Final[dict[int, int]] = {}
"""What each process had used when it was looked at last: Spark ends workers that are idle."""


def _cpu_s() -> float:
    """Processor seconds of all of them so far."""
    for pid in _descendants():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        _SEEN_TICKS[pid] = sum(int(field) for field in fields[11:13])
    return sum(_SEEN_TICKS.values()) / _TICKS_PER_S


def _status(pid: int, name: str) -> int:
    """A figure of a process in kB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
