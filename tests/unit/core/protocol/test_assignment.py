"""Our assignment and Kafka's: versions, null against empty, and refused values."""

import attrs
import pytest

from coopgroup.core.model import EMPTY, NO_LOSS, ResourceSet
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


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("revoked", [None, EMPTY, ResourceSet({"orders": [5]})])
def test_revoked_when_null_empty_or_full_is_told_apart(
    version: int, revoked: ResourceSet | None
) -> None:
    """Null ends the rebalance, empty announces another round. They must never be mixed up."""
    assignment = Assignment(assigned=HELD, revoked=revoked, version=version)
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


@pytest.mark.parametrize("version", [-1, 0, 3])
def test_version_when_unknown_is_neither_written_nor_read(version: int) -> None:
    """A newer assignment may begin differently. A misreading could give two owners."""
    with pytest.raises(EncodeError, match=f"^version: got {version}, expected 1 to 2$"):
        encode_assignment(Assignment(assigned=HELD), version)
    content = version.to_bytes(2, "big", signed=True) + encode_assignment(Assignment(assigned=HELD))
    with pytest.raises(UnsupportedVersionError, match=r"at offset 0$"):
        decode_assignment(content)


@pytest.mark.parametrize("version", [-1, 4])
def test_version_of_kafka_when_unknown_is_not_written(version: int) -> None:
    with pytest.raises(EncodeError, match=f"^version: got {version}, expected 0 to 3$"):
        encode_kafka_assignment(KafkaAssignment(assigned=HELD), version)


@pytest.mark.parametrize(
    ("version", "timeout_ms", "loss_ms", "message"),
    [
        (1, 5, None, "scheduled_rebalance_timeout_ms: 5 has no place in version 1"),
        (1, -1, None, "scheduled_rebalance_timeout_ms: -1 is negative"),
        (2, -1, None, "scheduled_rebalance_timeout_ms: -1 is negative"),
        (2, 2**31, None, "scheduled_rebalance_timeout_ms: 2147483648 does not fit into 4 bytes"),
        (1, 0, 5, "loss_timeout_ms: 5 has no place without scheduled_rebalance_timeout_ms"),
        (2, 0, NO_LOSS, "loss_timeout_ms: -1 has no place without scheduled_rebalance_timeout_ms"),
        (2, 900, 900, "loss_timeout_ms: 900 is not after 900"),
        (2, 900, -2, "loss_timeout_ms: -2 is not after 900"),
        (2, 900, 2**31, "loss_timeout_ms: 2147483648 does not fit into 4 bytes"),
    ],
)
def test_timeout_when_it_cannot_be_told_is_refused(
    version: int, timeout_ms: int, loss_ms: int | None, message: str
) -> None:
    """A delay that the member cannot receive must not be dropped silently."""
    assignment = Assignment(
        assigned=HELD, scheduled_rebalance_timeout_ms=timeout_ms, loss_timeout_ms=loss_ms
    )
    with pytest.raises(EncodeError) as refused:
        encode_assignment(assignment, version)
    assert str(refused.value) == message


@pytest.mark.parametrize("loss_ms", [NO_LOSS, 901, 2**31 - 1])
def test_loss_timeout_when_it_is_set_follows_the_timeout(loss_ms: int) -> None:
    plain = Assignment(assigned=HELD, scheduled_rebalance_timeout_ms=900)
    paced = attrs.evolve(plain, loss_timeout_ms=loss_ms)
    content = encode_assignment(paced)
    assert content == encode_assignment(plain) + loss_ms.to_bytes(4, "big", signed=True)
    assert decode_assignment(content) == paced
    assert decode_assignment(content[:-4]) == plain


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
