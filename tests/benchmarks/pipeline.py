"""Rows per second of the pipeline: history, telemetry and lag; growth with size, memory.

Spark itself makes the records, so neither disk nor broker is measured: commits of a thousand
partitions in the newest version, states of groups of a hundred members, lines of telemetry, and end
offsets of one topic in 1,440 moments. The cost of making records is measured alone and subtracted.
Goals: growth is linear, ten million records take minutes, memory does not grow. Wall time is shown
with the CPU time of the JVM and its Python workers: on a busy machine only CPU time is a valid
measure.

    python -m tests.benchmarks.pipeline --write     # the last result into docs/pipeline.md
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from coopgroup.core.model import ResourceSet
from coopgroup.pipeline.asof import in_log_order
from coopgroup.pipeline.history import assignments_of, commit_records, commits_of, group_records
from coopgroup.pipeline.lag import interests_of, lag_of, subscribed_moments
from coopgroup.pipeline.schemas import TABLES
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
from docs.sections import DOCS
from tests.benchmarks.cpu_clock import CpuClock, peaks_mb
from tests.benchmarks.results import show_table
from tests.support.internal_topic import encode_group_value, encode_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HISTORY: Final = (1_000_000, 10_000_000)
STATES: Final = (2_000, 20_000)
MEMBERS: Final = 100
TELEMETRY: Final = (100_000, 300_000, 1_000_000)
LAG: Final = (1_440_000, 14_400_000)
MOMENTS: Final = 1_440
COMMIT_MOMENTS: Final = 10  # between two commits of a partition
WARM_UP: Final = 50_000
KEYS: Final = 1_000
SLICES: Final = 50
FIRST_MS: Final = 20_023 * 86_400_000  # a midnight
PLACE: Final = (
    "cast(0 AS int) AS source_partition",
    "id AS source_offset",
    f"{FIRST_MS} + id AS written_ms",
)


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
    for kind in ("history", "telemetry"):
        for frame in KINDS[kind][1](spark, WARM_UP):
            _computed(frame, clock)
    found: dict[str, dict[int, dict[str, float]]] = {}
    for kind, (sizes, frames_of) in KINDS.items():
        found[kind] = {}
        for size in sizes:
            found[kind][size] = _rates(size, *frames_of(spark, size), clock)
            print(f"pipeline: {kind} {size} {found[kind][size]}", flush=True)
    return found


def table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the rows of a page, from the result of `run`, read back from JSON."""
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


def _history(spark: SparkSession, size: int) -> tuple[DataFrame, DataFrame]:
    """Return commits in the form of the topic's records, and decoded."""
    keys = [encode_key(OffsetKey(group="g", topic="orders", partition=one)) for one in range(KEYS)]
    table = ", ".join(f"X'{key.hex()}'" for key in keys)
    value = (
        "concat(X'0004', unhex(lpad(hex(id), 16, '0')), X'00000005', X'01',"
        f" unhex(lpad(hex({FIRST_MS} + id), 16, '0')), X'00')"
    )
    raw = spark.range(0, size, 1, SLICES).selectExpr(
        f"element_at(array({table}), cast(id % {KEYS} AS int) + 1) AS key",
        f"{value} AS value",
        *PLACE,
    )
    return raw, commits_of(commit_records(raw))


def _states(spark: SparkSession, size: int) -> tuple[DataFrame, DataFrame]:
    """Return states of a group, each a generation, in the form of the topic's records."""
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
    raw = spark.range(0, size, 1, SLICES).selectExpr(
        f"X'{encode_key(GroupKey(group='g')).hex()}' AS key",
        f"concat(X'{before.hex()}', unhex(lpad(hex(id), 8, '0')), X'{after.hex()}') AS value",
        *PLACE,
    )
    return raw, assignments_of(group_records(raw))


def _telemetry(spark: SparkSession, size: int) -> tuple[DataFrame, DataFrame]:
    """Return telemetry: a member begins to work on four partitions each time."""
    envelope = Envelope(
        at_ms=FIRST_MS,
        group="g",
        member="a-1",
        generation=7,
        client="pod",
        record=ResourcesStarted(resources=ResourceSet({"orders": range(4)})),
    )
    before, _, after = json.dumps(to_json(envelope)).partition(str(FIRST_MS))
    lines = spark.range(0, size, 1, SLICES).selectExpr(
        "'file' AS source",
        "cast(null AS int) AS source_partition",
        "cast(null AS long) AS source_offset",
        "cast(null AS long) AS written_ms",
        f"concat('{before}', cast({FIRST_MS} + id AS string), '{after}') AS line",
    )
    return lines, work_of(events_of(read_lines(lines)))


def _lag(spark: SparkSession, size: int) -> tuple[DataFrame, DataFrame]:
    """Return end offsets of one topic, and the lag of one group: no join can divide the work."""
    partitions = size // MOMENTS
    ends = spark.range(0, size, 1, SLICES).selectExpr(
        "'orders' AS topic",
        f"cast(id % {partitions} AS int) AS partition",
        f"{FIRST_MS} + 60000 * (id DIV {partitions}) AS at_ms",
        "cast(0 AS long) AS begin",
        "100 * id AS end",
        "cast(null AS string) AS topic_id",
    )
    due = f"(id DIV {partitions}) % {COMMIT_MOMENTS} = id % {COMMIT_MOMENTS}"
    commits = spark.range(0, size, 1, SLICES).where(due)
    commits = commits.selectExpr(
        "'g' AS `group`",
        "'orders' AS topic",
        f"cast(id % {partitions} AS int) AS partition",
        f"{FIRST_MS} + 60000 * (id DIV {partitions}) AS at_ms",
        "100 * id AS committed",
        "false AS is_tombstone",
        "0 AS source_partition",
        "id AS source_offset",
        "cast(null AS string) AS topic_id",
    )
    members, generations = (
        spark.createDataFrame([], TABLES[name].schema) for name in ("members", "generations")
    )
    interests = interests_of(commits, members).localCheckpoint()
    subscribed = subscribed_moments(ends, interests, generations, members)
    return ends, lag_of(ends, in_log_order(commits), interests, subscribed, "latest")


KINDS: Final = {
    "history": (HISTORY, _history),
    "states of groups": (STATES, _states),
    "telemetry": (TELEMETRY, _telemetry),
    "lag": (LAG, _lag),
}


def _computed(frame: DataFrame, clock: CpuClock) -> dict[str, float]:
    """Return the seconds and CPU seconds that all rows of a frame take, and those of others."""
    began, (own_s, others_s) = time.perf_counter(), clock.read()
    frame.write.format("noop").mode("overwrite").save()
    own_end_s, others_end_s = clock.read()
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": own_end_s - own_s,
        "others_s": others_end_s - others_s,
    }


if __name__ == "__main__":
    show_table("pipeline", table, DOCS / "pipeline.md")
