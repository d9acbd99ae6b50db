"""`coopgroup pipeline advise`: which policy and time-outs a group's own history speaks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from attrs import evolve
from rich.table import Table

from coopgroup.cli.choices import parse_choice
from coopgroup.cli.pipeline.options import (
    Place,
    scope_options,
    tables_options,
)
from coopgroup.cli.simulated import page_path, print_table
from coopgroup.core.policies.built_in import create_policy
from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.spark.session import one_line
from coopgroup.printable import printable, printable_json
from coopgroup.report.advice_page import write_advice_page
from coopgroup.report.wording import counted

if TYPE_CHECKING:
    from coopgroup.pipeline.advice.choose import Advice
    from coopgroup.pipeline.advice.cost import MoveCost
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables
    from coopgroup.simulator.scenario import Choice


@click.command("advise")
@tables_options
@scope_options(requires_group=True)
@click.option(
    "--move-cost-ms",
    type=click.IntRange(min=0, max=3_600_000),
    help="Time from the assignment of a partition that moved to its first useful work; from "
    "telemetry if not given.",
)
@click.option(
    "--return-cost-ms",
    type=click.IntRange(min=0, max=3_600_000),
    help="The same of a partition that comes back to the process that had it.",
)
@click.option(
    "--today",
    metavar="NAME[:KEY=VALUE,...]",
    help="Policy that the group follows today; told from the history if not given.",
)
@click.option(
    "--likely-returns",
    type=click.Choice(["ignore", "use"]),
    default="ignore",
    show_default=True,
    help="Whether a newcomer with the client id and host of an absent member may count as its"
    " return. With `use`, the advice from proven returns stands beside it.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object in place of a table; of several groups a line each.",
)
@click.option("--html", metavar="OUT", help="Write a page with the advice; of one group.")
def command(
    *,
    place: Place,
    scope: Scope,
    move_cost_ms: int | None,
    return_cost_ms: int | None,
    today: str | None,
    likely_returns: str,
    as_json: bool,
    html: str | None,
) -> None:
    """Advise on policy and time-outs from the history.

    The group's absences are replayed in the simulator under each policy, and what each would have
    cost is compared.
    """
    page = page_path(html)
    choice = None if today is None else _policy(today)
    if page is not None and len(scope.groups) > 1:
        raise click.UsageError("--html: a page has one group; give one --group")
    tables = place.tables(is_brief=True)
    for group in scope.groups:
        with one_line():
            given = advice_for(
                *(tables, group, choice, scope.since_ms, move_cost_ms, return_cost_ms),
                uses_likely=likely_returns == "use",
            )
        if as_json:
            _print_json(given)
        else:
            _print(given)
        if page is not None:
            from coopgroup.pipeline.advice.view import view_of  # noqa: PLC0415 - an extra

            write_advice_page(view_of(given), page)


def _policy(text: str) -> Choice:
    """Return the policy of `--today`, refused before Spark starts if its kind is unknown."""
    choice = parse_choice("--today", text)
    try:
        create_policy(choice.name, choice.options)
    except ConfigurationError as error:
        raise ConfigurationError("--today", text, error.expected) from None
    return choice


def advice_for(
    tables: Tables,
    group: str,
    today: Choice | None = None,
    since_ms: int = 0,
    move_ms: int | None = None,
    return_ms: int | None = None,
    *,
    uses_likely: bool = False,
) -> Advice:
    """Return the advice for a group.

    Args:
        tables: tables with episodes.
        group: its name.
        today: its present policy; `None` derives it from the history.
        since_ms: begin of the history that counts, in ms since 1970.
        move_ms: cost of a move; `None` takes it from telemetry.
        return_ms: cost of a return; `None` likewise.
        uses_likely: whether likely returns count; then the advice has the proven one, too.

    Raises:
        PipelineError: the tables have no history of the group, or nothing to advise on.
    """
    from coopgroup.pipeline.advice.choose import advise  # noqa: PLC0415 - an extra
    from coopgroup.pipeline.advice.tables import history_of  # noqa: PLC0415 - likewise
    from coopgroup.pipeline.replay import ReplayedGroup, SparkPlay  # noqa: PLC0415 - likewise

    cost, notes = _cost(tables, group, move_ms, return_ms)

    def advice(*, uses_likely: bool) -> Advice:
        history = history_of(tables, group, today, since_ms, uses_likely=uses_likely)
        play = SparkPlay(spark=tables.spark, group=ReplayedGroup.of(history, cost))
        given = advise(evolve(history, notes=(*history.notes, *notes)), cost, play)
        for reason in play.errors[:1]:
            click.echo(f"coopgroup: a replay failed: {printable(reason)}", err=True)
        return given

    proven = advice(uses_likely=False)
    if not uses_likely or not proven.history.likely:
        return proven
    return evolve(advice(uses_likely=True), proven=proven)


def _cost(
    tables: Tables, group: str, move_ms: int | None, return_ms: int | None
) -> tuple[MoveCost, tuple[str, ...]]:
    """Return the given cost of a move, else that of telemetry, else nothing with a note."""
    from coopgroup.pipeline.advice.cost import MoveCost  # noqa: PLC0415 - an extra
    from coopgroup.pipeline.advice.tables import move_cost_of  # noqa: PLC0415 - likewise

    if move_ms is not None:
        back_ms = 0 if return_ms is None else return_ms
        return MoveCost(move_ms=move_ms, return_ms=min(back_ms, move_ms)), ()
    seen = move_cost_of(tables, group)
    if seen is not None:
        back_ms = seen.return_ms if return_ms is None else min(return_ms, seen.move_ms)
        return MoveCost(move_ms=seen.move_ms, return_ms=back_ms), ()
    note = (
        "The cost of a move is unknown, and 0 was assumed: give --move-cost-ms, or read the "
        "telemetry of the members."
    )
    return MoveCost(is_known=False), (note,)


def _print_json(given: Advice) -> None:
    from coopgroup.pipeline.advice.words import advice_json  # noqa: PLC0415 - an extra

    click.echo(printable_json(json.dumps(advice_json(given), ensure_ascii=False)))


def _print(given: Advice) -> None:
    from coopgroup.pipeline.advice.view import tried_rows  # noqa: PLC0415 - an extra
    from coopgroup.pipeline.advice.words import (  # noqa: PLC0415 - likewise
        headline,
        notes,
        period_words,
        reasons,
        snippet,
    )

    click.echo(printable(headline(given)))
    for sentence in reasons(given):
        click.echo(f"- {printable(sentence)}")
    for note in notes(given):
        click.echo(f"coopgroup: {printable(note)}", err=True)
    shown, more = tried_rows(given)
    table = Table()
    table.add_column("setting", overflow="fold", min_width=20)
    for column in ("out of service", "moves", "peak lag", "most at once"):
        table.add_column(column, justify="right")
    for row in shown:
        seconds, *others = row.cells
        name = f"{row.words}\n({row.role})" if row.role else row.words
        # The interval has a line of its own: all columns fit into 80 characters.
        table.add_row(name, seconds.replace(" (", "\n("), *others)
    under = ", with nine of ten resampled histories" if given.is_enough else ", without intervals"
    what = f"partition-seconds out of service and moves {period_words(given)}"
    print_table(f"Group {given.history.group}: {what}{under}", table)
    if more:
        click.echo(f"{counted(len(more), 'more setting')}: see --json, or --html")
    click.echo(snippet(given), nl=False)
