"""A task of a sweep: it plays cells, and returns their parameters and costs as rows.

Rules of this file: the rows depend only on the arguments (except for the CPU time), so a task that
Spark runs twice gives the same rows. A cell that cannot be played gives a row with the reason,
because one failing seed must not cost the others.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from coopgroup.pipeline.sweep.grid import OPTION_AXES, Cell, scenario_of
from coopgroup.pipeline.sweep.order import kind_of
from coopgroup.pipeline.sweep.schema import SCHEMA
from coopgroup.simulator.comparison import MEASURES
from coopgroup.simulator.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from coopgroup.pipeline.sweep.order import Kind, Tasks
    from coopgroup.simulator.run import Run
    from coopgroup.simulator.scenario import Scenario

__all__ = ["play_cell", "play_tasks"]

_ERROR_LETTERS_MAX: Final = 500


def play_tasks(
    batches: Iterable[pa.RecordBatch],
    *,
    sweep: str,
    tasks: Tasks,
    scenarios: Mapping[str, Scenario],
    on_cell: Callable[[Kind, float], None],
) -> Iterator[pa.RecordBatch]:
    """Play the cells of the tasks with the given numbers, for `mapInArrow`.

    Args:
        batches: numbers of tasks, in a column `id`.
        sweep: name of the sweep.
        tasks: all possible tasks.
        scenarios: scenarios by name, at their own size.
        on_cell: receives the kind and the CPU seconds of each played cell.

    Yields:
        One batch with the columns of the table for each input batch.
    """
    schema = to_arrow_schema(SCHEMA)
    for batch in batches:
        rows = []
        for number in batch.column("id").to_pylist():
            for cell in tasks[number]:
                row = play_cell(cell, scenarios)
                on_cell(kind_of(cell), row["cpu_s"])
                rows.append(row | {"sweep": sweep})
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def play_cell(cell: Cell, scenarios: Mapping[str, Scenario]) -> dict[str, Any]:
    """Play one cell.

    Args:
        cell: the cell.
        scenarios: scenarios by name, at their own size.

    Returns:
        A row of the table, without the name of the sweep.
    """
    row = json.loads(cell.parameters)
    since_s = time.process_time()
    try:
        scenario = scenario_of(row, scenarios[row["scenario"]])
        found = _measured(simulate(scenario, seed=row["seed"]))
    except Exception as error:  # noqa: BLE001 - whatever a cell fails of is a row, not the end
        words = " ".join(f"{type(error).__name__}: {error}".split())
        found = {"error": words[:_ERROR_LETTERS_MAX]}
    return _parameters(cell, row) | found | {"cpu_s": time.process_time() - since_s}


def _parameters(cell: Cell, row: Mapping[str, Any]) -> dict[str, Any]:
    options = row["policy"]["options"]
    return {
        "key": cell.key,
        "scenario": row["scenario"],
        "policy": row["policy"]["name"],
        "assignor": row["assignor"]["name"],
        **{name: options.get(name) for name in OPTION_AXES},
        **row["group"],
        "size": row["size"],
        "seed": row["seed"],
        "parameters": cell.parameters,
        "version": row["version"],
    }


def _measured(run: Run) -> dict[str, Any]:
    worst = run.measures.worst_resource
    first = run.violations[0] if run.violations else None
    return {
        **{name: getattr(run.measures, name) for name in MEASURES},
        "worst_resource": None if worst is None else f"{worst.name} {worst.index}",
        "violations": len(run.violations),
        "violation": None if first is None else f"{first.checker}: {first.message}",
    }
