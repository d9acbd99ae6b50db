"""`coopgroup protocol`: convert embedded messages from hex to JSON and back.

An item is the argument, or with `-` each line of standard input. Each item is answered on one line,
flushed before the next item is read. So a million lines need no more memory than one. The answer to
an unreadable item is its error, and the exit status becomes 2; later items are still answered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import BinaryIO, Final

import click

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.protocol_json import (
    Dialect,
    Kind,
    decoded_item,
    encoded_item,
    error_line,
)
from coopgroup.errors import DecodeError, EncodeError

__all__ = ["command"]

_STANDARD_INPUT: Final = "-"
_EXIT_REFUSED: Final = 2

_kind_option = click.option(
    "--kind",
    type=click.Choice([kind.value for kind in Kind]),
    required=True,
    help="Kind of the message.",
)
_dialect_option = click.option(
    "--dialect",
    type=click.Choice([dialect.value for dialect in Dialect]),
    default=Dialect.COOPGROUP.value,
    show_default=True,
    help="Format of an assignment: ours, or that of Kafka's clients (same for subscriptions).",
)


@click.group("protocol", cls=PlainGroup)
def command() -> None:
    """Encode and decode the embedded messages, one JSON object a line."""


@command.command("decode")
@_kind_option
@_dialect_option
@click.argument("item", metavar="HEX|-")
def decode(kind: str, dialect: str, item: str) -> int:
    """Print what the bytes in HEX say, as one JSON object.

    With `-`, each line of standard input is such an item.
    """
    return _answer(item, lambda text: decoded_item(text, Kind(kind), Dialect(dialect)))


@command.command("encode")
@_kind_option
@_dialect_option
@click.argument("item", metavar="JSON|-")
def encode(kind: str, dialect: str, item: str) -> int:
    """Print the bytes of a message as hex, in the `version` that JSON names (default: the newest).

    With `-`, each line of standard input is such an item.
    """
    return _answer(item, lambda text: encoded_item(text, Kind(kind), Dialect(dialect)))


def _answer(item: str, translated: Callable[[str], str]) -> int:
    items = sys.stdin.buffer if item == _STANDARD_INPUT else [os.fsencode(item)]
    return _answer_all(items, sys.stdout.buffer, translated)


def _answer_all(items: Iterable[bytes], answers: BinaryIO, translated: Callable[[str], str]) -> int:
    status = 0
    for item in items:
        try:
            answer = translated(item.decode(errors="surrogateescape").strip())
        except DecodeError as error:
            answer = error_line(error.message, error.offset)
            status = _EXIT_REFUSED
        except EncodeError as error:
            answer = error_line(str(error), None)
            status = _EXIT_REFUSED
        answers.write(answer.encode("ascii") + b"\n")
        answers.flush()
    return status
