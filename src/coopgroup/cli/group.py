"""`coopgroup group`: inspect a running group from outside.

Facts and advice go to standard output. The exit status is 0 if there is a next step or nothing left
to do, and 1 if an obstacle blocks the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaException

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.broker_options import bootstrap_option, parse_settings
from coopgroup.cli.group_migration import judge
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.settings import read_settings, refusal_of_librdkafka
from coopgroup.kafka.rpc.describing import describe_group

__all__ = ["command"]

_EXIT_BLOCKED: Final = 1


@click.group("group", cls=PlainGroup)
def command() -> None:
    """Look at a running group, and say how it moves to coopgroup."""


@command.command("migrate")
@click.argument("group")
@click.option(
    "--check",
    is_flag=True,
    help="Required: print the next step, and change nothing. The steps themselves are restarts.",
)
@bootstrap_option
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Key of the consumer's configuration, such as security.protocol; can be repeated.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="How long to wait for the group coordinator.",
)
def migrate(
    *, group: str, check: bool, bootstrap_server: str, settings: Sequence[str], timeout_ms: int
) -> int:
    """Print the next step of GROUP on its way to coopgroup, or the obstacle."""
    if not check:
        raise click.UsageError(
            f"add --check: coopgroup group migrate {group} --check prints the next step, and "
            "changes nothing. The steps themselves are restarts of members."
        )
    configuration = {
        "bootstrap.servers": bootstrap_server,
        "client.id": "coopgroup-group",
        "group.id": group,
        "log_level": 0,
        **parse_settings(settings),
    }
    described = describe_group(_connection(configuration), group, timeout_ms)
    judgement = judge(group, described)
    for line in (*judgement.facts, judgement.advice):
        click.echo(line)
    return _EXIT_BLOCKED if judgement.is_blocked else 0


def _connection(configuration: dict[str, Any]) -> ConnectionSettings:
    """Validate a configuration and return its connection settings.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value.
    """
    settings = read_settings(configuration)
    try:
        Consumer(dict(settings.librdkafka)).close()
    except (KafkaException, TypeError, ValueError) as error:
        raise refusal_of_librdkafka(error, settings.librdkafka) from None
    return settings.connection
