"""One interface for the codecs of all kinds: rows of `reference` in, rows out."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.choices import MemberChoices
from coopgroup.protocol import (
    Assignment,
    KafkaAssignment,
    Subscription,
    UserData,
    decode_assignment,
    decode_kafka_assignment,
    decode_subscription,
    decode_user_data,
    encode_assignment,
    encode_kafka_assignment,
    encode_subscription,
    encode_user_data,
)
from tests.unit.core.protocol.reference import Row

Value = Subscription | Assignment | KafkaAssignment | UserData

DECODERS: Mapping[str, Callable[[bytes], Value | None]] = {
    "subscription": decode_subscription,
    "assignment": decode_assignment,
    "kafka_assignment": decode_kafka_assignment,
    "user_data": decode_user_data,
}


def value_of(kind: str, row: Row) -> Value:
    match kind:
        case "subscription":
            return Subscription(
                topics=tuple(row["topics"]),
                user_data=_bytes(row["user_data_hex"]),
                owned=ResourceSet(row["owned"]),
                generation=-1 if row["generation"] is None else row["generation"],
                rack=row["rack"],
                version=row["version"],
            )
        case "assignment":
            return Assignment(
                assigned=ResourceSet(row["assigned"]),
                revoked=None if row["revoked"] is None else ResourceSet(row["revoked"]),
                rejoin_in_ms=row["rejoin_in_ms"],
                loss_ends_in_ms=row["loss_ends_in_ms"],
                warmups=ResourceSet(row["warmups"]),
                topics_digest=row["topics_digest"],
                shared_digest=row["shared_digest"],
            )
        case "kafka_assignment":
            return KafkaAssignment(
                assigned=ResourceSet(row["assigned"]),
                user_data=_bytes(row["user_data_hex"]),
                version=row["version"],
            )
        case _:
            return _user_data(row)


def encode(value: Value, version: int) -> bytes:
    """Return the bytes of a value in one version; our own messages have only one."""
    match value:
        case Subscription():
            return encode_subscription(value, version)
        case Assignment():
            return encode_assignment(value)
        case KafkaAssignment():
            return encode_kafka_assignment(value, version)
        case UserData():
            return encode_user_data(value)


def ascending(row: Row) -> Row:
    """Return the row with all resources sorted, as our encoder writes them."""
    sorted_row: dict[str, Any] = dict(row)
    for name in ("owned", "assigned", "revoked", "warm", "warmups", "declined", "declined_warmups"):
        if isinstance(row.get(name), dict):
            sorted_row[name] = {key: sorted(row[name][key]) for key in sorted(row[name])}
    if "topics" in row:
        sorted_row["topics"] = sorted(row["topics"])
    return sorted_row


def _user_data(row: Row) -> UserData:
    units, warm = row["consumption_rate"], row["warm"]
    return UserData(
        rejoin_in_ms=row["rejoin_in_ms"],
        loss_ends_in_ms=row["loss_ends_in_ms"],
        consumption_rate_per_s=None if units is None else units / 1_000,
        catalogue_version=row["catalogue_version"],
        warm=None if warm is None else ResourceSet(warm),
        host=row["host"],
        declined=ResourceSet(row["declined"]),
        declined_warmups=ResourceSet(row["declined_warmups"]),
        hands_over=row["hands_over"] == 1,
        traits={} if row["traits"] is None else json.loads(row["traits"]),
        choices=None
        if row["policy"] is None
        else MemberChoices(
            policy=row["policy"],
            assignor=row["assignor"],
            policy_digest=row["policy_digest"],
            assignor_digest=row["assignor_digest"],
        ),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


__all__ = ["DECODERS", "Value", "ascending", "encode", "value_of"]
