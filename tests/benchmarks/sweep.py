"""Sweeps on Spark: speed-up from one core to two, and Spark's cost for a cell of 0.2 s.

Goals: 0.85 of linear speed-up from 1 to 2 cores; overhead below 20 %. Each master gets its own
process, since a session keeps its cores. Cells are of simulations/scale_up.toml with a ration. The
simulated time is chosen so that a cell takes 0.2 s of CPU time on this machine. A few short sweeps
warm up the workers and Java. They are not counted, except in `start_s`.

- `overhead`: wall time of all cores less the time of the cells, as a share of the latter. It
  includes everything: waits, start of tasks, the driver, Java.
- `cpu_overhead`: CPU time of all processes less that of the cells, as a share of the latter. It
  is also valid on a busy machine, but does not include waits.
- `plain_cell_s`: a cell in its own process without Spark. Workers of Spark may be faster or
  slower: compare `cell_s`.
- `ceiling`: the throughput of two plain processes in parallel, as a share of twice the throughput
  of one. Cores that share caches or are threads of one core set this limit for any program.
  `of_ceiling` is the speed-up as a share of it.
- `others`: how many cores other programs kept busy meanwhile. Above some hundredths, wall times
  say more about these programs than about sweeps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.cpu_clock import CpuClock

if TYPE_CHECKING:
    from coopgroup.pipeline.sweep.grid import Cell, Sweep

__all__ = ["measure", "plain", "run"]

CELLS: Final = 200
CELL_S: Final = 0.2
PLAIN_CELLS: Final = 40
SCENARIO: Final = Path(__file__).resolve().parents[2] / "simulations" / "scale_up.toml"
DURATION: Final = "duration_ms = 180_000"
DURATION_MS: Final = 180_000
DURATION_MS_MIN: Final = 90_000  # every event has happened by then
GOAL_SPEED_UP: Final = 0.85
GOAL_OVERHEAD: Final = 0.2
ROUNDS: Final = 2
WARM: Final = 4  # short sweeps, until Java has compiled the code of a job


def run(*, cells: int = CELLS) -> dict[str, Any]:
    """Measure without Spark, with one core and with two.

    Args:
        cells: number in the measured sweep.

    Returns:
        By number of cores the result of `measure`; `plain_cell_s`, `ceiling`, and for Spark
        `speed_up` and `of_ceiling`.
    """
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "cell.toml"
        duration_ms = _calibrated(scenario)
        plain_cell_s, ceiling = _ceiling(scenario)
        found = {f"{cores} cores": _measured(scenario, cores, cells) for cores in (1, 2)}
    speed_up = found["1 cores"]["wall_s"] / found["2 cores"]["wall_s"] / 2
    for name, values in found.items():
        print(f"{name}: {values}")
    print(f"plain: {plain_cell_s:.3f} s a cell; two processes at once: {ceiling:.2f} of twice one")
    print(
        f"speed-up: {speed_up:.2f} of linear (goal {GOAL_SPEED_UP}), "
        f"{speed_up / ceiling:.2f} of what two processes have; overhead goal {GOAL_OVERHEAD}"
    )
    return {
        **found,
        "duration_ms": duration_ms,
        "plain_cell_s": round(plain_cell_s, 3),
        "ceiling": round(ceiling, 3),
        "speed_up": round(speed_up, 3),
        "of_ceiling": round(speed_up / ceiling, 3),
    }


def measure(scenario: str, cores: int, cells: int) -> dict[str, float]:
    """Play sweeps in this process.

    Args:
        scenario: path of its file.
        cores: of the master.
        cells: number in the measured sweep.

    Returns:
        `start_s`: time of the session and the short sweeps. For the measured sweep, in wall time
        and CPU time: the total, the mean of a cell, the overheads, and their causes.
    """
    began_s = time.perf_counter()
    # Imported here, so that the other benchmarks need no Spark.
    from pyspark.sql import functions as sql  # noqa: PLC0415

    from coopgroup.pipeline.spark.session import LIGHT, build_session  # noqa: PLC0415
    from coopgroup.pipeline.sweep.run import read_results, run_sweep  # noqa: PLC0415

    spark = build_session(master=f"local[{cores}]", extra=LIGHT)
    clock = CpuClock()
    with tempfile.TemporaryDirectory() as folder:

        def play(name: str, count: int) -> None:
            run_sweep(spark, *_sweep(scenario, count), f"{folder}/{name}", on_progress=_silent)

        for number in range(WARM):
            play(f"warm-{number}", 4 * cores)
        since_s, before = time.perf_counter(), clock.read()
        play("real", cells)
        wall_s, after = time.perf_counter() - since_s, clock.read()
        ((cells_s,),) = read_results(spark, f"{folder}/real").agg(sql.sum("cpu_s")).collect()
    spark.stop()
    spent = {name: after[name] - before.get(name, 0.0) for name in after}
    others_s = spent.pop("others")
    python = sum(seconds for name, seconds in spent.items() if name not in {"driver", "java"})
    return {
        "start_s": round(since_s - began_s, 2),
        "wall_s": round(wall_s, 2),
        "cells_s": round(cells_s, 2),
        "cell_s": round(cells_s / cells, 4),
        "overhead": round(cores * wall_s / cells_s - 1, 3),
        "cpu_overhead": round(sum(spent.values()) / cells_s - 1, 3),
        "java_s": round(spent.get("java", 0.0), 2),
        "driver_s": round(spent["driver"], 2),
        "workers_s": round(python - cells_s, 2),
        "others": round(others_s / wall_s, 2),
    }


def plain(scenario: str, cells: int) -> None:
    """Play cells without Spark after a line of input; print seconds of wall time and CPU time.

    Args:
        scenario: path of its file.
        cells: number of cells.
    """
    import gc  # noqa: PLC0415 - of use here only

    from coopgroup.pipeline.sweep.run import play_cell  # noqa: PLC0415 - an extra

    sweep, given = _sweep(scenario, cells)
    scenarios = sweep.bases
    play_cell(given[0], scenarios)
    gc.collect()
    gc.freeze()  # as Spark's workers do
    print("ready", flush=True)
    sys.stdin.readline()
    since_s = time.perf_counter()
    cpu_s = sum(play_cell(cell, scenarios)["cpu_s"] for cell in given)
    print(json.dumps([time.perf_counter() - since_s, cpu_s]), flush=True)


def _silent(_: int) -> None:
    """Ignore the progress."""


def _sweep(scenario: str, seeds: int) -> tuple[Sweep, tuple[Cell, ...]]:
    from coopgroup.pipeline.sweep.grid import cells_of, parse_sweep  # noqa: PLC0415 - an extra

    text = (
        f"scenarios = {json.dumps(scenario)}\nseeds = {seeds}\n"
        '[grid]\npolicies = "incremental"\nmax_moves_per_round = 4\nmove_interval_ms = 4_000\n'
    )
    sweep = parse_sweep(text, file="bench.toml")
    return sweep, cells_of(sweep)


def _calibrated(scenario: Path) -> int:
    """Write a scenario whose cells take `CELL_S`, and return its duration."""
    text = SCENARIO.read_text()
    assert DURATION in text

    def cell_s(duration_ms: int) -> float:
        scenario.write_text(text.replace(DURATION, f"duration_ms = {duration_ms}"))
        ((_, cpu_s),) = _together(scenario, 1, 5)
        return cpu_s / 5

    short_s, long_s = cell_s(DURATION_MS), cell_s(2 * DURATION_MS)
    slope = max(1e-9, (long_s - short_s) / DURATION_MS)
    duration_ms = max(DURATION_MS_MIN, round(DURATION_MS + (CELL_S - short_s) / slope))
    scenario.write_text(text.replace(DURATION, f"duration_ms = {duration_ms}"))
    return duration_ms


def _ceiling(scenario: Path) -> tuple[float, float]:
    """Return the CPU seconds of a plain cell, and `ceiling`."""
    alone, both = [], []
    for _ in range(ROUNDS):  # in turns: other load on the machine hits both
        alone += _together(scenario, 1, PLAIN_CELLS)
        both.append(_together(scenario, 2, PLAIN_CELLS))
    wall_s = min(wall for wall, _ in alone)
    both_s = min(sum(wall for wall, _ in pair) / len(pair) for pair in both)
    return min(cpu for _, cpu in alone) / PLAIN_CELLS, wall_s / both_s


def _together(scenario: Path, count: int, cells: int) -> list[tuple[float, float]]:
    """Return seconds of wall time and CPU time of plain processes that play cells in parallel."""
    code = f"from tests.benchmarks.sweep import plain; plain({str(scenario)!r}, {cells})"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    for one in processes:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    found = []
    for one in processes:
        said, _ = one.communicate()
        assert one.returncode == 0
        wall_s, cpu_s = json.loads(said)
        found.append((wall_s, cpu_s))
    return found


def _measured(scenario: Path, cores: int, cells: int) -> dict[str, float]:
    code = (
        "import json; from tests.benchmarks.sweep import measure; "
        f"print(json.dumps(measure({str(scenario)!r}, {cores}, {cells})))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found
