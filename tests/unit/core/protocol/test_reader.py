"""Reading fields, and arrays of resources in a foreign order; each error has its offset."""

import struct
from collections.abc import Callable

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.protocol.reader import ByteReader
from coopgroup.core.protocol.resource_array import read_resources
from coopgroup.errors import (
    BufferUnderflowError,
    DecodeError,
    InvalidCountError,
    InvalidStringError,
    InvalidValueError,
)

Entries = list[tuple[str, list[int]]]
Read = Callable[[ByteReader], object]

READS: dict[str, Read] = {
    "int16": lambda reader: reader.read_int16("field"),
    "int32": lambda reader: reader.read_int32("field"),
    "string": lambda reader: reader.read_string("field"),
    "strings": lambda reader: reader.read_strings("field"),
    "nullable string": lambda reader: reader.read_nullable_string("field"),
    "nullable bytes": lambda reader: reader.read_nullable_bytes("field"),
    "count": lambda reader: reader.read_count("field", bytes_min=2),
}
SHORT, COUNT, TEXT = BufferUnderflowError, InvalidCountError, InvalidStringError


@pytest.mark.parametrize(
    ("kind", "content", "error", "message"),
    [
        ("int16", "01", SHORT, "2 bytes needed, 1 left at offset 0"),
        ("int32", "010203", SHORT, "4 bytes needed, 3 left at offset 0"),
        ("string", "ffff", COUNT, "length -1 is negative at offset 0"),
        ("string", "000361", COUNT, "length 3 with no more than 1 bytes left at offset 0"),
        ("string", "0003 61ff61", TEXT, "not UTF-8 at offset 3"),
        ("strings", "00000002 0000", COUNT, "length 2 with no more than 2 bytes left at offset 0"),
        ("strings", "00000002 0003 616161 00", SHORT, "2 bytes needed, 1 left at offset 9"),
        ("strings", "00000002 0001 61 fffe", COUNT, "length -2 is negative at offset 7"),
        ("strings", "00000002 0001 61 0001 80", TEXT, "not UTF-8 at offset 9"),
        ("nullable string", "fffe", COUNT, "length -2 is negative at offset 0"),
        ("nullable bytes", "fffffffe", COUNT, "length -2 is negative at offset 0"),
        ("count", "00000003 00", COUNT, "length 3 with no more than 1 bytes left at offset 0"),
        ("count", "ffffffff", COUNT, "length -1 is negative at offset 0"),
    ],
)
def test_read_when_bytes_are_wrong_names_field_and_offset(
    kind: str, content: str, error: type[DecodeError], message: str
) -> None:
    with pytest.raises(error) as refused:
        READS[kind](ByteReader(bytes.fromhex(content)))
    assert (type(refused.value), str(refused.value)) == (error, f"field: {message}")


# --- arrays of resources --------------------------------------------------------------------------


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
