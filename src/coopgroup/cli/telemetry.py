"""`coopgroup telemetry`: the topic that members write their telemetry to."""

from __future__ import annotations

import sys
import time
from typing import Final

import click

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.broker_options import BrokerOptions, broker_options
from coopgroup.kafka.config.keys import TELEMETRY_TOPIC
from coopgroup.printable import printable_json
from coopgroup.watch.telemetry_topics import TelemetryReader

_MINUTE_MS: Final = 60_000


@click.group("telemetry", cls=PlainGroup)
def command() -> None:
    """Read the topic that members write their telemetry to."""


@command.command("read")
@click.argument("topic", default=TELEMETRY_TOPIC)
@click.option("--group", help="Group to read; default: all groups.")
@click.option("--minutes", type=click.IntRange(min=1), help="Only records of the last MINUTES.")
@broker_options()
def read(
    *,
    topic: str,
    group: str | None,
    minutes: int | None,
    brokers: BrokerOptions,
) -> None:
    """Print the records of TOPIC up to now, one JSON object per line.

    The output has the format of telemetry files, for `coopgroup report` and `coopgroup pipeline`.
    """
    configuration = brokers.client("coopgroup-telemetry").librdkafka
    since_ms = None if minutes is None else time.time_ns() // 1_000_000 - minutes * _MINUTE_MS
    with TelemetryReader(
        configuration, topic, group, since_ms, brokers.timeout_ms / 1000
    ) as reader:
        for line in reader.read_to_end():
            shown = printable_json(line.decode(errors="replace"))  # a topic may hold anything
            sys.stdout.buffer.write(shown.encode() + b"\n")
    sys.stdout.flush()
