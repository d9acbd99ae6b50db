"""Options of the commands that read a group from its brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException

from coopgroup.cli.broker_options import parse_settings
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.settings import read_settings, refusal_of_librdkafka
from coopgroup.watch.reading import GroupReader

__all__ = ["connection_of", "group_configuration", "reader_of"]


def group_configuration(
    group: str, bootstrap_server: str, settings: Sequence[str]
) -> dict[str, Any]:
    """Return the configuration for questions about a group.

    Raises:
        ConfigurationError: an argument of `--config` is not KEY=VALUE.
    """
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "coopgroup-group",
        "group.id": group,
        "log_level": 0,
        **parse_settings(settings),
    }


def connection_of(configuration: dict[str, Any]) -> ConnectionSettings:
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


def reader_of(
    group: str, bootstrap_server: str, settings: Sequence[str], timeout_ms: int
) -> GroupReader:
    """Return a reader of a group.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value.
    """
    configuration = group_configuration(group, bootstrap_server, settings)
    connection = connection_of(configuration)
    admin = dict(read_settings(configuration).admin)
    return GroupReader(group, admin, connection, timeout_ms / 1000)
