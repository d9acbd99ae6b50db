"""`run_sweep`: play the cells of a sweep on Spark, the longest first, and keep their rows.

Theory of operation. Cells of a *kind* (scenario, size, policy, assignor) take about the same time.
The table shows this time for every kind that has been played. So one cell of each new kind is
played first. Then one job plays all other cells, the longest first, in tasks of some seconds. The
tasks get shorter towards the end, so that all cores are busy until then.

Each task writes a file of its own. It counts from the moment when the task has ended, not when the
job ends (version 2 of Hadoop's commit algorithm). So a kill costs only the tasks under way, and
leaves whole rows. The next run of the sweep plays only the missing cells.

A row has the parameters of a cell first, and then its measures in the terms of the simulator (docs:
scenarios). A row with an `error` has no measures. `parameters` is the whole cell as JSON.
Parameters that a grid may vary also have their own columns, null if the policy has no such option.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from coopgroup.errors import one_line
from coopgroup.pipeline.spark.session import in_one_line
from coopgroup.pipeline.spark.workers import settled
from coopgroup.pipeline.sweep.grid import GROUP_AXES, OPTION_AXES, scenario_of
from coopgroup.simulator.comparison import MEASURES
from coopgroup.simulator.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from coopgroup.pipeline.sweep.grid import Cell, Sweep
    from coopgroup.simulator.scenario import Scenario

__all__ = [
    "AXES",
    "SCHEMA",
    "VERSION",
    "finished_keys",
    "first_of_each_kind",
    "kind_of",
    "play_cell",
    "read_results",
    "run_sweep",
    "tasks_of",
]

VERSION: Final = 1
"""Version of the columns; tables of another version are in another folder."""

AXES: Final = ("scenario", "policy", "assignor", *OPTION_AXES, *GROUP_AXES, "size")
"""Columns of a setting: all parameters except the seed."""

_TYPES: Final[dict[str, DataType]] = {
    "key": StringType(),
    "sweep": StringType(),
    "scenario": StringType(),
    "policy": StringType(),
    "assignor": StringType(),
    **dict.fromkeys((*OPTION_AXES, *GROUP_AXES, "size", "seed"), LongType()),
    "parameters": StringType(),
    "version": StringType(),
    **{
        name: DoubleType() if name == "unavailable_partition_s" else LongType() for name in MEASURES
    },
    "worst_resource": StringType(),
    "violations": IntegerType(),
    "violation": StringType(),
    "error": StringType(),
    "cpu_s": DoubleType(),
}
SCHEMA: Final = StructType(
    [StructField(name, kind, nullable=name != "key") for name, kind in _TYPES.items()]
)
"""Columns of the table: a row for each played cell."""

Kind: TypeAlias = tuple[str, int, str, str]
"""Scenario, size, policy and assignor of a cell."""

_TASK_S: Final = 2.5
"""Seconds of work in a task: PySpark itself needs a few hundredths for each."""

_TASK_S_MIN: Final = 0.5
_TASKS_LEFT: Final = 8  # minimum number of remaining tasks per core, so that the cores end together
_TICK_S: Final = 0.5
_ERROR_LETTERS_MAX: Final = 500


# --- the table ----------------------------------------------------------------------------------


def read_results(spark: SparkSession, folder: str) -> DataFrame:
    """Return the rows of a table of sweeps, one per key; rows without an error are preferred.

    Args:
        spark: the session.
        folder: folder of the table; it need not exist.
    """
    # A retried cell has two rows: the failure, and the later result.
    best_first = Window.partitionBy("key").orderBy(F.col("error").isNotNull())
    rows = _stored(spark, folder).withColumn("_rank", F.row_number().over(best_first))
    return rows.where("_rank = 1").drop("_rank")


def finished_keys(spark: SparkSession, folder: str, *, retry_failed: bool) -> frozenset[str]:
    """Return the keys of the cells of a table that need not be played again.

    Args:
        spark: the session.
        folder: folder of the table.
        retry_failed: whether failed cells are played again.
    """
    rows = _stored(spark, folder)
    if retry_failed:
        rows = rows.where(F.col("error").isNull())
    return frozenset(row.key for row in rows.select("key").collect())


def _stored(spark: SparkSession, folder: str) -> DataFrame:
    """Return every row of a table."""
    reader = spark.read.schema(SCHEMA).option("recursiveFileLookup", value=True)
    try:
        return reader.parquet(f"{folder}/v{VERSION}")
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], SCHEMA)


# --- playing ------------------------------------------------------------------------------------


def run_sweep(
    spark: SparkSession,
    sweep: Sweep,
    cells: Sequence[Cell],
    folder: str,
    *,
    on_progress: Callable[[int], None],
) -> None:
    """Play cells and store their rows.

    Args:
        spark: the session.
        sweep: the sweep of the cells.
        cells: the remaining cells.
        folder: folder of the table, on a file system that all tasks reach.
        on_progress: receives the number of played cells, again and again.

    Raises:
        PipelineError: Spark could not play the cells; the cells of earlier tasks stay.
    """
    if not cells:
        return
    context, tag = spark.sparkContext, f"sweep-{uuid.uuid4()}"
    played = context.accumulator(0)

    def play_all() -> None:
        context.addJobTag(tag)
        first, others = first_of_each_kind(cells, _costs(spark, folder))
        _play(spark, sweep, [(cell,) for cell in first], folder, played)
        costs = _costs(spark, folder)
        # If all cells of a kind have failed so far, each of its cells is a task.
        left = [(costs.get(kind_of(cell), _TASK_S), cell) for cell in others]
        _play(spark, sweep, tasks_of(left, context.defaultParallelism), folder, played)

    with ThreadPoolExecutor(1) as pool, in_one_line("Spark could not play the sweep"):
        job = pool.submit(play_all)
        try:
            while wait([job], _TICK_S).not_done:
                on_progress(played.value)
            job.result()
        except BaseException:
            # After an interrupt by the user, the tasks would otherwise continue without a reader.
            # Spark cancels only jobs that have begun, and another one may begin afterwards.
            while not job.done():
                with contextlib.suppress(Exception):
                    context.cancelJobsWithTag(tag)
                wait([job], _TICK_S)
            raise
    on_progress(len(cells))


def _costs(spark: SparkSession, folder: str) -> dict[Kind, float]:
    """Return the mean CPU seconds of a cell, by kind; a cell that failed may have ended early."""
    played = _stored(spark, folder).where(F.col("error").isNull())
    kinds = played.groupBy("scenario", "size", "policy", "assignor")
    rows = kinds.agg(F.avg("cpu_s").alias("cpu_s")).collect()
    return {(row.scenario, row["size"], row.policy, row.assignor): row.cpu_s for row in rows}


def _play(
    spark: SparkSession,
    sweep: Sweep,
    tasks: Sequence[tuple[Cell, ...]],
    folder: str,
    played: Accumulator[int],
) -> None:
    """Play the cells of tasks, and write the rows of each task as soon as it has ended."""
    if not tasks:
        return
    play = partial(_play_tasks, sweep=sweep.name, scenarios=sweep.bases, played=played)
    rows = spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(partial(settled, play))
    written = spark.createDataFrame(rows, SCHEMA).write
    # Spark ignores folders whose name begins with "_" or ".", and a sweep's name may begin so.
    path = f"{folder}/v{VERSION}/sweep-{sweep.name}/{uuid.uuid4()}"
    written.option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(path)


def _play_tasks(
    tasks: Iterable[tuple[Cell, ...]],
    *,
    sweep: str,
    scenarios: Mapping[str, Scenario],
    played: Accumulator[int],
) -> Iterator[dict[str, Any]]:
    for cells in tasks:
        for cell in cells:
            yield {"sweep": sweep} | play_cell(cell, scenarios)
            played.add(1)


def kind_of(cell: Cell) -> Kind:
    """Return the kind of a cell; cells of a kind take about the same time."""
    row = json.loads(cell.parameters)
    return row["scenario"], row["size"], row["policy"]["name"], row["assignor"]["name"]


def first_of_each_kind(
    cells: Iterable[Cell], known: Collection[Kind]
) -> tuple[list[Cell], list[Cell]]:
    """Return one cell of each kind that is not known, the largest first; and all other cells."""
    first: dict[Kind, Cell] = {}
    others = []
    for cell in cells:
        kind = kind_of(cell)
        if kind in known or first.setdefault(kind, cell) is not cell:
            others.append(cell)
    return [first[kind] for kind in sorted(first, key=lambda one: -one[1])], others


def tasks_of(cells: Iterable[tuple[float, Cell]], cores: int) -> list[tuple[Cell, ...]]:
    """Return cells in tasks of some seconds: the longest cells first, and shorter tasks at the end.

    Args:
        cells: cells with their expected seconds.
        cores: number of tasks that run in parallel.
    """
    ordered = sorted(cells, key=lambda one: one[0], reverse=True)
    left_s = sum(seconds for seconds, _ in ordered)
    tasks: list[list[Cell]] = []
    task_s = 0.0
    for seconds, cell in ordered:
        if task_s <= 0:
            task_s = min(_TASK_S, max(_TASK_S_MIN, left_s / (cores * _TASKS_LEFT)))
            tasks.append([])
        tasks[-1].append(cell)
        task_s -= seconds
        left_s -= seconds
    return list(map(tuple, tasks))


def play_cell(cell: Cell, scenarios: Mapping[str, Scenario]) -> dict[str, Any]:
    """Play one cell.

    Args:
        cell: the cell.
        scenarios: scenarios by name, at their own size.

    Returns:
        A row of the table, without the name of the sweep. It depends only on the arguments, except
        for the CPU time. A cell that cannot be played has an `error` in place of measures, because
        one failing seed must not cost the others.
    """
    row = json.loads(cell.parameters)
    options = row["policy"]["options"]
    since_s = time.process_time()
    try:
        found = _measured(scenario_of(row, scenarios[row["scenario"]]), row["seed"])
    except Exception as error:  # noqa: BLE001 - whatever a cell fails of is a row, not the end
        found = {"error": one_line(error)[:_ERROR_LETTERS_MAX]}
    return {
        "key": cell.key,
        "parameters": cell.parameters,
        "policy": row["policy"]["name"],
        "assignor": row["assignor"]["name"],
        **{name: row[name] for name in ("scenario", "size", "seed", "version")},
        **{name: options.get(name) for name in OPTION_AXES},
        **row["group"],
        **found,
        "cpu_s": time.process_time() - since_s,
    }


def _measured(scenario: Scenario, seed: int) -> dict[str, Any]:
    run = simulate(scenario, seed=seed)
    worst = run.measures.worst_resource
    first = run.violations[0] if run.violations else None
    return {
        **{name: getattr(run.measures, name) for name in MEASURES},
        "worst_resource": None if worst is None else f"{worst.name} {worst.index}",
        "violations": len(run.violations),
        "violation": None if first is None else f"{first.checker}: {first.message}",
    }
