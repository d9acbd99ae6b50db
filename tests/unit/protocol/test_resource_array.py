"""Arrays of resources whose names and indices come in a foreign order."""

import struct

import pytest

from coopgroup.errors import InvalidValueError
from coopgroup.model import ResourceSet
from coopgroup.protocol.reader import ByteReader
from coopgroup.protocol.resource_array import (
    read_resources,
)
from tests.support.programs import output_of

Entries = list[tuple[str, list[int]]]


def wire(entries: Entries) -> bytes:
    """Return the entries in their order."""
    return struct.pack(">i", len(entries)) + b"".join(
        struct.pack(
            f">h{len(name)}si{len(indices)}i", len(name), name.encode(), len(indices), *indices
        )
        for name, indices in entries
    )


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [("a", [])],
        [("a", [0])],
        [("a", [2, 0, 1])],
        [("b", [1]), ("a", [1])],
        [("b", []), ("a", [3, 1]), ("", [0])],
        [("c", [0, 5]), ("a", []), ("b", [4, 2])],
        [("a", [2**31 - 1, 0]), ("b", [0, 2**31 - 1])],
    ],
)
def test_read_when_order_is_foreign_gives_the_same_set(entries: Entries) -> None:
    reader = ByteReader(wire(entries) + b"rest")
    assert read_resources(reader, "field", index_min=0) == ResourceSet(dict(entries))
    assert reader.left == len(b"rest")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("a", [0, 0])], "field: index 0 of 'a' is repeated at offset 15"),
        ([("a", [1, 0, 1, 0])], "field: index 1 of 'a' is repeated at offset 19"),
        ([("b", [0]), ("a", [7, 7])], "field: index 7 of 'a' is repeated at offset 26"),
        ([("b", [0]), ("a", []), ("b", [1])], "field: name 'b' is repeated at offset 22"),
        ([("a", []), ("a", [])], "field: name 'a' is repeated at offset 11"),
        ([("a", [0]), ("b", [3, -2])], "field: index -2 of 'b' is less than 0 at offset 26"),
        ([("a", []), ("b", [-1])], "field: index -1 of 'b' is less than 0 at offset 18"),
    ],
)
def test_read_when_something_is_twice_or_negative_points_at_it(
    entries: Entries, message: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        read_resources(ByteReader(wire(entries)), "field", index_min=0)
    assert str(refused.value) == message


def test_read_when_connectors_are_allowed_takes_minus_one_and_no_less() -> None:
    entries = [("b", [-1, 0]), ("a", [-1])]
    assert read_resources(ByteReader(wire(entries)), "field", index_min=-1) == ResourceSet(
        dict(entries)
    )
    with pytest.raises(InvalidValueError, match=r"index -2 of 'a' is less than -1 at offset 11$"):
        read_resources(ByteReader(wire([("a", [-2])])), "field", index_min=-1)


PROGRAM = """
import sys
from coopgroup.errors import DecodeError
from coopgroup.protocol.reader import ByteReader
from coopgroup.protocol.resource_array import read_resources
for content in {contents!r}:
    reader = ByteReader(content)
    had = "numpy" in sys.modules
    try:
        print(read_resources(reader, "field", index_min=0), reader.left, had)
    except DecodeError as error:
        print(error, had)
"""


def test_array_is_read_without_numpy_as_with_it() -> None:
    """Only a disorder loads NumPy, which explains the error."""
    read: list[Entries] = [
        [],
        [("a", [0, 1, 2]), ("b", [5])],
        [("", [2**31 - 1]), ("b", [])],
        [("a", [2, 0, 1])],
        [("b", [1]), ("a", [1])],
    ]
    refused: list[Entries] = [
        [("a", [0]), ("b", [3, -2])],
        [("a", []), ("a", [])],
    ]
    expected = [f"{ResourceSet(dict(one))} 4" for one in read]
    for entries in refused:
        with pytest.raises(InvalidValueError) as error:
            read_resources(ByteReader(wire(entries)), "field", index_min=0)
        expected.append(str(error.value))
    for entries, line in zip(read + refused, expected, strict=True):
        assert output_of(PROGRAM.format(contents=[wire(entries) + b"rest"])) == f"{line} False\n"
