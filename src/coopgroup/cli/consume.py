"""`coopgroup consume`: print records as a member of a group, and show its rebalances.

Records go to standard output, one per line. Events of the group go to standard error. Ctrl-C or
SIGTERM revokes the partitions, commits and leaves.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from coopgroup.cli.broker_options import bootstrap_option, config_option, pairs
from coopgroup.cli.choices import parse_choice, row_of
from coopgroup.cli.interruption import interruption
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.kafka.membership.subscription import read_topics
from coopgroup.printable import printable, printable_json

__all__ = ["command"]

_EXIT_REFUSED: Final = 1
_EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells do
_POLL_S: Final = 0.5


@click.command("consume")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--group", required=True, help="Consumer group to join.")
@bootstrap_option
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Without a committed offset, start at the oldest record.",
)
@click.option(
    "--policy", metavar="NAME[:KEY=VALUE,...]", help="When partitions move.  [default: simple]"
)
@click.option(
    "--assignor", metavar="NAME[:KEY=VALUE,...]", help="Where they go.  [default: sticky]"
)
@config_option
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON object.")
def command(  # noqa: PLR0913  (one parameter for each option)
    *,
    topics: Sequence[str],
    group: str,
    bootstrap_server: str,
    from_beginning: bool,
    policy: str | None,
    assignor: str | None,
    config: Sequence[str],
    max_records: int | None,
    as_json: bool,
) -> int:
    """Print the records of topics and show the rebalances of the group.

    A TOPIC that begins with ^ is a regular expression.
    """
    read_topics(list(topics))  # report wrong topics before connecting
    complain = _complain_once()
    configuration = {
        "bootstrap.servers": bootstrap_server,
        "group.id": group,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "client.id": "coopgroup-consume",
        "error_cb": complain,  # replaces librdkafka's own log
        "log_level": 0,
        **pairs(config, "--config"),
    }
    consumer = CooperativeConsumer(
        configuration,
        policy=None if policy is None else row_of(parse_choice("--policy", policy)),
        assignor=None if assignor is None else row_of(parse_choice("--assignor", assignor)),
    )
    try:
        with interruption() as interrupted, consumer:
            consumer.subscribe(
                list(topics),
                on_assign=_show("assigned"),
                on_revoke=_show("revoked"),
                on_lost=_show("lost"),
            )
            line = json_line if as_json else text_line
            _print_records(consumer, line, max_records, interrupted)
        return _EXIT_INTERRUPTED if interrupted.is_set() else 0
    except KafkaException as error:
        complain(error.args[0])
        return _EXIT_REFUSED


def text_line(message: Message) -> str:
    """Format a record as text: its position, its key if it has one, and its value."""
    place = f"{message.topic()}[{message.partition()}]@{message.offset()}"
    parts = [part for part in (message.key(), message.value()) if part is not None]
    return " ".join((place, *(part.decode(errors="backslashreplace") for part in parts)))


def json_line(message: Message) -> str:
    """Format a record as a JSON object; bytes that are not UTF-8 get a key with `_base64`."""
    _, timestamp_ms = message.timestamp()
    row = json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp_ms": timestamp_ms,
            **_plain("key", message.key()),
            **_plain("value", message.value()),
        },
        ensure_ascii=False,
    )
    return printable_json(row)


def _plain(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _show(what: str) -> Callable[[Any, list[TopicPartition]], None]:
    def show(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        by_topic: dict[str, list[str]] = {}
        for one in partitions:
            by_topic.setdefault(one.topic, []).append(str(one.partition))
        named = " ".join(f"{topic}[{','.join(by_topic[topic])}]" for topic in sorted(by_topic))
        click.echo(printable(f"{what}: {named} (member {consumer.memberid()})"), err=True)

    return show


def _print_records(
    consumer: CooperativeConsumer,
    line: Callable[[Message], str],
    count_max: int | None,
    interrupted: threading.Event,
) -> None:
    left = count_max
    while not interrupted.is_set() and (left is None or left > 0):
        message = consumer.poll(_POLL_S)
        if message is None:
            sys.stdout.flush()
            continue
        error = message.error()
        if error is not None:
            _complain(error)
            continue
        click.echo(line(message))
        left = None if left is None else left - 1


def _complain_once() -> Callable[[KafkaError], None]:
    """Print each kind of error once: librdkafka repeats it, and tells also what `poll` raises."""
    told: set[int] = set()

    def complain(error: KafkaError) -> None:
        if error.code() not in told:
            told.add(error.code())
            _complain(error)

    return complain


def _complain(error: KafkaError) -> None:
    click.echo(f"coopgroup: {_one_line(error)}", err=True)


def _one_line(error: KafkaError) -> str:
    return printable(" ".join(error.str().split()))
