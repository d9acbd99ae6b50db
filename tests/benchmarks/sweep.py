"""Sweeps on Spark: speed-up from one core to two, and what Spark costs a cell of 0.2 s.

Goals: 0.85 of linear speed-up from 1 to 2 cores; overhead below 20 %. Each master gets a process of
its own, since a session keeps its cores. Cells are of simulations/scale_up.toml, with a ration that
makes each take about 0.2 s of CPU time; a first sweep warms workers up and does not count.

The overhead is the time that the cores had, less what the cells took, as part of the latter. On a
machine that does other things besides, both figures say more about these than about sweeps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["measure", "run"]

CELLS: Final = 200
SCENARIO: Final = Path(__file__).resolve().parents[2] / "simulations" / "scale_up.toml"
GOAL_SPEED_UP: Final = 0.85
GOAL_OVERHEAD: Final = 0.2


def run(*, cells: int = CELLS) -> dict[str, Any]:
    """Measure with one core and with two.

    Args:
        cells: of the sweep that counts.

    Returns:
        By number of cores: seconds by the wall, CPU seconds of the cells, the mean of a cell, the
        overhead; and `speed_up`, as part of a linear one.
    """
    found = {f"{cores} cores": _apart(cores, cells) for cores in (1, 2)}
    speed_up = found["1 cores"]["wall_s"] / found["2 cores"]["wall_s"] / 2
    for name, values in found.items():
        print(f"{name}: {values}")
    print(f"speed-up: {speed_up:.2f} of linear (goal {GOAL_SPEED_UP})")
    return {**found, "speed_up": round(speed_up, 3)}


def measure(cores: int, cells: int) -> dict[str, float]:
    """Play sweeps in this process.

    Args:
        cores: of the master.
        cells: of the sweep that counts.
    """
    # Here, so that the benchmarks of other things need no Spark.
    from pyspark.sql import functions as sql  # noqa: PLC0415

    from coopgroup.pipeline.session import build_session  # noqa: PLC0415
    from coopgroup.pipeline.sweep_file import parse_sweep  # noqa: PLC0415
    from coopgroup.pipeline.sweep_grid import cells_of  # noqa: PLC0415
    from coopgroup.pipeline.sweep_run import read_results, run_sweep  # noqa: PLC0415

    spark = build_session(master=f"local[{cores}]")
    with tempfile.TemporaryDirectory() as folder:
        walls = []
        for name, count in (("warm", 4 * cores), ("real", cells)):
            text = (
                f"scenarios = {json.dumps(str(SCENARIO))}\nseeds = {count}\n"
                '[grid]\npolicies = "incremental"\nmax_moves_per_round = 4\n'
                "move_interval_ms = 4_000\n"
            )
            sweep = parse_sweep(text, file=f"{name}.toml")
            since_s = time.perf_counter()
            run_sweep(spark, sweep, cells_of(sweep), f"{folder}/{name}", on_progress=lambda _: None)
            walls.append(time.perf_counter() - since_s)
        ((cpu_s,),) = read_results(spark, f"{folder}/real").agg(sql.sum("cpu_s")).collect()
    spark.stop()
    return {
        "wall_s": round(walls[-1], 2),
        "cpu_s": round(cpu_s, 2),
        "cell_s": round(cpu_s / cells, 3),
        "overhead": round(cores * walls[-1] / cpu_s - 1, 3),
    }


def _apart(cores: int, cells: int) -> dict[str, float]:
    code = (
        "import json; from tests.benchmarks.sweep import measure; "
        f"print(json.dumps(measure({cores}, {cells})))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found
