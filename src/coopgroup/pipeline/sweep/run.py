"""`run_sweep`: play the remaining cells of a sweep on Spark, and store the results.

Theory of operation. Cells go out in batches. Each batch is a Spark job that writes its own folder
below the table. A file counts from the moment when Spark commits it, so a kill leaves only whole
rows. The next run of the sweep first reads the finished cells. Two batches run concurrently: the
tasks of the next batch fill the cores during the last tasks of the first, so that no core waits for
a slow cell. A batch has some seconds of work, estimated from earlier batches (`sweep_order`). It is
small enough to lose little in a kill, and large enough to hide the overhead of a job.
"""

from __future__ import annotations

import contextlib
import uuid
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import define, field
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.spark.session import reason_of
from coopgroup.pipeline.spark.workers import settled
from coopgroup.pipeline.sweep.order import Backlog
from coopgroup.pipeline.sweep.play import play_tasks
from coopgroup.pipeline.sweep.schema import SCHEMA, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from coopgroup.pipeline.sweep.grid import Cell, Sweep
    from coopgroup.pipeline.sweep.order import Kind, Tasks
    from coopgroup.simulator.scenario import Scenario

__all__ = ["finished_keys", "read_results", "run_sweep"]

_UNDER_WAY: Final = 2


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
    path = f"{folder}/v{VERSION}"
    if not _exists(spark, path):
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(SCHEMA).option("recursiveFileLookup", value=True).parquet(path)


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
        on_progress: receives the number of played cells after each batch.

    Raises:
        PipelineError: Spark could not run a batch; earlier batches stay.
    """
    runner = _Runner(spark=spark, sweep=sweep, folder=folder)
    backlog = Backlog.of(cells, runner.scenarios, spark.sparkContext.defaultParallelism)
    with ThreadPoolExecutor(_UNDER_WAY) as pool:
        try:
            _play_all(runner, pool, backlog, on_progress)
        except BaseException:
            # After an interrupt by the user, the tasks would otherwise continue without a reader.
            with contextlib.suppress(Exception):
                spark.sparkContext.cancelJobsWithTag(runner.tag)
            raise


def _play_all(
    runner: _Runner,
    pool: ThreadPoolExecutor,
    backlog: Backlog,
    on_progress: Callable[[int], None],
) -> None:
    played = 0
    under_way: dict[Future[None], int] = {}
    while under_way or not backlog.is_empty:
        while len(under_way) < _UNDER_WAY and not backlog.is_empty:
            backlog.learn(runner.spent)
            tasks = backlog.take()
            under_way[pool.submit(runner.play, tasks)] = sum(map(len, tasks))
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for one in done:
            one.result()
            played += under_way.pop(one)
        on_progress(played)


class _Spent(AccumulatorParam["dict[Kind, tuple[int, float]]"]):
    """Number of played cells and their CPU seconds, by kind."""

    def zero(self, value: dict[Kind, tuple[int, float]]) -> dict[Kind, tuple[int, float]]:  # noqa: ARG002 - PySpark's signature
        """Return an empty count."""
        return {}

    def addInPlace(  # noqa: N802 - PySpark's name
        self, value1: dict[Kind, tuple[int, float]], value2: dict[Kind, tuple[int, float]]
    ) -> dict[Kind, tuple[int, float]]:
        """Return the sum as a new dictionary, because another thread may be reading the old one."""
        both = dict(value1)
        for kind, (count, seconds) in value2.items():
            before, before_s = both.get(kind, (0, 0.0))
            both[kind] = before + count, before_s + seconds
        return both


@define(kw_only=True)
class _Runner:
    """Runner of batches.

    Attributes:
        spark: the session.
        sweep: the sweep.
        folder: folder of the table.
        tag: tag of the jobs.
    """

    spark: SparkSession
    sweep: Sweep
    folder: str
    tag: str = field(factory=lambda: f"sweep-{uuid.uuid4()}")
    _spent: Accumulator[dict[Kind, tuple[int, float]]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start the accumulator."""
        self._spent = self.spark.sparkContext.accumulator({}, _Spent())

    @property
    def scenarios(self) -> dict[str, Scenario]:
        """Scenarios by name, at their own size."""
        return {one.scenario.name: one.scenario for one in self.sweep.scenarios}

    @property
    def spent(self) -> dict[Kind, tuple[int, float]]:
        """Number of played cells and their CPU seconds so far, by kind."""
        return self._spent.value

    def play(self, tasks: Tasks) -> None:
        """Play a batch and write its rows.

        Raises:
            PipelineError: Spark could not run the job.
        """
        self.spark.sparkContext.addJobTag(self.tag)
        # Spark ignores folders whose name begins with "_" or ".", and a sweep's name may begin so.
        path = f"{self.folder}/v{VERSION}/sweep-{self.sweep.name}/{uuid.uuid4()}"
        play = partial(
            play_tasks,
            sweep=self.sweep.name,
            tasks=tasks,
            scenarios=self.scenarios,
            on_cell=partial(_count, self._spent),
        )
        numbers = self.spark.range(0, len(tasks), 1, len(tasks))
        try:
            numbers.mapInArrow(partial(settled, play), SCHEMA).write.parquet(path)
        except (PySparkException, Py4JError) as error:
            raise PipelineError(f"Spark could not play the sweep: {reason_of(error)}") from error


def _count(spent: Accumulator[dict[Kind, tuple[int, float]]], kind: Kind, seconds: float) -> None:
    spent.add({kind: (1, seconds)})


def _exists(spark: SparkSession, path: str) -> bool:
    """Return whether a path exists, on any file system of Spark."""
    jvm = spark._jvm  # noqa: SLF001 - PySpark has no other way to ask Hadoop
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.fs.Path(path)
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - likewise
    return bool(hadoop.getFileSystem(configuration).exists(hadoop))
