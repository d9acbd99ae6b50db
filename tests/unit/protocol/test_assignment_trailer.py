"""Notes behind the assignments of static members."""

import pytest

from coopgroup.model import EMPTY, ResourceSet
from coopgroup.protocol import Assignment, decode_assignment, encode_assignment
from coopgroup.protocol.assignment_trailer import (
    AssignmentTrailer,
    names_digest,
    resources_digest,
    trailer_of,
    with_trailer,
    without_trailer,
)

PLAIN = Assignment(assigned=ResourceSet({"orders": [0, 2]}))
CONTENT = encode_assignment(PLAIN)


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
        EMPTY,
        ResourceSet({"T": [0]}),
        ResourceSet({"T": [0, 1]}),
        ResourceSet({"T": [0], "U": [1]}),
        ResourceSet({"T": [0, 1], "U": []}),
        ResourceSet({"U": [0]}),
    ]
    assert len({resources_digest(one) for one in some} | {0}) == len(set(some)) + 1
    assert resources_digest(ResourceSet({"T": [1, 0]})) == resources_digest(some[2])
