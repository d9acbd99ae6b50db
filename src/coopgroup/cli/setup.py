"""`coopgroup setup`: the topics that members use for themselves, once for a cluster.

`--group` also sets the one setting of a group that a bell cannot do without: with KIP-848, the
broker waits by default for a second between two assignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from coopgroup.cli.broker_options import BrokerOptions, broker_options
from coopgroup.errors import ConfigurationError, TopicError
from coopgroup.kafka.config.keys import BELL_TOPIC, BELL_TOPIC_SETTINGS, TELEMETRY_TOPIC
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name
from coopgroup.kafka.rpc.questions import ASSIGNMENT_INTERVAL

# The number of the cluster (`default.replication.factor`).
_OF_THE_CLUSTER: Final = -1
_DAY_MS: Final = 86_400_000
_UNREACHABLE: Final = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
_TELEMETRY: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "segment.ms": "86400000",
}


@click.command("setup")
@click.option("--bell-topic", default=BELL_TOPIC, show_default=True, help="Topic of the bell.")
@click.option(
    "--telemetry-topic", default=TELEMETRY_TOPIC, show_default=True, help="Topic of telemetry."
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Of each topic. All records of a group are on one partition.",
)
@click.option(
    "--replication-factor", type=click.IntRange(min=1), help="Default: that of the cluster."
)
@click.option(
    "--retention-days",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="How long the cluster keeps telemetry.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help=f"Set {ASSIGNMENT_INTERVAL} of this group to 0: with group.protocol=consumer, the broker "
    "then assigns without a wait of up to 1 s. Kafka 4.3 or newer. May be repeated.",
)
@broker_options("the cluster")
def command(
    *,
    groups: tuple[str, ...],
    bell_topic: str,
    telemetry_topic: str,
    partitions: int,
    replication_factor: int | None,
    retention_days: int,
    brokers: BrokerOptions,
) -> None:
    """Create the topics that members use for themselves, unless they exist.

    It prints the rights that members need on them.
    """
    for option, topic in (("--bell-topic", bell_topic), ("--telemetry-topic", telemetry_topic)):
        if not is_topic_name(topic):
            raise ConfigurationError(option, topic, TOPIC_NAME_RULE)
    admin = AdminClient(dict(brokers.client("coopgroup-setup").admin))
    retention = {"retention.ms": str(retention_days * _DAY_MS)}

    def make(topic: str, configuration: Mapping[str, str]) -> None:
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor or _OF_THE_CLUSTER,
            config=dict(configuration),
        )
        is_new = _create(admin, new, brokers)
        click.echo(f"{topic} {'is created' if is_new else 'exists already'}")

    make(bell_topic, BELL_TOPIC_SETTINGS)
    make(telemetry_topic, {**_TELEMETRY, **retention})
    for group in groups:
        _assign_immediately(admin, group, brokers)
    server = brokers.bootstrap_server
    acl = f"  kafka-acls --bootstrap-server {server} --add --allow-principal User:NAME"
    click.echo("If access is controlled, members need these rights:")
    click.echo(f"{acl} --operation Read --operation Write --topic {bell_topic}")
    click.echo(f"{acl} --operation Write --topic {telemetry_topic}")
    for group in groups:  # the session timeout of KIP-848 is a setting of the group
        click.echo(f"{acl} --operation DescribeConfigs --group {group}")
    for key, topic, usual in (
        ("coopgroup.bell.topic", bell_topic, BELL_TOPIC),
        ("coopgroup.telemetry.topic", telemetry_topic, None),
    ):
        if topic != usual:
            click.echo(f"Set {key} to {topic} for members that are to use it.")
    click.echo(
        f"`coopgroup watch GROUP --telemetry-topic {telemetry_topic}` reads their telemetry."
    )


def _assign_immediately(admin: AdminClient, group: str, brokers: BrokerOptions) -> None:
    entry = ConfigEntry(ASSIGNMENT_INTERVAL, "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    altered = admin.incremental_alter_configs([resource], request_timeout=brokers.timeout_ms / 1000)
    try:
        altered[resource].result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() in _UNREACHABLE:
            raise TopicError(f"no broker answers at {brokers.bootstrap_server}") from None
        expected = f"a group of brokers that let you set {ASSIGNMENT_INTERVAL}, as Kafka 4.3 does"
        said = " ".join(cause.str().split())
        raise ConfigurationError("--group", group, f"{expected} ({said})") from None
    click.echo(f"{ASSIGNMENT_INTERVAL} of group {group} is 0")


def _create(admin: AdminClient, topic: NewTopic, brokers: BrokerOptions) -> bool:
    """Create a topic; return False if it exists."""
    timeout_s = brokers.timeout_ms / 1000
    created = admin.create_topics([topic], request_timeout=timeout_s, operation_timeout=timeout_s)
    try:
        created[topic.topic].result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if cause.code() in _UNREACHABLE:
            raise TopicError(f"no broker answers at {brokers.bootstrap_server}") from None
        raise TopicError(f"{topic.topic} is not created: {cause.str()}") from None
    return True
