"""Embedded messages in the form of `coopgroup protocol`: JSON objects and hex.

The format is fixed: fields are added and never renamed. A field that a version of the subscription
lacks is null (`owned` is an empty object). Keys are sorted. Input is strict: unknown or repeated
fields, `true` for 1, and values that the message cannot carry are refused. Otherwise they would be
lost silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.errors import ConfigurationError, EncodeError, InvalidValueError
from coopgroup.protocol import (
    ASSIGNMENT_VERSION,
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
from coopgroup.reading import (
    INT32_MAX,
    Row,
    StrictConverter,
    between,
    parse_json,
    structure,
    wrong,
)

__all__ = ["Dialect", "Kind", "decoded_item", "encoded_item", "error_line"]


class Kind(StrEnum):
    """Kinds of embedded messages."""

    SUBSCRIPTION = "subscription"
    ASSIGNMENT = "assignment"


class Dialect(StrEnum):
    """Formats of assignments."""

    COOPGROUP = "coopgroup"
    KAFKA = "kafka"


_NOT_HEX: Final = re.compile(r"[^0-9a-fA-F]")
_HEX_PER_BYTE: Final = 2


def decoded_item(text: str, kind: Kind, dialect: Dialect) -> str:
    """Translate hex to a JSON object on one line.

    Raises:
        DecodeError: the text is not hex or not such a message; offsets count bytes.
    """
    row = _DECODED[kind, dialect](_bytes_of(text))
    return _line(row)


def encoded_item(text: str, kind: Kind, dialect: Dialect) -> str:
    """Translate a JSON object to hex.

    Raises:
        EncodeError: the text is not such an object, or the message cannot carry a value.
    """
    try:
        row, problem = parse_json(text.encode(errors="surrogateescape"), "message")
        if problem is not None:
            raise problem
        return structure(_CONVERTER, row, _MESSAGES[kind, dialect]).encoded().hex()
    except ConfigurationError as error:
        raise EncodeError(str(error)) from None


def error_line(message: str, offset: int | None) -> str:
    """Return the answer to an unreadable item."""
    return _line({"error": " ".join(message.split()), "offset": offset})


def _line(row: Row) -> str:
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def _bytes_of(text: str) -> bytes:
    if odd := _NOT_HEX.search(text):
        place = odd.start()
        raise InvalidValueError(f"{text[place]!r} is no hex digit", place // _HEX_PER_BYTE)
    if len(text) % _HEX_PER_BYTE:
        raise InvalidValueError("half a byte: the last hex digit is missing", len(text) // 2)
    return bytes.fromhex(text)


# --- showing -----------------------------------------------------------------------------------


def _subscription_row(content: bytes) -> Row:
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


def _assignment_row(content: bytes) -> Row:
    assignment = decode_assignment(content)
    added = {
        "loss_ends_in_ms": assignment.loss_ends_in_ms,
        "warmups": assignment.warmups.to_dict() or None,
        "topics_digest": assignment.topics_digest,
        "shared_digest": assignment.shared_digest,
    }
    return {
        "version": ASSIGNMENT_VERSION,
        "assigned": assignment.assigned.to_dict(),
        "revoked": None if assignment.revoked is None else assignment.revoked.to_dict(),
        "scheduled_rebalance_timeout_ms": assignment.rejoin_in_ms or 0,
        "user_data_hex": None,
        **{name: value for name, value in added.items() if value is not None},
    }


def _kafka_assignment_row(content: bytes) -> Row:
    assignment = decode_kafka_assignment(content)
    return {
        "version": assignment.version,
        "assigned": assignment.assigned.to_dict(),
        "revoked": None,
        "scheduled_rebalance_timeout_ms": None,
        "user_data_hex": _hex(assignment.user_data),
    }


def _hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


# --- taking ------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Subscription:
    version: int | None = None
    topics: tuple[str, ...]
    user_data_hex: bytes | None = None
    owned: ResourceSet | None = None
    generation: int | None = None
    rack: str | None = None

    def encoded(self) -> bytes:
        subscription = Subscription(
            topics=self.topics,
            user_data=self.user_data_hex,
            owned=EMPTY if self.owned is None else self.owned,
            generation=-1 if self.generation is None else self.generation,
            rack=self.rack,
        )
        version = SUBSCRIPTION_NEWEST if self.version is None else self.version
        return encode_subscription(subscription, version)


@frozen(kw_only=True)
class _Assignment:
    version: int | None = field(
        default=None, validator=between(ASSIGNMENT_VERSION, ASSIGNMENT_VERSION)
    )
    assigned: ResourceSet
    revoked: ResourceSet | None = None
    scheduled_rebalance_timeout_ms: int | None = field(
        default=None, validator=between(0, INT32_MAX)
    )
    user_data_hex: None = None
    loss_ends_in_ms: int | None = field(default=None, validator=between(0, INT32_MAX))
    warmups: ResourceSet | None = None
    topics_digest: int | None = None
    shared_digest: int | None = None

    def encoded(self) -> bytes:
        return encode_assignment(
            Assignment(
                assigned=self.assigned,
                revoked=self.revoked,
                rejoin_in_ms=self.scheduled_rebalance_timeout_ms or None,
                loss_ends_in_ms=self.loss_ends_in_ms,
                warmups=self.warmups or EMPTY,
                topics_digest=self.topics_digest,
                shared_digest=self.shared_digest,
            )
        )


@frozen(kw_only=True)
class _KafkaAssignment:
    version: int | None = None
    assigned: ResourceSet
    revoked: None = None
    scheduled_rebalance_timeout_ms: None = None
    user_data_hex: bytes | None = None

    def encoded(self) -> bytes:
        assignment = KafkaAssignment(assigned=self.assigned, user_data=self.user_data_hex)
        version = KAFKA_ASSIGNMENT_NEWEST if self.version is None else self.version
        return encode_kafka_assignment(assignment, version)


def _user_data(value: Any, _: Any) -> bytes:  # noqa: ANN401 - any value of JSON
    if not isinstance(value, str) or _NOT_HEX.search(value) or len(value) % _HEX_PER_BYTE:
        raise wrong("", value, "pairs of hex digits, or null")
    return bytes.fromhex(value)


def _only_null(value: Any, _: Any) -> None:  # noqa: ANN401
    if value is not None:
        raise wrong("", value, "null, as this message has no such field")


_CONVERTER: Final = StrictConverter("an object")
_CONVERTER.register_structure_hook(bytes, _user_data)
_CONVERTER.register_structure_hook(type(None), _only_null)

_DECODED: Final[dict[tuple[Kind, Dialect], Callable[[bytes], Row]]] = {
    (Kind.SUBSCRIPTION, Dialect.COOPGROUP): _subscription_row,
    (Kind.SUBSCRIPTION, Dialect.KAFKA): _subscription_row,
    (Kind.ASSIGNMENT, Dialect.COOPGROUP): _assignment_row,
    (Kind.ASSIGNMENT, Dialect.KAFKA): _kafka_assignment_row,
}
_MESSAGES: Final[
    dict[tuple[Kind, Dialect], type[_Subscription | _Assignment | _KafkaAssignment]]
] = {
    (Kind.SUBSCRIPTION, Dialect.COOPGROUP): _Subscription,
    (Kind.SUBSCRIPTION, Dialect.KAFKA): _Subscription,
    (Kind.ASSIGNMENT, Dialect.COOPGROUP): _Assignment,
    (Kind.ASSIGNMENT, Dialect.KAFKA): _KafkaAssignment,
}
