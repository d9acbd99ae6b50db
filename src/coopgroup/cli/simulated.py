"""Output of the simulator's commands: tables for people, JSON lines for programs."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from coopgroup.errors import ConfigurationError
from coopgroup.printable import printable
from coopgroup.report import require_bokeh
from coopgroup.report.measures import LABELS, Cell, comparison_rows, measure_rows
from coopgroup.report.verdict import verdict_of
from coopgroup.simulator.comparison import MEASURES, Spread, spread_of
from coopgroup.simulator.run import Run

_COMPLAINTS_MAX: Final = 5
_WIDTH_MAX: Final = 400
_BORDER: Final = 3  # a column's line and its two spaces
_NUMBER_MIN: Final = 6

# --- options ------------------------------------------------------------------------------------


def page_path(given: str | None) -> Path | None:
    """Validate the path of `--html` before anything is played; None without a path.

    Raises:
        MissingExtraError: Bokeh is not installed.
        ConfigurationError: the file cannot be written.
    """
    if given is None:
        return None
    require_bokeh()
    path = Path(given)
    reason = ""
    if not given or path.is_dir():
        reason = ", not a folder"
    elif not path.parent.is_dir():
        reason = " in a folder that exists"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = " that may be written"
    if reason:
        raise ConfigurationError("--html", given, f"a file{reason}")
    return path


def at_work(doing: str) -> AbstractContextManager[object]:
    """Show that the command is at work, if standard error is a terminal."""
    console = Console(stderr=True)
    return console.status(doing) if console.is_terminal else nullcontext()


def progress_bar() -> Progress:
    """Return a progress bar, which is shown if standard error is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


# --- tables -------------------------------------------------------------------------------------


def print_table(title: str, table: Table) -> None:
    """Print a table, at its natural width if the output is not a terminal."""
    console = _console()
    console.print(printable(title), markup=False, highlight=False)
    console.print(table)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH_MAX)


def run_title(run: Run) -> str:
    """Return the name and the parameters of a run."""
    return f"{run.scenario.name}: {run.scenario.group.policy}, {run.assignor}, seed {run.seed}"


def run_table(run: Run) -> Table:
    """Return the measures of one run, one row each."""
    table = Table("measure", Column("value", justify="right"))
    for row in measure_rows(run.measures):
        table.add_row(*row)
    table.add_row("invariants broken", f"{len(run.violations):,}")
    return table


def comparison_title(runs_by_policy: Mapping[str, Sequence[Run]]) -> str:
    """Return the name of the scenario and the number of runs."""
    runs = next(iter(runs_by_policy.values()))
    head = f"{runs[0].scenario.name}: {runs[0].assignor}"
    if len(runs) == 1:
        return f"{head}, seed {runs[0].seed}"
    return f"{head}, {len(runs)} seeds: median, and lowest to highest where they differ"


def comparison_table(runs_by_policy: Mapping[str, Sequence[Run]]) -> Table:
    """Return the measures with a column per policy: medians, with ranges where seeds differ."""
    seeds = len(next(iter(runs_by_policy.values())))
    table = Table(show_lines=seeds > 1)
    # In a narrow terminal the words of a measure stay whole, and numbers are folded.
    longest = max(len(word) for label in LABELS.values() for word in label.split())
    left = _console().width - longest - _BORDER - 1
    widest = max(_NUMBER_MIN, left // len(runs_by_policy) - _BORDER)
    table.add_column("measure", min_width=longest)
    for label in runs_by_policy:
        heading = label.replace(",", ", ")
        table.add_column(heading, justify="right", overflow="fold", max_width=widest)
    measured = {label: [run.measures for run in runs] for label, runs in runs_by_policy.items()}
    for row in comparison_rows(measured):
        table.add_row(row.label, *map(_cell_text, row.cells))
    broken = (sum(len(run.violations) for run in runs) for runs in runs_by_policy.values())
    table.add_row("invariants broken", *(f"{count:,}" for count in broken))
    return table


def print_verdict(runs_by_policy: Mapping[str, Sequence[Run]]) -> None:
    """Print the costs of all policies in one line, and which policy is best at which price."""
    measured = {policy: [run.measures for run in runs] for policy, runs in runs_by_policy.items()}
    scenario = next(iter(runs_by_policy.values()))[0].scenario
    verdict = verdict_of(measured, scenario.move_ms, returns_pay=scenario.returns_pay)
    if verdict is not None:
        for sentence in (verdict.summary, *verdict.sentences):
            _console().print(sentence, markup=False, highlight=False)


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return "never"
    return f"{cell.text}\n{cell.span}" if cell.span else cell.text


# --- JSON ---------------------------------------------------------------------------------------


def run_line(run: Run, label: str) -> str:
    """Return a run as one line of JSON."""
    worst = run.measures.worst_resource
    return json.dumps(
        {
            "scenario": run.scenario.name,
            "policy": label,
            "assignor": run.assignor,
            "seed": run.seed,
            **{name: getattr(run.measures, name) for name in MEASURES},
            "worst_resource": None if worst is None else list(worst),
            "violations": [attrs.asdict(violation) for violation in run.violations],
        },
        ensure_ascii=False,
    )


def policy_line(runs: Sequence[Run], label: str) -> str:
    """Return the runs of one policy as one line of JSON."""
    return json.dumps(
        {
            "scenario": runs[0].scenario.name,
            "policy": label,
            "assignor": runs[0].assignor,
            "seeds": [run.seed for run in runs],
            **{name: _spread_json(spread_of(name, runs)) for name in MEASURES},
            "violations": sum(len(run.violations) for run in runs),
        },
        ensure_ascii=False,
    )


def _spread_json(spread: Spread) -> dict[str, Any]:
    plain = {
        key: None if math.isinf(value) else value for key, value in attrs.asdict(spread).items()
    }
    return {"median": plain["median"], "min": plain["low"], "max": plain["high"]}


# --- complaints ---------------------------------------------------------------------------------


def complain_of(run: Run, command: str) -> bool:
    """Print violated invariants and the command to repeat the run; return whether there are any."""
    for violation in run.violations[:_COMPLAINTS_MAX]:
        where = f"{run.scenario.group.policy}, seed {run.seed}, {violation.at_ms} ms"
        message = printable(" ".join(violation.message.split()))
        click.echo(f"coopgroup: {where}: {violation.checker}: {message}", err=True)
    more = len(run.violations) - _COMPLAINTS_MAX
    if more > 0:
        click.echo(f"coopgroup: and {more} more of seed {run.seed}", err=True)
    if run.violations:
        click.echo(f"coopgroup: an invariant was broken; repeat it with: {command}", err=True)
    return bool(run.violations)


def repeat_command(file: str, policy: str, assignor: str | None, seed: int) -> str:
    """Return the command line that repeats a run."""
    words = ["coopgroup", "simulate", file, "--policy", policy, "--seed", str(seed)]
    if assignor is not None:
        words += ["--assignor", assignor]
    return shlex.join(words)
