"""What stands behind an assignment: warm-ups, and notes for static members."""

import pytest

from coopgroup.core.model import EMPTY, NO_LOSS, ResourceSet
from coopgroup.core.protocol.assignment_trailer import (
    AssignmentTrailer,
    names_digest,
    resources_digest,
    trailer_of,
    with_trailer,
    without_trailer,
)
from coopgroup.errors import EncodeError, TrailingBytesError
from coopgroup.protocol import (
    Assignment,
    decode_assignment,
    decode_kafka_assignment,
    encode_assignment,
)

HELD = ResourceSet({"orders": [0, 2]})
WARMUPS = ResourceSet({"orders": [1], "payments": [3]})
PLAIN = Assignment(assigned=HELD)
CONTENT = encode_assignment(PLAIN)
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


# --- warm-ups -----------------------------------------------------------------------------------


@pytest.mark.parametrize("warmups", [EMPTY, WARMUPS])
@pytest.mark.parametrize(
    ("timeout_ms", "loss_ms", "as_loss_ms"),
    [
        (0, None, None),
        (900, None, 901),
        (2**31 - 1, None, NO_LOSS),
        (900, NO_LOSS, NO_LOSS),
        (900, 901, 901),
    ],
)
def test_warmups_when_written_are_read_back_and_passed_over_by_older_readers(
    warmups: ResourceSet, timeout_ms: int, loss_ms: int | None, as_loss_ms: int | None
) -> None:
    """An older release refuses a loss time-out that is not later than the time-out."""
    told = assignment(warmups, timeout_ms, loss_ms)
    content = encode_assignment(told)
    assert content.startswith(encode_assignment(assignment(None, timeout_ms, loss_ms)))
    assert content.endswith(MAGIC)
    assert decode_assignment(content) == told
    assert decode_kafka_assignment(content).assigned == HELD
    older = decode_assignment(content[: -len(MAGIC)], skips_rest=True)
    assert older == assignment(None, timeout_ms, as_loss_ms)


def test_warmups_before_a_trailer_are_read_with_it_and_without_it() -> None:
    trailer = AssignmentTrailer(topics=7, shared=8)
    both = with_trailer(encode_assignment(assignment(WARMUPS)), trailer)
    assert trailer_of(both) == trailer
    assert decode_assignment(both, skips_rest=True) == assignment(WARMUPS)
    assert decode_assignment(without_trailer(both)) == assignment(WARMUPS)
    with pytest.raises(TrailingBytesError):
        decode_assignment(both)


def test_magic_without_a_possible_length_is_skipped_like_other_bytes() -> None:
    assert decode_assignment(CONTENT + b"\x00\x00\x00\xff" + MAGIC, skips_rest=True) == PLAIN


def test_warmups_in_version_1_are_refused() -> None:
    """A member that reads only version 1 never tells warm resources."""
    with pytest.raises(EncodeError, match=r"^warmups: they have no place in version 1$"):
        encode_assignment(assignment(WARMUPS), 1)


# --- notes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [None, 1, 2**32 - 1])
def test_note_when_it_is_added_is_read_back_and_passed_over(shared: int | None) -> None:
    note = AssignmentTrailer(topics=names_digest(("orders",)), shared=shared)
    content = with_trailer(CONTENT, note)
    assert trailer_of(content) == note
    assert without_trailer(content) == without_trailer(CONTENT) == CONTENT
    assert decode_assignment(content, skips_rest=True) == PLAIN
    assert content[len(CONTENT) :] == (
        note.topics.to_bytes(4, "big") + (shared or 0).to_bytes(4, "big") + b"cgnt"
    )


@pytest.mark.parametrize("content", [b"", b"cgnt", b"1234567cgnt", CONTENT])
def test_note_when_there_is_none_is_none(content: bytes) -> None:
    """Earlier releases add none, and a leader adds it only for members with a lasting identity."""
    assert trailer_of(content) is None


def test_digest_of_names_tells_them_apart() -> None:
    names = [(), ("a",), ("b",), ("a", "b"), ("ab",), ("a", "b", "c"), ("bé",)]
    assert len({names_digest(some) for some in names} | {0}) == len(names) + 1
    assert names_digest(("orders",)) == 0x95550F0F


def test_digest_of_resources_tells_them_apart() -> None:
    some = [
        ResourceSet(indices)
        for indices in ({}, {"T": [0]}, {"T": [0, 1]}, {"T": [0], "U": [1]}, {"U": [0]})
    ]
    assert len({resources_digest(one) for one in some} | {0}) == len(some) + 1
    assert resources_digest(ResourceSet({"T": [1, 0], "U": []})) == resources_digest(some[2])
