"""`coopgroup sweep`: play a grid of scenarios, policies and settings on Spark.

Results are kept. An interrupted or extended sweep continues where it stopped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import attrs
import click
from rich.table import Table

from coopgroup.cli.pipeline.options import Place, place_options
from coopgroup.cli.simulated import page_path, print_table, progress_bar
from coopgroup.pipeline.spark.session import LIGHT, build_session, in_one_line
from coopgroup.pipeline.sweep.grid import cells_of, read_sweep
from coopgroup.report.charts import MEASURE_WORDS, labelled, value_text, varied
from coopgroup.report.sweep_page import write_sweep_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from coopgroup.pipeline.sweep.grid import Sweep
    from coopgroup.report.charts import Setting

_ROWS_MAX: Final = 60
_OBJECTIONS_MAX: Final = 5


@click.command("sweep")
@click.argument("file", metavar="FILE")
@place_options(
    click.option(
        "--results",
        "folder",
        default="",
        metavar="FOLDER",
        help="Where the table is, or is to be; NAME-results for a sweep NAME otherwise.",
    ),
    "Further jars for Spark; a sweep itself needs none.",
)
@click.option("--retry-failed", is_flag=True, help="Play cells again that failed before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a setting.")
@click.option("--html", metavar="OUT", help="Write a page with curves and heat maps.")
def command(
    *,
    file: str,
    place: Place,
    retry_failed: bool,
    as_json: bool,
    html: str | None,
) -> int:
    """Play a grid of scenarios and settings on Spark.

    FILE is a sweep in TOML. Cells that the results have already are not played again.
    """
    sweep = read_sweep(file)
    page = page_path(html)
    folder = place.folder or f"{sweep.name}-results"
    light = {**LIGHT, **place.settings}
    spark = build_session(master=place.master, jars=place.jars, extra=light)
    with in_one_line():
        found, count, first = _swept(spark, sweep, folder, retry_failed=retry_failed)
    _show(sweep, found, as_json=as_json)
    if page is not None:
        write_sweep_page(_title(sweep), found, page)
    _complain(count, first)
    return 1 if count else 0


def _swept(
    spark: SparkSession, sweep: Sweep, folder: str, *, retry_failed: bool
) -> tuple[Sequence[Setting], int, Sequence[tuple[str, str]]]:
    """Play the remaining cells, and return the results of all cells."""
    from coopgroup.pipeline.sweep import run, summary  # noqa: PLC0415 - an extra

    cells = cells_of(sweep)
    done = run.finished_keys(spark, folder, retry_failed=retry_failed)
    left = [cell for cell in cells if cell.key not in done]
    click.echo(f"{len(cells):,} cells, {len(cells) - len(left):,} of them played before", err=True)
    with progress_bar() as progress:
        bar = progress.add_task("simulating", total=len(left))
        run.run_sweep(
            spark,
            sweep,
            left,
            folder,
            on_progress=lambda played: progress.update(bar, completed=played),
        )
    found = run.read_results(spark, folder)
    rows = summary.only(found, [cell.key for cell in cells]).cache()
    return summary.settings_of(rows), *summary.objections(rows, _OBJECTIONS_MAX)


def _title(sweep: Sweep) -> str:
    return sweep.description or sweep.name.replace("_", " ")


def _show(sweep: Sweep, settings: Sequence[Setting], *, as_json: bool) -> None:
    if as_json:
        for one in settings:
            click.echo(json.dumps({"sweep": sweep.name, **attrs.asdict(one)}))
        return
    names = list(varied(settings)) or ["policy"]
    table = Table()
    for name in names:
        table.add_column(name.replace("_", " "), justify="left")
    for words in MEASURE_WORDS.values():
        table.add_column(words, justify="right")
    for one in settings[:_ROWS_MAX]:
        parameters = [labelled(name, one.parameters[name]) for name in names]
        table.add_row(*parameters, *(_cell(one, measure) for measure in MEASURE_WORDS))
    print_table(f"{_title(sweep)}: medians over seeds", table)
    if len(settings) > _ROWS_MAX:
        click.echo(f"and {len(settings) - _ROWS_MAX:,} more settings: --html and --json show all")


def _cell(setting: Setting, measure: str) -> str:
    spread = setting.spreads.get(measure)
    return "never" if spread is None else value_text(measure, spread.median)


def _complain(count: int, first: Sequence[tuple[str, str]]) -> None:
    for parameters, words in first:
        click.echo(f"coopgroup: {_cell_words(json.loads(parameters))}: {words}", err=True)
    if count > len(first):
        click.echo(f"coopgroup: and {count - len(first):,} more cells", err=True)


def _cell_words(row: dict[str, Any]) -> str:
    return (
        f"{row['scenario']}, {row['policy']['name']} {json.dumps(row['policy']['options'])}, "
        f"{row['assignor']['name']}, size {row['size']}, seed {row['seed']}"
    )
