"""`create` commands for the topics that members use for themselves: the bell's, and telemetry's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from coopgroup.cli.broker_options import bootstrap_option, config_option, pairs
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.kafka.config.settings import (
    ConsumerSettings,
    read_settings,
    refusal_of_librdkafka,
)
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name

__all__ = ["create_command", "settings_of"]

# The number of the cluster (`default.replication.factor`).
_OF_THE_CLUSTER: Final = -1
_DAY_MS: Final = 86_400_000


class TopicError(CoopgroupError):
    """The cluster did not create the topic."""


def create_command(
    *,
    about: str,
    key: str,
    default_topic: str,
    partitions_help: str,
    topic_settings: Mapping[str, str],
    retention_days: int | None = None,
) -> click.Command:
    """Return a command that creates a topic.

    Args:
        about: help text of the command.
        key: key of the members' configuration that names the topic.
        default_topic: its usual name, which is also the client id of the command.
        partitions_help: what the number of partitions decides.
        topic_settings: configuration of the topic.
        retention_days: default of the option `--retention-days`; None for no such option.
    """
    options = [
        click.option("--topic", default=default_topic, show_default=True, help=f"Name for {key}."),
        click.option(
            "--partitions",
            type=click.IntRange(min=1),
            default=8,
            show_default=True,
            help=partitions_help,
        ),
        click.option(
            "--replication-factor",
            type=click.IntRange(min=1),
            help="Default: that of the cluster.",
        ),
        bootstrap_option,
        config_option,
        click.option(
            "--timeout-ms",
            type=click.IntRange(min=1),
            default=10_000,
            show_default=True,
            help="How long to wait for the cluster.",
        ),
    ]
    if retention_days is not None:
        options.insert(
            3,
            click.option(
                "--retention-days",
                type=click.IntRange(min=1),
                default=retention_days,
                show_default=True,
                help="How long the cluster keeps a record.",
            ),
        )

    def create(
        *,
        topic: str,
        partitions: int,
        replication_factor: int | None,
        bootstrap_server: str,
        settings: Sequence[str],
        timeout_ms: int,
        retention_days: int | None = None,
    ) -> int:
        if not is_topic_name(topic):
            raise ConfigurationError("--topic", topic, TOPIC_NAME_RULE)
        kept = {} if retention_days is None else {"retention.ms": str(retention_days * _DAY_MS)}
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor or _OF_THE_CLUSTER,
            config={**topic_settings, **kept},
        )
        admin = AdminClient(dict(settings_of(default_topic, bootstrap_server, settings).admin))
        is_new = _create(admin, new, timeout_ms / 1000)
        click.echo(f"{topic} {'is created' if is_new else 'exists already'}")
        click.echo(f"Set {key} to {topic} for all members of a group.")
        return 0

    command: Any = create
    for option in reversed(options):
        command = option(command)
    return click.command("create", help=about)(command)


def settings_of(name: str, bootstrap_server: str, settings: Sequence[str]) -> ConsumerSettings:
    """Return the settings of a client of this name.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value.
    """
    configuration = {
        "bootstrap.servers": bootstrap_server,
        "client.id": name,
        "group.id": name,
        "log_level": 0,
        **pairs(settings, "--config"),
    }
    read = read_settings(configuration)
    try:
        Consumer(dict(read.librdkafka)).close()  # an admin client gets known keys only
    except (KafkaException, TypeError, ValueError) as error:
        raise refusal_of_librdkafka(error, read.librdkafka) from None
    return read


def _create(admin: AdminClient, topic: NewTopic, timeout_s: float) -> bool:
    """Create a topic; return False if it exists."""
    created = admin.create_topics([topic], request_timeout=timeout_s, operation_timeout=timeout_s)
    try:
        created[topic.topic].result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise TopicError(f"{topic.topic} is not created: {cause.str()}") from None
    return True
