"""`create` commands for the topics that members use for themselves: the bell's, and telemetry's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from coopgroup.cli.broker_options import Brokers, broker_options
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name

_Command = TypeVar("_Command", bound=Callable[..., Any])
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
    retention: Callable[[_Command], _Command] = lambda command: command  # noqa: E731
    if retention_days is not None:
        retention = click.option(
            "--retention-days",
            type=click.IntRange(min=1),
            default=retention_days,
            show_default=True,
            help="How long the cluster keeps a record.",
        )

    @click.command("create", help=about)
    @click.option("--topic", default=default_topic, show_default=True, help=f"Name for {key}.")
    @click.option(
        "--partitions",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        help=partitions_help,
    )
    @click.option(
        "--replication-factor",
        type=click.IntRange(min=1),
        help="Default: that of the cluster.",
    )
    @retention
    @broker_options("the cluster")
    def create(
        *,
        topic: str,
        partitions: int,
        replication_factor: int | None,
        retention_days: int | None = None,
        **brokers: Any,  # noqa: ANN401 - their options
    ) -> None:
        if not is_topic_name(topic):
            raise ConfigurationError("--topic", topic, TOPIC_NAME_RULE)
        kept = {} if retention_days is None else {"retention.ms": str(retention_days * _DAY_MS)}
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor or _OF_THE_CLUSTER,
            config={**topic_settings, **kept},
        )
        cluster = Brokers(**brokers)
        admin = AdminClient(dict(cluster.client(default_topic).admin))
        is_new = _create(admin, new, cluster.timeout_ms / 1000)
        click.echo(f"{topic} {'is created' if is_new else 'exists already'}")
        click.echo(f"Set {key} to {topic} for all members of a group.")

    return create


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
