"""`coopgroup pipeline sql`: the answer to a query over the tables and their views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from rich.table import Table
from rich.text import Text

from coopgroup.cli.pipeline.options import Place, tables_options
from coopgroup.cli.simulated import print_table
from coopgroup.pipeline.spark.session import in_one_line
from coopgroup.printable import printable, printable_json
from coopgroup.report.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_MAX: Final = 1_000
_NUMBERS: Final = frozenset({"smallint", "int", "bigint", "double"})


@click.command("sql")
@click.argument("query")
@tables_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row, of all rows.")
def command(query: str, *, as_json: bool, place: Place) -> None:
    """Answer a QUERY over the tables, in the SQL of Spark.

    Beside the tables there are views: owners, outages_by_day, lag_by_hour, moves_by_trigger and
    worst_rebalances.
    """
    place.require_folder()
    from coopgroup.pipeline.views import create_views  # noqa: PLC0415 - needs the extra

    tables = place.tables(is_brief=True)
    with in_one_line():
        create_views(tables.spark, tables.folder)
    with in_one_line(query=query):
        found = tables.spark.sql(query)
        _print_json(found) if as_json else _print(found)


def _print_json(found: DataFrame) -> None:
    from pyspark.sql import functions as sql  # noqa: PLC0415 - needs the extra

    row = sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"})
    for one in found.select(row).toLocalIterator():
        click.echo(printable_json(one[0]))


def _print(found: DataFrame) -> None:
    # Spark writes times in UTC, Python would convert them to the zone of this machine.
    numbered = found.toDF(*(str(number) for number in range(len(found.columns))))
    texts = numbered.select(*(numbered[name].cast("string") for name in numbered.columns))
    rows = texts.limit(_ROWS_MAX + 1).collect()
    table = Table()
    for name, kind in found.dtypes:
        table.add_column(name, justify="right" if kind in _NUMBERS else "left")
    for row in rows[:_ROWS_MAX]:
        table.add_row(*map(_cell, row))
    has_more = len(rows) > _ROWS_MAX
    title = (
        f"The first {_ROWS_MAX:,} rows; --json prints all"
        if has_more
        else counted(len(rows), "row")
    )
    print_table(title, table)


def _cell(text: str | None) -> Text:
    """Return a value without markup and control characters: members choose their names."""
    return Text(printable(text or ""))
