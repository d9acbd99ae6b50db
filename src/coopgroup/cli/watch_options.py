"""Options of the commands that read a group from its brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaException

from coopgroup.cli.broker_options import pairs, settings_of
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.settings import read_settings, refusal_of_librdkafka
from coopgroup.watch.polling import Reader
from coopgroup.watch.reading import GroupReader
from coopgroup.watch.telemetry import TelemetryView
from coopgroup.watch.telemetry_topics import TelemetryReader

__all__ = ["connection_of", "group_configuration", "opened_reader", "telemetry_option"]

# The page of the live view draws the last half hour.
_TOLD_MS: Final = 1_800_000

telemetry_option = click.option(
    "--telemetry-topic",
    "topic",
    metavar="TOPIC",
    help="Topic with the telemetry of the members, for their leases and last polls, for rounds and "
    "why they came.",
)


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
        **pairs(settings, "--config"),
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


@contextmanager
def opened_reader(
    group: str, bootstrap_server: str, settings: Sequence[str], timeout_ms: int, topic: str | None
) -> Iterator[Reader]:
    """Yield a reader of a group, which also reads the telemetry in `topic` unless it is None.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value, or the topic cannot be read.
    """
    configuration = group_configuration(group, bootstrap_server, settings)
    connection = connection_of(configuration)
    found = read_settings(configuration)
    reset = found.offset_reset if "auto.offset.reset" in configuration else None
    with ExitStack() as last_first:
        reader: Reader = last_first.enter_context(
            closing(GroupReader(group, dict(found.admin), connection, timeout_ms / 1000, reset))
        )
        if topic is not None:
            since_ms = time.time_ns() // 1_000_000 - _TOLD_MS
            consumer = settings_of("coopgroup-watch", bootstrap_server, settings).librdkafka
            telemetry = TelemetryReader(consumer, topic, group, since_ms, timeout_ms / 1000)
            reader = TelemetryView(reader, last_first.enter_context(telemetry))
        yield reader
