"""The job `lag` at scale: a day of one large group, with a moment every minute.

Spark writes the history straight into the tables, without a broker: one topic, one group, a commit
of each partition every ten minutes, and an hour in which the group has no member. One topic and one
group are the worst case, because no join by topic or group can divide the work.

The job runs twice: on the whole day, and again after one more moment, as `--follow` does. Each run
must end with the lag that follows from the history. Figures: CPU seconds and wall time, peak memory
of the JVM and of any Python worker, bytes of shuffles, the largest size of Spark's temporary files,
and the size of the tables.

    COOPGROUP_BENCH_PARTITIONS=100000 python -m tests.benchmarks.run lag    # one more size
    python -m tests.benchmarks.lag --write     # the last result into docs/pipeline.md
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import define
from pyspark.sql import functions as sql

from coopgroup.pipeline.lag import write_lag
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.spark.session import build_session, connector_jars
from coopgroup.pipeline.tables import Tables
from tests.benchmarks.cpu_clock import CpuClock, forget_peaks, peaks_mb
from tests.benchmarks.pipeline import PAGE
from tests.benchmarks.results import show_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure", "run", "table"]

BEGIN, END = "<!-- lag:begin -->", "<!-- lag:end -->"
PARTITIONS: Final = (1_000, 10_000)
MOMENTS: Final = 1_440
FIRST_MS: Final = 1_730_000_000_000
STEP_MS: Final = 60_000
PER_STEP: Final = 100  # records of a partition, at least
COMMIT_STEPS: Final = 10  # between two commits of a partition
STATE_STEPS: Final = 60  # between two states of the group
_EMPTY: Final = 5  # number of the state without members
_SLICES: Final = 48
_SAMPLE_S: Final = 0.5
_BYTES_PER_MB: Final = 1_000_000


def run(partitions: Sequence[int] = (), moments: int = MOMENTS) -> dict[str, Any]:
    """Measure all sizes.

    Args:
        partitions: number of partitions of each size; by default `PARTITIONS`, and the number in
            COOPGROUP_BENCH_PARTITIONS.
        moments: number of moments.

    Returns:
        Figures by number of partitions, from `measure`.
    """
    more = os.environ.get("COOPGROUP_BENCH_PARTITIONS")
    sizes = tuple(partitions) or (*PARTITIONS, *((int(more),) if more else ()))
    with tempfile.TemporaryDirectory(prefix="coopgroup-lag-") as folder:
        spilled = Path(folder, "spilled")
        spark = build_session(
            master="local[2]",
            jars=connector_jars(),
            extra={"spark.local.dir": str(spilled)},
        )
        found = {}
        for size in sizes:
            tables = Tables(spark=spark, folder=f"{folder}/{size}")
            found[str(size)] = measure(tables, size, moments, spilled)
        spark.stop()
    return {"sizes": found}


def table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the rows of a page, from the result of `run`, read back from JSON.

    Args:
        found: figures by number of partitions, under `sizes`.
    """
    lines = [
        "| partitions | rows | CPU s | a CPU s | growth | minute | JVM | shuffles | disk | lag |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    sizes = sorted(found["sizes"].items(), key=lambda pair: int(pair[0]))
    least = sizes[0][1]["rows_per_cpu_s"]
    for size, one in sizes:
        lines.append(
            f"| {int(size):,} | {one['rows']:,} | {one['whole']['cpu_s']}"
            f" | {one['rows_per_cpu_s']:,} | {least / one['rows_per_cpu_s']:.2f}"
            f" | {one['next']['cpu_s']} | {one['whole']['jvm_mb']} MB"
            f" | {one['whole']['shuffled_mb']:,} MB | {one['whole']['temporary_mb']:,} MB"
            f" | {one['lag_mb']:,} MB |"
        )
    return "\n".join(lines)


def measure(tables: Tables, partitions: int, moments: int, spilled: Path) -> dict[str, Any]:
    """Make a history, and run the job on all of it, then on one more moment.

    Args:
        tables: without any table.
        partitions: number of partitions.
        moments: number of moments.
        spilled: folder of Spark's temporary files.

    Returns:
        `rows` of the whole run, and rows per CPU second; figures of the `whole` run and of the
        `next` moment; sizes of the tables on disk.

    Raises:
        RuntimeError: the lag is wrong.
    """
    make_history(tables, partitions, range(moments))
    print(f"lag: {partitions} partitions: history made", flush=True)
    whole = _spent(tables, lambda: write_lag(tables, "latest"), spilled)
    check(tables, partitions, moments)
    print(f"lag: {partitions} partitions: {whole}", flush=True)
    sizes = {f"{name}_mb": _size(Path(tables.path(name))) for name in ("ends", "lag")}
    make_history(tables, partitions, range(moments, moments + 1))
    again = _spent(tables, lambda: write_lag(tables, "latest", with_loads=False), spilled)
    check(tables, partitions, moments + 1)
    print(f"lag: {partitions} partitions, next moment: {again}", flush=True)
    rows = partitions * moments
    return {
        "rows": rows,
        "rows_per_cpu_s": round(rows / whole["cpu_s"]),
        "whole": whole,
        "next": again,
        **sizes,
    }


def make_history(tables: Tables, partitions: int, moments: range) -> None:
    """Add moments to a history.

    Args:
        tables: the tables.
        partitions: number of partitions.
        moments: numbers of the moments, ascending; the first one is the number of the batch.
    """
    spark, batch = tables.spark, moments.start
    end = _end(sql.col("partition").cast("long"), sql.col("moment"))
    ends = _grid(spark, partitions, moments).select(
        sql.lit("orders").alias("topic"),
        "partition",
        _at_ms().alias("at_ms"),
        sql.lit(0).cast("long").alias("begin"),
        end.alias("end"),
        sql.lit(False).alias("is_present"),  # noqa: FBT003 - a value of the column
    )
    is_due = sql.col("moment") % COMMIT_STEPS == sql.col("partition") % COMMIT_STEPS
    commits = _filled(
        "commits",
        _grid(spark, partitions, moments).where(is_due),
        group=sql.lit("g"),
        topic=sql.lit("orders"),
        partition=sql.col("partition"),
        at_ms=_at_ms(),
        committed=end,
        is_tombstone=sql.lit(False),  # noqa: FBT003 - a value of the column
        written_ms=_at_ms(),
        source_partition=sql.lit(0),
        source_offset=sql.col("moment") * partitions + sql.col("partition"),
    )
    states = [number for number in moments if number % STATE_STEPS == 0]
    generations = _filled(
        "generations",
        spark.range(0, len(states), 1, 1).select(
            (sql.col("id") * STATE_STEPS + (states[0] if states else 0)).alias("moment")
        ),
        group=sql.lit("g"),
        at_ms=_at_ms() - STEP_MS // 2,
        source_offset=sql.col("moment"),
        member_count=sql.when(sql.col("moment") == _EMPTY * STATE_STEPS, 0).otherwise(1_000),
        is_tombstone=sql.lit(False),  # noqa: FBT003 - likewise
    )
    tables.append("history", batch, {"commits": commits, "generations": generations})
    tables.append("ends", batch, {"ends": ends})


def check(tables: Tables, partitions: int, moments: int) -> None:
    """Compare the table `lag` with the lag that follows from the history.

    Raises:
        RuntimeError: they differ.
    """
    lag = tables.read("lag")
    found = lag.agg(sql.count("*"), sql.sum("lag")).collect()[0]
    rows, total = partitions * moments, _lag_total(partitions, moments)
    if tuple(found) != (rows, total):
        raise RuntimeError(f"lag has {found[0]} rows and sum {found[1]}, not {rows} and {total}")


def _lag_total(partitions: int, moments: int) -> int:
    """Return the sum of all lags; without a commit, `latest` is a lag of 0."""
    total = 0
    for partition in range(partitions):
        first = partition % COMMIT_STEPS
        ends = _end(partition, np.arange(first, moments, dtype=np.int64))
        committed = np.repeat(ends[::COMMIT_STEPS], COMMIT_STEPS)[: ends.size]
        total += int((ends - committed).sum())
    return total


def _grid(spark: SparkSession, partitions: int, moments: range) -> DataFrame:
    """Return every partition at every moment: (partition, moment)."""
    ids = spark.range(moments.start * partitions, moments.stop * partitions, 1, _SLICES)
    return ids.select(
        (sql.col("id") % partitions).cast("int").alias("partition"),
        sql.expr(f"id div {partitions}").alias("moment"),
    )


def _at_ms() -> Any:  # noqa: ANN401 - a column
    return (sql.col("moment") * STEP_MS + FIRST_MS).cast("long")


def _end(partition: Any, moment: Any) -> Any:  # noqa: ANN401 - numbers or columns
    """Return the end of a partition: rates, begins and minutes differ, so files are not tiny."""
    begin, rate = partition * 7_919_333 % 1_000_003 * 1_000, PER_STEP + partition % 101
    return begin + moment * rate + (partition * 31 + moment * 7_919) % 97


def _filled(name: str, rows: DataFrame, **columns: Any) -> DataFrame:  # noqa: ANN401 - columns
    """Return rows of a table; other columns are null."""
    return rows.select(
        *(
            columns.get(one.name, sql.lit(None)).cast(one.dataType).alias(one.name)
            for one in TABLES[name].schema
        )
    )


def _spent(tables: Tables, job: Callable[[], None], spilled: Path) -> dict[str, float]:
    """Return what a job took."""
    clock, shuffled = CpuClock(), _shuffled(tables.spark)
    forget_peaks()
    began, before = time.perf_counter(), clock.read()
    with _watched(spilled) as peak:
        job()
    seconds, after = time.perf_counter() - began, clock.read()
    others_s = after.pop("others") - before.pop("others")
    return {
        "seconds": round(seconds, 1),
        "cpu_s": round(sum(after.values()) - sum(before.values()), 1),
        "others": round(others_s / seconds, 2),
        "shuffled_mb": round((_shuffled(tables.spark) - shuffled) / _BYTES_PER_MB),
        "temporary_mb": peak.mb,
        **peaks_mb(),
    }


def _shuffled(spark: SparkSession) -> int:
    """Return the bytes that shuffles have written so far."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no other way
    executors = context.statusStore().executorList(False)  # noqa: FBT003 - a method of Java
    places = range(executors.size())
    return sum(int(executors.apply(place).totalShuffleWrite()) for place in places)


@define
class _Peak:
    mb: int = 0


@contextmanager
def _watched(folder: Path) -> Iterator[_Peak]:
    """Sample the size of a folder; the result is the largest one."""
    peak, ended = _Peak(), threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_S):
            peak.mb = max(peak.mb, _size(folder))

    thread = threading.Thread(target=sample, name="disk")
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _size(folder: Path) -> int:
    """Return the size of all files below a folder, in MB."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(place, name).stat().st_size
            except OSError:  # deleted meanwhile
                continue
    return round(total / _BYTES_PER_MB)


if __name__ == "__main__":
    show_table("lag", table, PAGE, BEGIN, END)
