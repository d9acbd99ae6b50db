"""`coopgroup simulate`: play a scenario file once and show its costs.

The result depends only on the file, the policy, the assignor and the seed.
"""

from __future__ import annotations

import click
from attrs import evolve

from coopgroup.cli.choices import parse_choice
from coopgroup.cli.simulated import (
    at_work,
    complain_of,
    page_path,
    print_table,
    repeat_command,
    run_line,
    run_table,
    run_title,
)
from coopgroup.report import write_run_page
from coopgroup.report.wording import seconds
from coopgroup.simulator.run import simulate
from coopgroup.simulator.scenario import BY_BROKER, Scenario
from coopgroup.simulator.scenario.checks import check_choice, check_scenario
from coopgroup.simulator.scenario.file import read_scenario

__all__ = ["chosen", "command"]


@click.command("simulate")
@click.argument("file", metavar="FILE")
@click.option(
    "--policy",
    metavar="NAME[:KEY=VALUE,...]",
    help="Replaces the scenario's policy; a name alone has the scenario's options. `consumer` lets "
    "the broker assign (group.protocol=consumer).",
)
@click.option(
    "--assignor", metavar="NAME[:KEY=VALUE,...]", help="Replaces the scenario's assignor."
)
@click.option("--seed", default=1, show_default=True, help="Seed of the random numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--html", metavar="OUT", help="Write a page with everything that happened.")
@click.option(
    "--transcript",
    "with_transcript",
    is_flag=True,
    help="Print every event before the table (on standard error with --json).",
)
def command(
    *,
    file: str,
    policy: str | None,
    assignor: str | None,
    seed: int,
    as_json: bool,
    html: str | None,
    with_transcript: bool,
) -> int:
    """Play a scenario and measure what it costs.

    FILE is a scenario in TOML.
    """
    scenario = chosen(read_scenario(file), policy, assignor)
    label = policy if policy is not None else str(scenario.group.policy)
    page = page_path(html)
    with at_work(f"simulating {seconds(scenario.end_ms)}"):
        run = simulate(scenario, seed=seed, transcript=with_transcript)
    if with_transcript:
        for line in run.transcript:
            click.echo(line, err=as_json)
    if as_json:
        click.echo(run_line(run, label))
    else:
        print_table(run_title(run), run_table(run))
    if page is not None:
        with at_work("drawing"):
            write_run_page(run, page)
    return 1 if complain_of(run, repeat_command(file, label, assignor, seed)) else 0


def chosen(
    scenario: Scenario, policy: str | None, assignor: str | None, *, option: str = "--policy"
) -> Scenario:
    """Return the scenario with the policy and the assignor of the command line.

    Raises:
        ConfigurationError: a name is unknown or an option is wrong.
    """
    if policy is not None:
        choice = parse_choice(option, policy, scenario.policy_named)
        if choice != BY_BROKER:
            check_choice(option, choice)
        scenario = scenario.with_policy(choice)
    group = scenario.group
    if assignor is not None:
        group = evolve(group, assignor=parse_choice("--assignor", assignor))
        check_choice("--assignor", group.assignor)
    asked = evolve(scenario, group=group)
    check_scenario(asked)
    return asked
