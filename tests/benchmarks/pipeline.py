"""Rows per second of the pipeline: history decoded, telemetry read; growth with size, memory.

Spark itself makes the records, so neither disk nor broker is measured: commits of a thousand
partitions in the newest version, states of groups of a hundred members, and lines of telemetry.
The cost of making records is measured alone and subtracted. Goals: growth is linear, ten million
records take minutes, memory does not grow. Wall time is shown with the CPU time of the JVM and its
Python workers: on a busy machine only CPU time is a valid measure.

    python -m tests.benchmarks.pipeline --write     # the last result into docs/pipeline.md
    COOPGROUP_BENCH_COMMITS=200000000 make bench    # one more size of the history
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coopgroup.model import ResourceSet
from coopgroup.pipeline.history import assignments_of, commit_records, commits_of, group_records
from coopgroup.pipeline.spark.session import build_session
from coopgroup.pipeline.telemetry import events_of, read_lines, work_of
from coopgroup.pipeline.topic.codec import GroupKey, GroupMember, GroupValue, OffsetKey
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    encode_kafka_assignment,
    encode_subscription,
)
from coopgroup.telemetry import Envelope, ResourcesStarted, to_json
from tests.benchmarks.cpu_clock import CpuClock, peaks_mb
from tests.benchmarks.results import show_table
from tests.support.internal_topic import encode_group_value, encode_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FIRST_MS", "PAGE", "lines_of", "records_of", "run", "spent", "states_of", "table"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
BEGIN, END = "<!-- pipeline:begin -->", "<!-- pipeline:end -->"
HISTORY: Final = (1_000_000, 10_000_000, 50_000_000)
HISTORY_S_MAX: Final = 900  # for a size; a size that would take longer is left out
STATES: Final = (2_000, 20_000)
MEMBERS: Final = 100
TELEMETRY: Final = (100_000, 300_000, 1_000_000)
WARM_UP: Final = 50_000
KEYS: Final = 1_000
SLICES: Final = 50
FIRST_MS: Final = 20_023 * 86_400_000  # a midnight


def run() -> dict[str, Any]:
    """Measure all sizes.

    Returns:
        By kind and number of rows: seconds, CPU seconds and rows per second of either, without the
        making of the rows. `others`: how many cores other programs kept busy meanwhile. `jvm_mb`
        and `worker_mb`: peak memory of the JVM and of any Python worker so far.
    """
    spark = build_session(master="local[2]", extra={"spark.sql.shuffle.partitions": "4"})
    clock = CpuClock()
    # Start the workers, and let the JVM compile the code first.
    _computed(commits_of(commit_records(records_of(spark, range(WARM_UP)))), clock)
    _computed(work_of(events_of(read_lines(lines_of(spark, range(WARM_UP))))), clock)
    kinds = ("history", "states of groups", "telemetry")
    found: dict[str, dict[int, dict[str, float]]] = {kind: {} for kind in kinds}
    more = os.environ.get("COOPGROUP_BENCH_COMMITS")
    seconds_per_row = 0.0
    for size in (*HISTORY, *((int(more),) if more else ())):
        if seconds_per_row * size > HISTORY_S_MAX:
            print(f"pipeline: history {size} left out, it would take more than {HISTORY_S_MAX} s")
            continue
        raw, begin_s = records_of(spark, range(size)), time.perf_counter()
        found["history"][size] = _rates(size, raw, commits_of(commit_records(raw)), clock)
        seconds_per_row = (time.perf_counter() - begin_s) / size
        print(f"pipeline: history {size} {found['history'][size]}", flush=True)
    for size in STATES:
        raw = states_of(spark, range(size))
        computed = assignments_of(group_records(raw))
        found["states of groups"][size] = _rates(size, raw, computed, clock)
        print(f"pipeline: states {size} {found['states of groups'][size]}", flush=True)
    for size in TELEMETRY:
        lines = lines_of(spark, range(size))
        computed = work_of(events_of(read_lines(lines)))
        found["telemetry"][size] = _rates(size, lines, computed, clock)
        print(f"pipeline: telemetry {size} {found['telemetry'][size]}", flush=True)
    return found


def table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the rows of a page, from the result of `run`, read back from JSON.

    Args:
        found: results by kind and number of records.
    """
    rows = [
        "| what | records | seconds | CPU seconds | a CPU second | growth | JVM, worker | others |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for what, sizes in found.items():
        ordered = sorted(sizes.items(), key=lambda pair: int(pair[0]))
        least = ordered[0][1]["rows_per_cpu_s"]
        for size, one in ordered:
            rows.append(
                f"| {what} | {int(size):,} | {one['seconds']} | {one['cpu_s']}"
                f" | {one['rows_per_cpu_s']:,} | {least / one['rows_per_cpu_s']:.2f}"
                f" | {one['jvm_mb']} MB, {one['worker_mb']} MB"
                f" | {one['others']} |"
            )
    return "\n".join(rows)


def _rates(size: int, made: DataFrame, computed: DataFrame, clock: CpuClock) -> dict[str, float]:
    making, whole = _computed(made, clock), _computed(computed, clock)
    seconds, cpu_s = (whole[name] - making[name] for name in ("seconds", "cpu_s"))
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "rows_per_s": round(size / seconds),
        "rows_per_cpu_s": round(size / cpu_s),
        "others": round(whole["others_s"] / whole["seconds"], 2),
        **peaks_mb(),
    }


def records_of(
    spark: SparkSession, ids: range, *, partitions: int = KEYS, step_ms: int = 1
) -> DataFrame:
    """Return commits in the form of the topic's records.

    Args:
        spark: the session.
        ids: numbers of the commits.
        partitions: number of partitions, which are committed in turn.
        step_ms: time between two commits.
    """
    keys = [
        encode_key(OffsetKey(group="g", topic="orders", partition=one)) for one in range(partitions)
    ]
    table = ", ".join(f"X'{key.hex()}'" for key in keys)
    value = (
        "concat(X'0004', unhex(lpad(hex(id), 16, '0')), X'00000005', X'01',"
        f" unhex(lpad(hex({FIRST_MS} + id * {step_ms}), 16, '0')), X'00')"
    )
    return _range(spark, ids).selectExpr(
        f"element_at(array({table}), cast(id % {partitions} AS int) + 1) AS key",
        f"{value} AS value",
        "cast(0 AS int) AS source_partition",
        "id AS source_offset",
        f"{FIRST_MS} + id * {step_ms} AS written_ms",
    )


def states_of(spark: SparkSession, ids: range) -> DataFrame:
    """Return states of a group in the form of the topic's records, each a generation."""
    members = tuple(
        GroupMember(
            member_id=f"pod-{number}-4e8a9a1c",
            client_id=f"pod-{number}",
            client_host=f"/10.0.0.{number}",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            subscription=encode_subscription(Subscription(topics=("orders",))),
            assignment=encode_kafka_assignment(
                KafkaAssignment(
                    assigned=ResourceSet({"orders": range(10 * number, 10 * number + 10)})
                )
            ),
        )
        for number in range(MEMBERS)
    )
    mark = 0x6D61726B
    value = GroupValue(
        protocol_type="consumer",
        generation=mark,
        protocol="range",
        leader=members[0].member_id,
        state_ms=FIRST_MS,
        members=members,
    )
    before, after = encode_group_value(value).split(mark.to_bytes(4, "big"))
    return _range(spark, ids).selectExpr(
        f"X'{encode_key(GroupKey(group='g')).hex()}' AS key",
        f"concat(X'{before.hex()}', unhex(lpad(hex(id), 8, '0')), X'{after.hex()}') AS value",
        "cast(0 AS int) AS source_partition",
        "id AS source_offset",
        f"{FIRST_MS} + id AS written_ms",
    )


def lines_of(
    spark: SparkSession, ids: range, *, partitions: int = 4, step_ms: int = 1
) -> DataFrame:
    """Return telemetry: a member begins to work on some partitions each time.

    Args:
        spark: the session.
        ids: numbers of the lines.
        partitions: number of partitions in a line.
        step_ms: time between two lines.
    """
    envelope = Envelope(
        at_ms=FIRST_MS,
        group="g",
        member="a-1",
        generation=7,
        client="pod",
        record=ResourcesStarted(resources=ResourceSet({"orders": range(partitions)})),
    )
    before, _, after = json.dumps(to_json(envelope)).partition(str(FIRST_MS))
    return _range(spark, ids).selectExpr(
        "'file' AS source",
        "cast(null AS int) AS source_partition",
        "cast(null AS long) AS source_offset",
        "cast(null AS long) AS written_ms",
        f"concat('{before}', cast({FIRST_MS} + id * {step_ms} AS string), '{after}') AS line",
    )


def _range(spark: SparkSession, ids: range) -> DataFrame:
    return spark.range(ids.start, ids.stop, 1, SLICES)


def _computed(frame: DataFrame, clock: CpuClock) -> dict[str, float]:
    """Return the seconds and CPU seconds that all rows of a frame take."""
    return spent(lambda: frame.write.format("noop").mode("overwrite").save(), clock)


def spent(job: Callable[[], object], clock: CpuClock) -> dict[str, float]:
    """Return the seconds and CPU seconds of a job, and the CPU seconds of other programs."""
    began, before = time.perf_counter(), clock.read()
    job()
    after = clock.read()
    others_s = after.pop("others") - before.pop("others")
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": sum(after.values()) - sum(before.values()),
        "others_s": others_s,
    }


if __name__ == "__main__":
    show_table("pipeline", table, PAGE, BEGIN, END)
