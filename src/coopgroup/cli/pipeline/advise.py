"""`coopgroup pipeline advise`: which policy and time-outs a group's own history speaks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from coopgroup.errors import ConfigurationError, PipelineError, said_by
from coopgroup.pipeline.spark.session import in_one_line
from coopgroup.printable import printable, printable_json
from coopgroup.report.advice_page import write_advice_page
from coopgroup.report.wording import counted

if TYPE_CHECKING:
    from coopgroup.pipeline.advice.choose import Advice
    from coopgroup.pipeline.advice.cost import MoveCost
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables
    from coopgroup.report.advice_page import AdviceView
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
    help="The same of a partition that comes back to the process that had it; at most the cost of "
    "a move.",
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
    if move_cost_ms is not None and (return_cost_ms or 0) > move_cost_ms:
        raise ConfigurationError(
            "--return-cost-ms", return_cost_ms, f"at most --move-cost-ms, {move_cost_ms}"
        )
    tables = place.tables(is_brief=True)
    from coopgroup.pipeline.advice.view import advice_json, view_of  # noqa: PLC0415 - an extra

    with in_one_line():
        found = advice_for(
            *(tables, scope.groups, choice, scope.since_ms, move_cost_ms, return_cost_ms),
            uses_likely=likely_returns == "use",
        )
    errors = [given for given in found.values() if isinstance(given, PipelineError)]
    for group, given in found.items():
        if isinstance(given, PipelineError):
            continue
        if as_json:
            click.echo(printable_json(json.dumps(advice_json(given), ensure_ascii=False)))
        else:
            _print(group, view_of(given))
        if page is not None:
            write_advice_page(view_of(given), page)
    for error in errors[:-1]:
        click.echo(f"coopgroup: {printable(said_by(error))}", err=True)
    if errors:
        raise errors[-1]


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
    groups: Sequence[str],
    today: Choice | None = None,
    since_ms: int = 0,
    move_ms: int | None = None,
    return_ms: int | None = None,
    *,
    uses_likely: bool = False,
    episodes_min: int = 0,
) -> dict[str, Advice | PipelineError]:
    """Return the advice for each group, or the reason against any.

    Args:
        tables: tables with episodes.
        groups: their names.
        today: present policy; `None` derives it from the history.
        since_ms: begin of the history that counts, in ms since 1970.
        move_ms: cost of a move; `None` takes it from telemetry.
        return_ms: cost of a return; `None` likewise.
        uses_likely: whether likely returns count; then the advice has the proven one, too.
        episodes_min: groups with fewer episodes, or without a history, are left out.
    """
    from coopgroup.pipeline.advice.choose import Advice, advise, search  # noqa: PLC0415 - an extra
    from coopgroup.pipeline.advice.from_tables import histories_of  # noqa: PLC0415 - likewise
    from coopgroup.pipeline.replay import ReplayedGroup, SparkPlay  # noqa: PLC0415 - likewise

    def advised(groups: Sequence[str], *, uses_likely: bool) -> dict[str, Advice | PipelineError]:
        read = histories_of(tables, groups, today, since_ms, uses_likely=uses_likely)
        found: dict[str, Advice | PipelineError] = {}
        histories = []
        for group, one in read.items():
            if not isinstance(one, PipelineError):
                if len(one.episodes) >= episodes_min:
                    histories.append(one)
            elif not episodes_min:
                found[group] = one
        costs = _costs(tables, [one.group for one in histories], move_ms, return_ms)
        pairs = [
            (evolve(one, notes=(*one.notes, *notes)), cost)
            for one, (cost, notes) in zip(histories, costs, strict=True)
        ]
        play = SparkPlay(
            spark=tables.spark, groups=[ReplayedGroup.of(one, cost) for one, cost in pairs]
        )
        given = advise([search(one, cost) for one, cost in pairs], play)
        for reason in play.errors[:1]:
            click.echo(f"coopgroup: a replay failed: {printable(reason)}", err=True)
        found |= {one.group: advice for one, advice in zip(histories, given, strict=True)}
        return {group: found[group] for group in groups if group in found}

    proven = advised(groups, uses_likely=False)
    likely = [
        group
        for group, one in proven.items()
        if uses_likely and isinstance(one, Advice) and one.history.likely
    ]
    for group, one in advised(likely, uses_likely=True).items() if likely else ():
        alone = proven[group]
        if isinstance(one, Advice) and isinstance(alone, Advice):
            proven[group] = evolve(one, proven=alone)
    return proven


def _costs(
    tables: Tables, groups: Sequence[str], move_ms: int | None, return_ms: int | None
) -> list[tuple[MoveCost, tuple[str, ...]]]:
    """Return the given cost of a move, else that of telemetry, else nothing with a note.

    Raises:
        ConfigurationError: the cost of a return does not fit that of a move.
    """
    from coopgroup.pipeline.advice.cost import MoveCost  # noqa: PLC0415 - an extra
    from coopgroup.pipeline.advice.from_tables import move_costs_of  # noqa: PLC0415 - likewise

    if move_ms is not None:
        return [(MoveCost(move_ms=move_ms, return_ms=return_ms or 0), ())] * len(groups)
    seen = move_costs_of(tables, groups) if groups else {}
    note = (
        "The cost of a move is unknown, and 0 was assumed: give --move-cost-ms, or read the "
        "telemetry of the members."
    )
    found: list[tuple[MoveCost, tuple[str, ...]]] = []
    for group in groups:
        cost = seen.get(group)
        if return_ms is not None:
            if cost is None or return_ms > cost.move_ms:
                raise ConfigurationError(
                    "--return-cost-ms",
                    return_ms,
                    f"--move-cost-ms beside it: no telemetry tells what a move of group {group} "
                    "costs"
                    if cost is None
                    else f"at most {cost.move_ms}, which a move of group {group} costs by its "
                    "telemetry",
                )
            cost = evolve(cost, return_ms=return_ms)
        found.append((MoveCost(is_known=False), (note,)) if cost is None else (cost, ()))
    return found


def _print(group: str, view: AdviceView) -> None:
    click.echo(printable(view.lead))
    for sentence in view.reasons:
        click.echo(f"- {printable(sentence)}")
    for note in view.notes:
        click.echo(f"coopgroup: {printable(note)}", err=True)
    table = Table()
    table.add_column("setting", overflow="fold", min_width=20)
    for column in ("out of service", "moves", "peak lag", "most at once"):
        table.add_column(column, justify="right")
    for row in view.rows:
        seconds, *others = row.cells
        name = f"{row.words}\n({row.role})" if row.role else row.words
        # The interval has a line of its own: all columns fit into 80 characters.
        table.add_row(name, seconds.replace(" (", "\n("), *others)
    print_table(f"Group {group}: {view.figures}", table)
    if view.more:
        click.echo(f"{counted(len(view.more), 'more setting')}: see --json, or --html")
    click.echo(view.snippet, nl=False)
