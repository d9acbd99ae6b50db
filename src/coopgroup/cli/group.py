"""`coopgroup group`: inspect a running group from outside.

`describe` prints one snapshot; `coopgroup watch` shows the same all the time. Of `migrate`, facts
and advice go to standard output. The exit status is 0 if there is a next step or nothing left
to do, and 1 if an obstacle blocks the next step.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

import click

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.broker_options import Brokers, broker_options
from coopgroup.cli.group_migration import judge, judge_consumer_group
from coopgroup.cli.watch import CLIENT_ID, opened_reader, print_view, telemetry_option
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.rpc.describing import describe_group
from coopgroup.printable import printable
from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import to_json

_EXIT_BLOCKED: Final = 1
_NOT_CLASSIC: Final = "Dead"


@click.group("group", cls=PlainGroup)
def command() -> None:
    """Look at a running group, and say how it moves to coopgroup.

    Offsets are reset, and groups are deleted, by kafka-consumer-groups.sh of Kafka.
    """


@command.command("migrate")
@click.argument("group")
@click.option(
    "--check",
    is_flag=True,
    help="Required: print the next step, and change nothing. The steps themselves are restarts.",
)
@click.option("--back", is_flag=True, help="The group is on its way back to other clients.")
@broker_options()
def migrate(*, group: str, check: bool, back: bool, brokers: Brokers) -> int:
    """Print the next step of GROUP on its way to coopgroup, or the obstacle."""
    if not check:
        raise click.UsageError(
            f"add --check: coopgroup group migrate {group} --check prints the next step, and "
            "changes nothing. The steps themselves are restarts of members."
        )
    described = describe_group(
        brokers.client(CLIENT_ID, group).connection, group, brokers.timeout_ms
    )
    judgement = judge(group, described, is_back=back)
    if described.state == _NOT_CLASSIC:  # nothing, or a group that the broker assigns (KIP-848)
        with (
            suppress(ConfigurationError),
            opened_reader(group, brokers, None) as reader,
        ):
            view = GroupTracker().note(reader.read())
            if view.kind == "consumer":
                judgement = judge_consumer_group(view)
    for line in (*judgement.facts, *judgement.advice):
        click.echo(printable(line))  # members choose their own names
    return _EXIT_BLOCKED if judgement.is_blocked else 0


@command.command("describe")
@click.argument("group")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@telemetry_option
@broker_options()
def describe(
    *,
    group: str,
    as_json: bool,
    topic: str | None,
    brokers: Brokers,
) -> None:
    """Print members, owners and lags of GROUP, of any client; or who runs which resource."""
    with opened_reader(group, brokers, topic) as reader:
        view = GroupTracker().note(reader.read())
    if as_json:
        click.echo(json.dumps(to_json(view)))
    else:
        print_view(view)
