"""JSON of `coopgroup protocol`: each item is translated and translated back."""

import json
from typing import Any

import pytest

from coopgroup.cli.protocol_json import (
    Dialect,
    Kind,
    decoded_item,
    encoded_item,
)
from coopgroup.errors import EncodeError, InvalidValueError
from tests.support.cases import cases
from tests.unit.core.protocol.reference import Vector, load_vectors

WAYS = {
    "subscription": (Kind.SUBSCRIPTION, Dialect.COOPGROUP),
    "assignment": (Kind.ASSIGNMENT, Dialect.COOPGROUP),
    "kafka_assignment": (Kind.ASSIGNMENT, Dialect.KAFKA),
}
SHOWN = [vector for vector in load_vectors() if vector.kind in WAYS]


def row_of(vector: Vector) -> dict[str, Any]:
    """Return the command's object; the format of the command is older than the names of values."""
    value = vector.value or {}
    if vector.kind == "subscription":
        return value
    row: dict[str, Any] = {
        "revoked": None,
        "user_data_hex": None,
        "scheduled_rebalance_timeout_ms": None,
    }
    if vector.kind == "assignment":
        row["scheduled_rebalance_timeout_ms"] = value["rejoin_in_ms"] or 0
        value = {
            name: one
            for name, one in value.items()
            if name in {"version", "assigned", "revoked"} or (one is not None and one != {})
        }
        value.pop("rejoin_in_ms", None)
    return row | value


def test_vector_is_shown_and_translated_back(subtests: pytest.Subtests) -> None:
    for vector in SHOWN:
        with subtests.test(vector=vector):
            line = decoded_item(vector.content.hex().upper(), *WAYS[vector.kind])
            assert line == json.dumps(row_of(vector), sort_keys=True, separators=(",", ":"))
            if vector.canonical and vector.name != "rejoin-now":  # the command shows no time as 0
                assert encoded_item(line, *WAYS[vector.kind]) == vector.content.hex()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"version": 2}, "version: got 2, expected an integer from 1 to 1"),
        (
            {"scheduled_rebalance_timeout_ms": -1},
            "scheduled_rebalance_timeout_ms: got -1, expected an integer from 0 to 2147483647",
        ),
        ({"user_data_hex": "00"}, "user_data_hex: got '00', expected null"),
    ],
)
def test_encode_when_an_assignment_cannot_carry_a_value_says_so(
    item: dict[str, object], message: str
) -> None:
    with pytest.raises(EncodeError) as refused:
        encoded_item(json.dumps({"assigned": {}, **item}), Kind.ASSIGNMENT, Dialect.COOPGROUP)
    assert str(refused.value).startswith(message)


ABSENT = """\
subscription {"topics":["b","a","b"]}
    000300000002000161000162ffffffff00000000ffffffffffff
subscription {"topics":[],"owned":{"b":[1],"a":[2,0,2]},"generation":null,"version":1}
    000100000000ffffffff000000020001610000000200000000000000020001620000000100000001
assignment {"assigned":{},"warmups":null}
    000100000000ffffffffffffffffffffffff00000000ffffffffffffffffffffffffffffffff
assignment {"assigned":{},"revoked":{},"scheduled_rebalance_timeout_ms":1,"warmups":{"a":[0]}}
    0001000000000000000000000001ffffffff000000010001610000000100000000ffffffffffffffffffffffffffffffff
kafka_assignment {"assigned":{},"user_data_hex":"0A"}
    000300000000000000010a
"""


@pytest.mark.parametrize(("line", "content"), cases(ABSENT))
def test_encode_when_fields_are_absent_takes_their_defaults(line: str, content: str) -> None:
    way, item = line.split(maxsplit=1)
    assert encoded_item(item, *WAYS[way]) == content


@pytest.mark.parametrize(
    ("item", "message", "offset"),
    [
        ("00g0", "'g' is no hex digit", 1),
        ("00000", "half a byte: the last hex digit is missing", 2),
        ("é", "'é' is no hex digit", 0),
    ],
)
def test_decode_when_item_is_no_hex_says_where(item: str, message: str, offset: int) -> None:
    with pytest.raises(InvalidValueError) as refused:
        decoded_item(item, Kind.SUBSCRIPTION, Dialect.COOPGROUP)
    assert (refused.value.message, refused.value.offset) == (message, offset)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("", "message: got '', expected one JSON object (Expecting value, column 1)"),
        ("{}", "topics: got nothing, expected a value, as this key is required"),
        ('{"topics":[],"topic":[]}', "topic: got [], but there is no such key (did you mean topic"),
        ('{"topics":[],"topics":[]}', "message: got 'topics', expected every key once in an objec"),
        ('{"topics":[],"owned":{"a":[true]}}', "owned.a[0]: got true, expected an integer from -2"),
        ('{"topics":[],"owned":{"a":[-1]}}', "owned: index -1 is less than 0"),
        ('{"topics":[],"owned":{"a":[2147483648]}}', "owned.a[0]: got 2147483648, expected an"),
        ('{"topics":[],"version":4}', "version: got 4, expected 0 to 3"),
        ('{"topics":[],"user_data_hex":"0"}', "user_data_hex: got '0', expected pairs of hex digi"),
        ('{"topics":["\\ud800"]}', r"topics: '\ud800' has no UTF-8 form"),
        ('{"topics":' + "[" * 100_000, 'message: got \'{"topics":[[['),
        (
            '{"topics":[],"generation":' + "9" * 5_000 + "}",
            'message: got \'{"topics":[],"generation":9',
        ),
    ],
)
def test_encode_when_item_is_no_subscription_says_why(item: str, message: str) -> None:
    with pytest.raises(EncodeError) as refused:
        encoded_item(item, Kind.SUBSCRIPTION, Dialect.COOPGROUP)
    assert str(refused.value).startswith(message)
