"""A sweep on Spark: each cell once, also after a failure."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coopgroup.errors import PipelineError
from coopgroup.pipeline.sweep import run as sweep_run
from coopgroup.pipeline.sweep.grid import Cell, Sweep, cells_of, read_sweep
from coopgroup.pipeline.sweep.run import (
    SCHEMA,
    VERSION,
    finished_keys,
    play_cell,
    read_results,
    run_sweep,
)
from coopgroup.pipeline.sweep.summary import objections, only, settings_of
from coopgroup.report.charts import Spread
from tests.support.small_scenario import CRASH

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """\
scenarios = "small.toml"
seeds = 30

[grid]
policies = ["simple", "deferred"]
scheduled_rebalance_timeout_ms = [1_000, 8_000]
"""


# A task of seconds may take minutes if Spark gets a tenth of a core.
pytestmark = pytest.mark.timeout(480)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Return cells of three settings, in a file whose name looks like a hidden folder to Spark."""
    (tmp_path / "small.toml").write_text(CRASH)
    file = tmp_path / "_grid.toml"
    file.write_text(SWEEP)
    return read_sweep(file)


def failing(cell: Cell) -> Cell:
    """Return the same cell with an assignor that does not exist."""
    row = json.loads(cell.parameters)
    return Cell.of(row | {"assignor": {"name": "gone", "options": {}}})


KILLED = """
import os, signal, sys, time
from pathlib import Path
from coopgroup.pipeline.sweep import run
from coopgroup.pipeline.spark.session import LIGHT, build_session
from coopgroup.pipeline.sweep.grid import cells_of, read_sweep

folder, play = sys.argv[2], run._play_tasks

def stopping(tasks, **named):
    written = [one for one in Path(folder).rglob("part-*") if "_temporary" not in one.parts]
    if len(written) > 20:
        time.sleep(600)  # the job must not end before it is killed
    return play(tasks, **named)

def die(played):
    if played > 10:
        os.killpg(0, signal.SIGKILL)

run._play_tasks = stopping
run._TASK_S = run._TASK_S_MIN = run._TICK_S = 0.01
spark = build_session(master="local[1]", extra=LIGHT)
sweep = read_sweep(sys.argv[1])
run.run_sweep(spark, sweep, cells_of(sweep), folder, on_progress=die)
"""


def kept(spark: SparkSession, folder: str) -> dict[str, float]:
    """Return the CPU time of each row, by key: every row ever written, each once."""
    stored = spark.read.option("recursiveFileLookup", value=True).parquet(f"{folder}/v{VERSION}")
    rows = [(row.key, row.cpu_s) for row in stored.select("key", "cpu_s").collect()]
    assert len({key for key, _ in rows}) == len(rows)
    return dict(rows)


@pytest.mark.verify
def test_sweep_that_is_killed_is_played_to_its_end(
    spark: SparkSession, sweep: Sweep, tmp_path: Path
) -> None:
    """SIGKILL during its job: no cell is lost or repeated; a failed cell has its reason."""
    folder = str(tmp_path / "results")
    cells = cells_of(sweep)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "_grid.toml"), folder],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    before = kept(spark, folder)
    assert 0 < len(before) < len(cells)
    done = finished_keys(spark, folder, retry_failed=False)
    assert done == set(before)

    told: list[int] = []
    broken = failing(cells[2])
    left = [broken, *(cell for cell in cells if cell.key not in done)]
    run_sweep(spark, sweep, left, folder, on_progress=told.append)
    assert told[-1] == len(left)
    assert kept(spark, folder).items() >= before.items()

    rows = read_results(spark, folder).collect()
    assert sorted(row.key for row in rows) == sorted([broken.key, *(cell.key for cell in cells)])
    assert {row.sweep for row in rows} == {"_grid"}
    errors = {row.key: row.error for row in rows if row.error is not None}
    assert set(errors) == {broken.key}
    assert "'gone'" in errors[broken.key]
    assert broken.key not in finished_keys(spark, folder, retry_failed=True)

    expected = play_cell(cells[5], sweep.bases)
    found = next(row.asDict() for row in rows if row.key == cells[5].key)
    assert {name: found[name] for name in expected if name != "cpu_s"} == {
        name: value for name, value in expected.items() if name != "cpu_s"
    }

    chosen = only(read_results(spark, folder), [broken.key, *(cell.key for cell in cells)])
    settings = settings_of(chosen)
    assert [
        (one.parameters["policy"], one.parameters["scheduled_rebalance_timeout_ms"])
        for one in settings
        if one.parameters["assignor"] == "sticky"
    ] == [("simple", None), ("deferred", 1_000), ("deferred", 8_000)]
    assert sum(one.failed for one in settings) == 1
    assert settings[-1].spreads["moved"].high == 0  # the group waits until the process is back
    assert objections(chosen, 5) == (1, ((broken.parameters, errors[broken.key]),))


def test_sweep_when_nothing_can_be_written_says_so(
    spark: SparkSession, sweep: Sweep, tmp_path: Path
) -> None:
    """One line, without a Java stack trace."""
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(PipelineError) as refused:
        run_sweep(spark, sweep, cells_of(sweep)[:1], str(taken), on_progress=print)
    assert "\n" not in str(refused.value)


def test_setting_that_hardly_ever_converges_has_no_time_to_converge(spark: SparkSession) -> None:
    """The median counts runs that never converge; failed runs do not count."""
    found = {}
    for times_ms in ((1_000, 2_000, None), (1_000, None, None), (1_000,)):
        rows = [{"key": str(seed), "converge_ms": one} for seed, one in enumerate(times_ms)]
        rows += [{"key": "8", "error": "e"}, {"key": "9", "error": "e"}]
        made = spark.createDataFrame(rows, SCHEMA)
        (setting,) = settings_of(only(made, [str(number) for number in range(10)]))
        found[times_ms] = setting.spreads.get("converge_ms")
    assert found == {
        (1_000, 2_000, None): Spread(median=2_000, low=1_000, high=2_000),
        (1_000, None, None): None,
        (1_000,): Spread(median=1_000, low=1_000, high=1_000),
    }


@pytest.mark.verify
def test_an_interrupt_between_two_jobs_ends_the_sweep(
    spark: SparkSession, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark cancels only jobs that have begun."""
    reached: list[int] = []

    def waiting(cells: list[Cell], known: dict[sweep_run.Kind, float]) -> object:
        reached.append(len(cells))
        time.sleep(2)
        return [], cells

    def interrupt(_: int) -> None:
        if reached:
            raise KeyboardInterrupt

    monkeypatch.setattr(sweep_run, "first_of_each_kind", waiting)
    # No task ends before it is cancelled.
    monkeypatch.setattr(sweep_run, "_play_tasks", _never)
    begin_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spark, sweep, cells_of(sweep), str(tmp_path / "r"), on_progress=interrupt)
    assert time.monotonic() - begin_s < 50


def _never(*_: object, **__: object) -> object:
    time.sleep(60)
    return iter(())


def test_cells_that_failed_do_not_show_how_long_others_take(
    spark: SparkSession, sweep: Sweep, tmp_path: Path
) -> None:
    """Otherwise one task would play thousands of cells."""
    folder = str(tmp_path / "failed")
    cells = cells_of(sweep)[:2]
    bases = dict.fromkeys(sweep.bases)
    failed = [{"sweep": sweep.name} | play_cell(cell, bases) for cell in cells]  # type: ignore[arg-type]
    assert all(row["error"] for row in failed)
    spark.createDataFrame(failed, SCHEMA).write.parquet(f"{folder}/v{VERSION}/sweep")
    run_sweep(spark, sweep, cells, folder, on_progress=lambda _: None)
    played = read_results(spark, folder)
    assert played.where("error IS NULL").count() == len(cells)
    costs = sweep_run._costs(spark, folder)  # noqa: SLF001 - what it decides by
    (mean,) = costs.values()
    rows = played.select("cpu_s").collect()
    assert mean == pytest.approx(sum(row.cpu_s for row in rows) / len(rows))
