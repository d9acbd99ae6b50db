"""`coopgroup bell`: the topic that tells members of a round ahead of their heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.broker_options import bootstrap_option, parse_settings
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.kafka.config.settings import read_settings, refusal_of_librdkafka
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name

__all__ = ["command"]

_DEFAULT_TOPIC: Final = "coopgroup-bell"
# The number of the cluster (`default.replication.factor`).
_OF_THE_CLUSTER: Final = -1
# Rings are old after a second. A segment is deleted only when it is closed, so both are short.
_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "compression.type": "uncompressed",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "1",
    "retention.ms": "600000",
    "segment.ms": "600000",
    "segment.bytes": "1048576",
}


class BellError(CoopgroupError):
    """The cluster did not create the topic."""


@click.group("bell", cls=PlainGroup)
def command() -> None:
    """Create the topic that tells members of a round ahead of their heartbeats."""


@command.command("create")
@click.option(
    "--topic", default=_DEFAULT_TOPIC, show_default=True, help="Name for coopgroup.bell.topic."
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="A member reads the rings of all groups on its partition.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Default: that of the cluster.",
)
@bootstrap_option
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Key of a client's configuration, such as security.protocol; can be repeated.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="How long to wait for the cluster.",
)
def create(
    *,
    topic: str,
    partitions: int,
    replication_factor: int | None,
    bootstrap_server: str,
    settings: Sequence[str],
    timeout_ms: int,
) -> int:
    """Create the topic of the bell, unless it exists."""
    if not is_topic_name(topic):
        raise ConfigurationError("--topic", topic, TOPIC_NAME_RULE)
    configuration = {
        "bootstrap.servers": bootstrap_server,
        "client.id": "coopgroup-bell",
        "group.id": "coopgroup-bell",
        "log_level": 0,
        **parse_settings(settings),
    }
    new = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=replication_factor or _OF_THE_CLUSTER,
        config=_SETTINGS,
    )
    is_new = _create(_admin(configuration), new, timeout_ms / 1000)
    click.echo(f"{topic} {'is created' if is_new else 'exists already'}")
    click.echo(f"Set coopgroup.bell.topic to {topic} for all members of a group.")
    return 0


def _admin(configuration: dict[str, Any]) -> AdminClient:
    settings = read_settings(configuration)
    try:
        Consumer(dict(settings.librdkafka)).close()  # an admin client gets known keys only
    except (KafkaException, TypeError, ValueError) as error:
        raise refusal_of_librdkafka(error, settings.librdkafka) from None
    return AdminClient(dict(settings.admin))


def _create(admin: AdminClient, topic: NewTopic, timeout_s: float) -> bool:
    """Create a topic; return False if it exists."""
    created = admin.create_topics([topic], request_timeout=timeout_s, operation_timeout=timeout_s)
    try:
        created[topic.topic].result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise BellError(f"{topic.topic} is not created: {cause.str()}") from None
    return True
