"""Embedded messages in the form of `coopgroup protocol`: JSON objects and hex.

The format is fixed: fields are added and never renamed. A field that a version lacks is null
(`owned` is an empty object). Keys are sorted. Input is strict: unknown or repeated fields, `true`
for 1, and values that the message cannot carry are refused. Otherwise they would be lost silently.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeAlias

from coopgroup.errors import ConfigurationError, EncodeError, InvalidValueError
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.protocol import (
    ASSIGNMENT_NEWEST,
    KAFKA_ASSIGNMENT_NEWEST,
    SUBSCRIPTION_NEWEST,
    Assignment,
    KafkaAssignment,
    Subscription,
    decode_assignment,
    decode_kafka_assignment,
    decode_subscription,
    encode_assignment,
    encode_kafka_assignment,
    encode_subscription,
)
from coopgroup.protocol.notes import without_note

__all__ = ["Dialect", "Kind", "decoded_item", "encoded_item", "error_line"]


class Kind(StrEnum):
    """Kinds of embedded messages."""

    SUBSCRIPTION = "subscription"
    ASSIGNMENT = "assignment"


class Dialect(StrEnum):
    """Formats of assignments."""

    COOPGROUP = "coopgroup"
    KAFKA = "kafka"


_Row: TypeAlias = dict[str, Any]

_NOT_HEX: Final = re.compile(r"[^0-9a-fA-F]")
_HEX_PER_BYTE: Final = 2
_TIMEOUT: Final = "scheduled_rebalance_timeout_ms"
_LOSS_TIMEOUT: Final = "loss_timeout_ms"  # shown only if present in the bytes
_SUBSCRIPTION_FIELDS: Final = frozenset(
    {"version", "topics", "user_data_hex", "owned", "generation", "rack"}
)
_ASSIGNMENT_FIELDS: Final = frozenset(
    {"version", "assigned", "revoked", _TIMEOUT, _LOSS_TIMEOUT, "user_data_hex"}
)


def decoded_item(text: str, kind: Kind, dialect: Dialect) -> str:
    """Translate hex to a JSON object on one line.

    Args:
        text: hex digits, in upper or lower case.
        kind: kind of the message.
        dialect: format of an assignment.

    Raises:
        DecodeError: the text is not hex or not such a message; offsets count bytes.
    """
    row = _DECODED[kind, dialect](_bytes_of(text))
    return _line(row)


def encoded_item(text: str, kind: Kind, dialect: Dialect) -> str:
    """Translate a JSON object to hex.

    Args:
        text: object in the form that `decoded_item` returns.
        kind: kind of the message.
        dialect: format of an assignment.

    Raises:
        EncodeError: the text is not such an object, or the message cannot carry a value.
    """
    row = _parsed(text)
    try:
        return _ENCODED[kind, dialect](row).hex()
    except ConfigurationError as error:  # an index exceeds int32
        raise EncodeError(str(error)) from None


def error_line(message: str, offset: int | None) -> str:
    """Return the answer to an unreadable item.

    Args:
        message: the error.
        offset: position of the first unreadable byte, None without bytes.
    """
    return _line({"error": " ".join(message.split()), "offset": offset})


def _line(row: _Row) -> str:
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def _bytes_of(text: str) -> bytes:
    if odd := _NOT_HEX.search(text):
        place = odd.start()
        raise InvalidValueError(f"{text[place]!r} is no hex digit", place // _HEX_PER_BYTE)
    if len(text) % _HEX_PER_BYTE:
        raise InvalidValueError("half a byte: the last hex digit is missing", len(text) // 2)
    return bytes.fromhex(text)


# --- showing -----------------------------------------------------------------------------------


def _subscription_row(content: bytes) -> _Row:
    subscription = decode_subscription(content)
    version = subscription.version
    return {
        "version": version,
        "topics": list(subscription.topics),
        "user_data_hex": _hex(subscription.user_data),
        "owned": subscription.owned.to_dict(),
        "generation": subscription.generation if version >= 2 else None,
        "rack": subscription.rack,
    }


def _assignment_row(content: bytes) -> _Row:
    assignment = decode_assignment(without_note(content))
    revoked, loss_ms = assignment.revoked, assignment.loss_timeout_ms
    return ({} if loss_ms is None else {_LOSS_TIMEOUT: loss_ms}) | {
        "version": assignment.version,
        "assigned": assignment.assigned.to_dict(),
        "revoked": None if revoked is None else revoked.to_dict(),
        _TIMEOUT: assignment.scheduled_rebalance_timeout_ms if assignment.version >= 2 else None,
        "user_data_hex": None,
    }


def _kafka_assignment_row(content: bytes) -> _Row:
    assignment = decode_kafka_assignment(content)
    return {
        "version": assignment.version,
        "assigned": assignment.assigned.to_dict(),
        "revoked": None,
        _TIMEOUT: None,
        "user_data_hex": _hex(assignment.user_data),
    }


def _hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


# --- taking ------------------------------------------------------------------------------------


def _encoded_subscription(row: _Row) -> bytes:
    _require_fields(row, _SUBSCRIPTION_FIELDS, "topics")
    subscription = Subscription(
        topics=_names(row["topics"]),
        user_data=_user_data(row),
        owned=_nullable_resources(row, "owned") or EMPTY,
        generation=_integer(row, "generation", default=-1),
        rack=_nullable_text(row, "rack"),
    )
    return encode_subscription(subscription, _integer(row, "version", default=SUBSCRIPTION_NEWEST))


def _encoded_assignment(row: _Row) -> bytes:
    _require_fields(row, _ASSIGNMENT_FIELDS, "assigned")
    _require_null(row, "user_data_hex")
    assignment = Assignment(
        assigned=_resources(row["assigned"], "assigned"),
        revoked=_nullable_resources(row, "revoked"),
        scheduled_rebalance_timeout_ms=_integer(row, _TIMEOUT, default=0),
        loss_timeout_ms=_nullable_integer(row, _LOSS_TIMEOUT),
    )
    return encode_assignment(assignment, _integer(row, "version", default=ASSIGNMENT_NEWEST))


def _encoded_kafka_assignment(row: _Row) -> bytes:
    _require_fields(row, _ASSIGNMENT_FIELDS, "assigned")
    _require_null(row, "revoked")
    _require_null(row, _TIMEOUT)
    _require_null(row, _LOSS_TIMEOUT)
    assignment = KafkaAssignment(
        assigned=_resources(row["assigned"], "assigned"), user_data=_user_data(row)
    )
    return encode_kafka_assignment(
        assignment, _integer(row, "version", default=KAFKA_ASSIGNMENT_NEWEST)
    )


def _parsed(text: str) -> _Row:
    try:
        row = json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise EncodeError(f"not JSON: {error.msg}, column {error.colno}") from None
    except EncodeError:  # before ValueError, because it is a subclass
        raise
    except RecursionError:
        raise EncodeError("not a message: nested too deeply") from None
    except ValueError:  # Python refuses integers of more than 4,300 digits
        raise EncodeError("not a message: a number is too long") from None
    if not isinstance(row, dict):
        _refuse("message", row, "a JSON object")
    return row


def _once_each(pairs: list[tuple[str, Any]]) -> _Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise EncodeError(f"{twice!r} stands twice in one object")
    return row


def _require_fields(row: _Row, known: Collection[str], required: str) -> None:
    unknown = sorted(row.keys() - known)
    if unknown:
        raise EncodeError(f"{unknown[0]!r} is no field, expected one of {', '.join(sorted(known))}")
    if required not in row:
        raise EncodeError(f"{required}: missing")


def _require_null(row: _Row, field: str) -> None:
    if row.get(field) is not None:
        _refuse(field, row[field], "null, as this message has no such field")


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        _refuse("topics", value, "a list of strings")
    return tuple(value)


def _resources(value: object, field: str) -> ResourceSet:
    if not isinstance(value, dict):
        _refuse(field, value, "an object of lists of integers")
    for name, indices in value.items():
        if not isinstance(indices, list) or not all(type(index) is int for index in indices):
            _refuse(f"{field} {name!r}", indices, "a list of integers")
    return ResourceSet(value)


def _nullable_resources(row: _Row, field: str) -> ResourceSet | None:
    value = row.get(field)
    return None if value is None else _resources(value, field)


def _integer(row: _Row, field: str, *, default: int) -> int:
    value = _nullable_integer(row, field)
    return default if value is None else value


def _nullable_integer(row: _Row, field: str) -> int | None:
    value = row.get(field)
    if value is not None and type(value) is not int:
        _refuse(field, value, "an integer or null")
    return value


def _nullable_text(row: _Row, field: str) -> str | None:
    value = row.get(field)
    if value is not None and not isinstance(value, str):
        _refuse(field, value, "a string or null")
    return value


def _user_data(row: _Row) -> bytes | None:
    text = _nullable_text(row, "user_data_hex")
    if text is None:
        return None
    if _NOT_HEX.search(text) or len(text) % _HEX_PER_BYTE:
        _refuse("user_data_hex", text, "pairs of hex digits")
    return bytes.fromhex(text)


def _refuse(field: str, value: object, expected: str) -> NoReturn:
    raise EncodeError(f"{field}: got {reprlib.repr(value)}, expected {expected}")


_DECODED: Final[dict[tuple[Kind, Dialect], Callable[[bytes], _Row]]] = {
    (Kind.SUBSCRIPTION, Dialect.COOPGROUP): _subscription_row,
    (Kind.SUBSCRIPTION, Dialect.KAFKA): _subscription_row,
    (Kind.ASSIGNMENT, Dialect.COOPGROUP): _assignment_row,
    (Kind.ASSIGNMENT, Dialect.KAFKA): _kafka_assignment_row,
}
_ENCODED: Final[dict[tuple[Kind, Dialect], Callable[[_Row], bytes]]] = {
    (Kind.SUBSCRIPTION, Dialect.COOPGROUP): _encoded_subscription,
    (Kind.SUBSCRIPTION, Dialect.KAFKA): _encoded_subscription,
    (Kind.ASSIGNMENT, Dialect.COOPGROUP): _encoded_assignment,
    (Kind.ASSIGNMENT, Dialect.KAFKA): _encoded_kafka_assignment,
}
