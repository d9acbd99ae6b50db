"""Warm-ups behind an assignment: read from the end, skipped by all other readers."""

import pytest

from coopgroup.errors import EncodeError, TrailingBytesError
from coopgroup.model import EMPTY, NO_LOSS, ResourceSet
from coopgroup.protocol import (
    Assignment,
    decode_assignment,
    decode_kafka_assignment,
    encode_assignment,
)
from coopgroup.protocol.assignment_trailer import (
    AssignmentTrailer,
    trailer_of,
    with_trailer,
    without_trailer,
)

HELD = ResourceSet({"orders": [0, 2]})
WARMUPS = ResourceSet({"orders": [1], "payments": [3]})
TIMES = [(0, None), (900, None), (900, NO_LOSS), (900, 901), (2**31 - 1, None)]
MAGIC = b"cgwu"


def assignment(
    warmups: ResourceSet | None, timeout_ms: int = 0, loss_timeout_ms: int | None = None
) -> Assignment:
    return Assignment(
        assigned=HELD,
        scheduled_rebalance_timeout_ms=timeout_ms,
        loss_timeout_ms=loss_timeout_ms,
        warmups=warmups,
    )


@pytest.mark.parametrize("warmups", [EMPTY, WARMUPS])
@pytest.mark.parametrize(("timeout_ms", "loss_ms"), TIMES)
def test_warmups_when_written_are_read_back(
    warmups: ResourceSet, timeout_ms: int, loss_ms: int | None
) -> None:
    told = assignment(warmups, timeout_ms, loss_ms)
    content = encode_assignment(told)
    assert content.startswith(encode_assignment(assignment(None, timeout_ms, loss_ms)))
    assert content.endswith(MAGIC)
    assert decode_assignment(content) == told
    assert decode_kafka_assignment(content).assigned == HELD


@pytest.mark.parametrize(
    ("timeout_ms", "loss_ms", "as_loss_ms"),
    [(0, None, None), (900, None, 901), (2**31 - 1, None, NO_LOSS), (900, NO_LOSS, NO_LOSS)],
)
def test_older_reader_when_warmups_follow_reads_the_times(
    timeout_ms: int, loss_ms: int | None, as_loss_ms: int | None
) -> None:
    """An older release refuses a loss time-out that is not later than the time-out."""
    content = encode_assignment(assignment(WARMUPS, timeout_ms, loss_ms))
    older = decode_assignment(content[: -len(MAGIC)], skips_rest=True)
    assert older == assignment(None, timeout_ms, as_loss_ms)


def test_warmups_before_a_trailer_are_read_with_it_and_without_it() -> None:
    content = encode_assignment(assignment(WARMUPS))
    trailer = AssignmentTrailer(topics=7, shared=8)
    both = with_trailer(content, trailer)
    assert trailer_of(both) == trailer
    assert decode_assignment(both, skips_rest=True) == assignment(WARMUPS)
    assert decode_assignment(without_trailer(both)) == assignment(WARMUPS)
    with pytest.raises(TrailingBytesError):
        decode_assignment(both)


def test_magic_without_a_possible_length_is_skipped_like_other_bytes() -> None:
    content = encode_assignment(assignment(None)) + b"\x00\x00\x00\xff" + MAGIC
    assert decode_assignment(content, skips_rest=True) == assignment(None)


def test_warmups_in_version_1_are_refused() -> None:
    """A member that reads only version 1 never tells warm resources."""
    with pytest.raises(EncodeError, match=r"^warmups: they have no place in version 1$"):
        encode_assignment(assignment(WARMUPS), 1)


def test_connector_as_a_warmup_is_allowed_where_the_group_has_connectors() -> None:
    told = Assignment(assigned=EMPTY, warmups=ResourceSet({"c": [-1]}))
    content = encode_assignment(told, index_min=-1)
    assert decode_assignment(content, index_min=-1) == told
    with pytest.raises(EncodeError, match=r"^warmups: index -1 is less than 0$"):
        encode_assignment(told)
