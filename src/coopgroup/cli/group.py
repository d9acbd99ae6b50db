"""`coopgroup group`: inspect a running group from outside.

`describe` prints one snapshot; `coopgroup watch` shows the same all the time. Of `migrate`, facts
and advice go to standard output. The exit status is 0 if there is a next step or nothing left
to do, and 1 if an obstacle blocks the next step.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Final

import click

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.broker_options import BrokerOptions, broker_options
from coopgroup.cli.group_migration import judge, judge_consumer_group
from coopgroup.cli.watch import CLIENT_ID, opened_reader, print_view, telemetry_option
from coopgroup.core.member import ErrorCode
from coopgroup.kafka.rpc.describing import GroupDescriber
from coopgroup.printable import printable
from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import to_json

_EXIT_BLOCKED: Final = 1
_CONSUMER: Final = "consumer"


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
@click.option(
    "--protocol",
    type=click.Choice(("classic", _CONSUMER)),
    default="classic",
    show_default=True,
    help="The group.protocol that members of coopgroup are to have.",
)
@broker_options()
def migrate(*, group: str, check: bool, back: bool, protocol: str, brokers: BrokerOptions) -> int:
    """Print the next step of GROUP on its way to coopgroup, or the obstacle."""
    if not check:
        raise click.UsageError(
            f"add --check: coopgroup group migrate {group} --check prints the next step, and "
            "changes nothing. The steps themselves are restarts of members."
        )
    to_consumer = protocol == _CONSUMER
    if back and to_consumer:
        raise click.UsageError("--back is the way to other clients, so --protocol has no meaning")
    with closing(GroupDescriber(brokers.client(CLIENT_ID, group).connection, group)) as describer:
        _, described = describer.describe(brokers.timeout_ms)
        _, assigned = describer.describe_consumers(brokers.timeout_ms)
    if assigned.error_code:
        knows = assigned.error_code != ErrorCode.UNSUPPORTED_VERSION
        judgement = judge(
            group, described, is_back=back, to_consumer=to_consumer, knows_consumer=knows
        )
    else:
        judgement = judge_consumer_group(group, assigned, is_back=back, to_consumer=to_consumer)
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
    brokers: BrokerOptions,
) -> None:
    """Print members, owners and lags of GROUP, of any client; or who runs which resource."""
    with opened_reader(group, brokers, topic) as reader:
        view = GroupTracker().note(reader.read())
    if as_json:
        click.echo(json.dumps(to_json(view)))
    else:
        print_view(view)
