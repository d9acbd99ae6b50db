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

import argparse
import json
import os
import time
from collections.abc import Mapping
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
from tests.benchmarks.results import RESULTS, write_between
from tests.support.internal_topic import encode_group_value, encode_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run", "table"]

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
FIRST_MS: Final = 1_730_000_000_000


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
    _spent(commits_of(commit_records(_records(spark, WARM_UP))), clock)
    _spent(work_of(events_of(read_lines(_lines(spark, WARM_UP)))), clock)
    kinds = ("history", "states of groups", "telemetry")
    found: dict[str, dict[int, dict[str, float]]] = {kind: {} for kind in kinds}
    more = os.environ.get("COOPGROUP_BENCH_COMMITS")
    seconds_per_row = 0.0
    for size in (*HISTORY, *((int(more),) if more else ())):
        if seconds_per_row * size > HISTORY_S_MAX:
            print(f"pipeline: history {size} left out, it would take more than {HISTORY_S_MAX} s")
            continue
        raw, begin_s = _records(spark, size), time.perf_counter()
        found["history"][size] = _rates(size, raw, commits_of(commit_records(raw)), clock)
        seconds_per_row = (time.perf_counter() - begin_s) / size
        print(f"pipeline: history {size} {found['history'][size]}", flush=True)
    for size in STATES:
        raw = _states(spark, size)
        computed = assignments_of(group_records(raw))
        found["states of groups"][size] = _rates(size, raw, computed, clock)
        print(f"pipeline: states {size} {found['states of groups'][size]}", flush=True)
    for size in TELEMETRY:
        lines = _lines(spark, size)
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
    making, whole = _spent(made, clock), _spent(computed, clock)
    seconds, cpu_s = (whole[name] - making[name] for name in ("seconds", "cpu_s"))
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "rows_per_s": round(size / seconds),
        "rows_per_cpu_s": round(size / cpu_s),
        "others": round(whole["others_s"] / whole["seconds"], 2),
        **peaks_mb(),
    }


def _records(spark: SparkSession, size: int) -> DataFrame:
    """Return commits in the form of the topic's records."""
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


def _states(spark: SparkSession, size: int) -> DataFrame:
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
    return spark.range(0, size, 1, SLICES).selectExpr(
        f"X'{encode_key(GroupKey(group='g')).hex()}' AS key",
        f"concat(X'{before.hex()}', unhex(lpad(hex(id), 8, '0')), X'{after.hex()}') AS value",
        "cast(0 AS int) AS source_partition",
        "id AS source_offset",
        f"{FIRST_MS} + id AS written_ms",
    )


def _lines(spark: SparkSession, size: int) -> DataFrame:
    """Return telemetry: members begin to work on four partitions each time."""
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


def _spent(frame: DataFrame, clock: CpuClock) -> dict[str, float]:
    """Return the seconds and CPU seconds that all rows of a frame take."""
    began, before = time.perf_counter(), clock.read()
    frame.write.format("noop").mode("overwrite").save()
    after = clock.read()
    others_s = after.pop("others") - before.pop("others")
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": sum(after.values()) - sum(before.values()),
        "others_s": others_s,
    }


def main() -> None:
    """Show the table of the last result, or write it into the page."""
    parser = argparse.ArgumentParser(description="Table of the last result.")
    parser.add_argument("--write", action="store_true", help="write it into docs/pipeline.md")
    arguments = parser.parse_args()
    drawn = table(json.loads(RESULTS.read_text())["pipeline"])
    print(drawn)
    if arguments.write:
        write_between(PAGE, BEGIN, END, drawn)


if __name__ == "__main__":
    main()
