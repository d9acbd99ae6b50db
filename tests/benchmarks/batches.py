"""Tables of many micro-batches: what one more batch costs, and what reading costs.

Every batch adds a version and small files to its tables. Delta lists all files in every tenth
commit, and readers open every file. So both costs grow with the number of batches, until
`coopgroup pipeline optimize` joins the files. This benchmark measures before and after `optimize`:

- one more batch of history, and one of telemetry: the mean of ten, because Delta writes a
  checkpoint of its log with every tenth commit. The code is that of the streams, without the
  stream around it;
- for a reader that has just opened the tables: the number of commits, all columns of all commits,
  and `episodes` of the whole history.

A batch is a minute of one group: a commit and a line of telemetry for each of its 20 partitions.
`optimize` runs with its default retention, so the replaced files stay.

Two thousand real batches would take an hour. So only the first batch and all measured batches are
real. Delta writes the files between them in a single commit, one file for each batch. Then this
commit is split into one version for each file. Files, statistics and names are Delta's. The log has
the same actions as the log of real batches, and a checkpoint. A size takes three CPU minutes.

    COOPGROUP_BENCH_BATCHES=8640 python -m tests.benchmarks.run batches    # one more size
    python -m tests.benchmarks.batches --write     # the last result into docs/pipeline.md
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sql

from coopgroup.pipeline.episodes.job import write_episodes
from coopgroup.pipeline.history import HISTORY_JOB, commit_records, commits_of, write_history
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.spark.session import LIGHT, build_session, connector_jars
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.telemetry import TOPIC_JOB, read_lines, work_of, write_telemetry
from coopgroup.pipeline.upkeep import optimize
from tests.benchmarks.cpu_clock import CpuClock
from tests.benchmarks.pipeline import PAGE, lines_of, records_of, spent, states_of
from tests.benchmarks.results import show_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["measure", "run", "table"]

BEGIN, END = "<!-- batches:begin -->", "<!-- batches:end -->"
BATCHES: Final = (1, 100, 2_000)
ROWS: Final = 20
"""Rows of a batch in a table. With more, `episodes` of the last size would no longer be small."""

MORE: Final = 10
WARM_UP: Final = 20
RETENTION_HOURS: Final = 168
_STEP_MS: Final = 60_000 // ROWS
_JAVA: Final = "spark.driver.extraJavaOptions"
_FILE_ROWS: Final = "spark.sql.files.maxRecordsPerFile"


def run(sizes: Sequence[int] = ()) -> dict[str, Any]:
    """Measure all sizes.

    Args:
        sizes: numbers of batches; by default `BATCHES`, and the number in COOPGROUP_BENCH_BATCHES.

    Returns:
        Figures by number of batches, from `measure`.
    """
    more = os.environ.get("COOPGROUP_BENCH_BATCHES")
    wanted = tuple(sizes) or (*BATCHES, *((int(more),) if more else ()))
    found = {}
    with tempfile.TemporaryDirectory(prefix="coopgroup-batches-") as folder:
        # The optimising compiler of Java would work during the first sizes only.
        spark = build_session(master="local[2]", jars=connector_jars(), extra={_JAVA: LIGHT[_JAVA]})
        measure(Tables(spark=spark, folder=f"{folder}/warm-up"), WARM_UP)
        for size in wanted:
            found[str(size)] = measure(Tables(spark=spark, folder=f"{folder}/{size}"), size)
            shutil.rmtree(f"{folder}/{size}")
        spark.stop()
    return {"sizes": found}


def table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the rows of a page, from the result of `run`, read back from JSON.

    Args:
        found: figures by number of batches, under `sizes`.
    """
    costs = ("history", "telemetry", "count", "read", "`episodes`", "`optimize`", "others")
    lines = [f"| batches | files | {' | '.join(costs)} |", f"|{'--:|' * (2 + len(costs))}"]
    for size, one in sorted(found["sizes"].items(), key=lambda pair: int(pair[0])):
        for state, joined in (("before", ""), ("after", f"{one['optimize_s']}")):
            row = one[state]
            lines.append(
                f"| {int(size):,}{', optimized' if joined else ''} | {row['files']:,}"
                f" | {row['history_s']} | {row['telemetry_s']} | {row['count_s']}"
                f" | {row['read_s']} | {row['episodes_s']} | {joined} | {row['others']} |"
            )
    return "\n".join(lines)


def measure(tables: Tables, size: int) -> dict[str, Any]:
    """Make tables of some batches, and measure before and after `optimize`.

    Args:
        tables: without any table.
        size: number of batches.

    Returns:
        Figures `before` and `after`: CPU seconds by name, the number of files of `commits`, and the
        cores that other programs used. `optimize_s`: CPU seconds of `optimize`.

    Raises:
        RuntimeError: the number of commits is wrong.
    """
    clock = CpuClock()
    write_batches(tables, range(1))
    write_lines(tables, range(1))
    if size > 1:
        fill(tables, size)
    before = _costs(tables, size, clock, settle_ms=5_000)
    print(f"batches: {size}: {before}", flush=True)
    joined = spent(lambda: optimize(tables, RETENTION_HOURS), clock)
    # With other settings than before, `episodes` computes everything again.
    after = _costs(tables, size + MORE, clock, settle_ms=5_001)
    print(f"batches: {size}, optimized: {after}", flush=True)
    return {"before": before, "optimize_s": round(joined["cpu_s"], 1), "after": after}


def _costs(tables: Tables, size: int, clock: CpuClock, *, settle_ms: int) -> dict[str, Any]:
    """Return the cost of reading tables of some batches, and then of one more batch."""
    files, more = int(tables.snapshot("commits").numOfFiles()), range(size, size + MORE)
    spans = {
        "count_s": spent(lambda: _check(tables, size), clock),
        "read_s": spent(lambda: _read(_opened(tables)), clock),
        "episodes_s": spent(lambda: write_episodes(_opened(tables), settle_ms), clock),
        "history_s": spent(lambda: write_batches(tables, more), clock),
        "telemetry_s": spent(lambda: write_lines(tables, more), clock),
    }
    _check(tables, size + MORE)
    times = {"history_s": MORE, "telemetry_s": MORE}
    others_s, seconds = (sum(one[key] for one in spans.values()) for key in ("others_s", "seconds"))
    return {
        "files": files,
        **{name: round(one["cpu_s"] / times.get(name, 1), 2) for name, one in spans.items()},
        "others": round(others_s / seconds, 2),
    }


def _check(tables: Tables, size: int) -> None:
    found = _opened(tables).read("commits").count()
    if found != size * ROWS:
        raise RuntimeError(f"commits has {found} rows after {size} batches, not {size * ROWS}")


def _read(tables: Tables) -> None:
    tables.read("commits").write.format("noop").mode("overwrite").save()


def _opened(tables: Tables) -> Tables:
    """Return the tables as a new process sees them, which has not read Delta's logs."""
    _forget(tables)
    return Tables(spark=tables.spark, folder=tables.folder)


def write_batches(tables: Tables, batches: range) -> None:
    """Write batches of history; the first one of all has a state of the group, too."""
    for batch in batches:
        rows = _records(tables, range(batch, batch + 1))
        if batch == 0:
            rows = rows.unionByName(states_of(tables.spark, range(1)))
        write_history(rows, tables, batch)


def write_lines(tables: Tables, batches: range) -> None:
    """Write batches of telemetry."""
    for batch in batches:
        write_telemetry(_lines(tables, range(batch, batch + 1)), tables, TOPIC_JOB, batch)


def _records(tables: Tables, batches: range) -> DataFrame:
    ids = range(batches.start * ROWS, batches.stop * ROWS)
    rows = records_of(tables.spark, ids, partitions=ROWS, step_ms=_STEP_MS)
    return rows.coalesce(1)  # a group has one partition of the topic


def _lines(tables: Tables, batches: range) -> DataFrame:
    ids = range(batches.start * ROWS, batches.stop * ROWS)
    return lines_of(tables.spark, ids, partitions=1, step_ms=_STEP_MS).coalesce(1)


# --- batches that are not written one by one ------------------------------------------------------


def fill(tables: Tables, size: int) -> None:
    """Add batches of history and of telemetry to tables with one batch of each.

    Args:
        tables: the tables.
        size: number of batches afterwards.
    """
    new, last = range(1, size), size - 1
    commits = commits_of(commit_records(_records(tables, new)))
    read = read_lines(_lines(tables, new)).where(sql.col("reason").isNull())
    events = read.select(*TABLES["events"].schema.names)
    frames = {
        HISTORY_JOB: {"commits": commits},
        TOPIC_JOB: {"events": events, "work": work_of(events)},
    }
    for job, of_job in frames.items():
        tables.spark.conf.set(_FILE_ROWS, ROWS)
        tables.append(job, last, of_job)
        tables.spark.conf.unset(_FILE_ROWS)
        versions = {name: _split(tables, name, last) for name in of_job}
        _repeat(tables, last - 2)
        _forget(tables)
        tables.record(job, versions, last)
    for name in ("commits", "events", "work", "batches"):
        _log_of(tables, name).checkpoint()
    _forget(tables)


def _split(tables: Tables, name: str, count: int) -> int:
    """Split the last version of a table into one version for each file.

    Args:
        tables: the tables.
        name: name of the table.
        count: number of files that the version must have.

    Returns:
        The last version afterwards.
    """
    version, actions = _last_version(tables, name)
    others = [one for one in actions if "add" not in one]
    files = [(json.loads(one["add"]["stats"]), one) for one in actions if "add" in one]
    if [stats["numRecords"] for stats, _ in files] != [ROWS] * count:
        raise RuntimeError(f"{name} has {len(files)} new files, not one for each batch")
    files.sort(key=lambda pair: pair[0]["minValues"]["at_ms"])
    for number, (_, file) in enumerate(files):
        _write_version(tables, name, version + number, [*others, file])
    return version + count - 1


def _repeat(tables: Tables, times: int) -> None:
    """Repeat the last version of `batches`, each time with a file that replaces the last one."""
    version, actions = _last_version(tables, "batches")
    (added,) = (one["add"] for one in actions if "add" in one)
    (removed,) = (one["remove"] for one in actions if "remove" in one)
    folder = Path(tables.path("batches"))
    for number in range(1, times + 1):
        removed["path"] = added["path"]
        added["path"] = f"{Path(removed['path']).parent}/part-00000-{uuid.uuid4()}.c000.parquet"
        shutil.copy(folder / removed["path"], folder / added["path"])
        _write_version(tables, "batches", version + number, actions)


def _last_version(tables: Tables, name: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of the last version of a table, and its actions."""
    version = tables.version(name)
    lines = _version_file(tables, name, version).read_text().splitlines()
    return version, [json.loads(line) for line in lines]


def _write_version(
    tables: Tables, name: str, version: int, actions: Sequence[Mapping[str, Any]]
) -> None:
    path = _version_file(tables, name, version)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in actions))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's, of the split version


def _version_file(tables: Tables, name: str, version: int) -> Path:
    return Path(tables.path(name), "_delta_log", f"{version:020}.json")


def _log_of(tables: Tables, name: str) -> Any:  # noqa: ANN401 - an object of Java
    session = tables.spark._jsparkSession  # noqa: SLF001 - PySpark has no other way
    return _logs(tables).forTable(session, tables.path(name))


def _forget(tables: Tables) -> None:
    """Let Delta forget the logs that it has read."""
    _logs(tables).clearCache()


def _logs(tables: Tables) -> Any:  # noqa: ANN401 - an object of Java
    jvm = tables.spark._jvm  # noqa: SLF001 - PySpark has no other way
    assert jvm is not None
    return jvm.org.apache.spark.sql.delta.DeltaLog


if __name__ == "__main__":
    show_table("batches", table, PAGE, BEGIN, END)
