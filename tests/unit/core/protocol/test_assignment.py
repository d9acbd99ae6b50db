"""Our assignment and Kafka's: versions, null against empty, and refused values."""

from typing import Any

import attrs
import pytest

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.protocol.assignment import with_catalogue_version
from coopgroup.errors import EncodeError, TrailingBytesError, UnsupportedVersionError
from coopgroup.protocol import (
    Assignment,
    KafkaAssignment,
    decode_assignment,
    encode_assignment,
    encode_kafka_assignment,
)
from tests.unit.core.protocol.contract import CodecContract

HELD = ResourceSet({"orders": [0, 2], "payments": [1]})


class TestAssignment(CodecContract):
    kind = "assignment"


class TestKafkaAssignment(CodecContract):
    kind = "kafka_assignment"


@pytest.mark.parametrize("revoked", [None, EMPTY, ResourceSet({"orders": [5]})])
def test_revoked_when_null_empty_or_full_is_told_apart(revoked: ResourceSet | None) -> None:
    """Null ends the rebalance, empty announces another round. They must never be mixed up."""
    assignment = Assignment(assigned=HELD, revoked=revoked)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_catalogue_version_is_read_where_it_may_follow() -> None:
    """A leader of named resources appends it; assignments of partitions stay as they are."""
    plain = Assignment(assigned=HELD, revoked=EMPTY)
    content = encode_assignment(plain)
    versioned = attrs.evolve(plain, catalogue_version=7)
    assert encode_assignment(versioned) == with_catalogue_version(content, 7)
    assert encode_assignment(versioned) == content + (7).to_bytes(8, "big")
    for one in (plain, versioned):
        assert decode_assignment(encode_assignment(one), has_catalogue=True) == one
    assert decode_assignment(encode_assignment(versioned), skips_rest=True) == plain
    with pytest.raises(TrailingBytesError):
        decode_assignment(encode_assignment(versioned))
    with pytest.raises(EncodeError, match="catalogue_version: -1 is negative"):
        with_catalogue_version(content, -1)


@pytest.mark.parametrize("version", [-1, 0, 2, 3])
def test_other_version_is_refused_even_if_the_rest_may_be_skipped(version: int) -> None:
    """A newer assignment may begin differently. A misreading could give two owners."""
    known = encode_assignment(Assignment(assigned=HELD))
    content = version.to_bytes(2, "big", signed=True) + known[2:]
    for skips_rest in (False, True):
        with pytest.raises(UnsupportedVersionError) as refused:
            decode_assignment(content, skips_rest=skips_rest)
        assert str(refused.value) == f"version: got {version}, expected 1 at offset 0"


@pytest.mark.parametrize("version", [-1, 4])
def test_version_of_kafka_when_unknown_is_not_written(version: int) -> None:
    with pytest.raises(EncodeError, match=f"^version: got {version}, expected 0 to 3$"):
        encode_kafka_assignment(KafkaAssignment(assigned=HELD), version)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rejoin_in_ms", -1, "-1 is negative"),
        ("rejoin_in_ms", 2**31, "2147483648 does not fit into 4 bytes"),
        ("loss_ends_in_ms", -1, "-1 is negative"),
        ("loss_ends_in_ms", 2**31, "2147483648 does not fit into 4 bytes"),
        ("topics_digest", -1, "-1 is negative"),
        ("shared_digest", 2**63, "9223372036854775808 does not fit into 8 bytes"),
    ],
)
def test_encode_when_a_number_has_no_wire_form_is_refused(
    field: str,
    value: Any,  # noqa: ANN401 - a number
    message: str,
) -> None:
    """-1 is the wire form of None: a member would never learn such a time."""
    with pytest.raises(EncodeError) as refused:
        encode_assignment(Assignment(**{"assigned": HELD, field: value}))
    assert str(refused.value) == f"{field}: {message}"


@pytest.mark.parametrize(
    ("told", "field"),
    [
        (Assignment(assigned=ResourceSet({"c": [-1, 0]}), revoked=EMPTY), "assigned"),
        (Assignment(assigned=EMPTY, warmups=ResourceSet({"c": [-1]})), "warmups"),
    ],
)
def test_connector_when_allowed_survives_the_round_trip(told: Assignment, field: str) -> None:
    content = encode_assignment(told, index_min=-1)
    assert decode_assignment(content, index_min=-1) == told
    with pytest.raises(EncodeError, match=rf"^{field}: index -1 is less than 0$"):
        encode_assignment(told)


def test_decode_when_the_rest_is_skipped_reads_what_a_later_release_appended_to() -> None:
    """A field that this release does not know must not cost a member its assignment."""
    content = encode_assignment(Assignment(assigned=HELD)) + b"later"
    assert decode_assignment(content, skips_rest=True) == Assignment(assigned=HELD)
    with pytest.raises(TrailingBytesError):
        decode_assignment(content)
