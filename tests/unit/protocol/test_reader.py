"""Reading single fields from bytes, with the offset of each error."""

from collections.abc import Callable

import pytest

from coopgroup.errors import (
    BufferUnderflowError,
    DecodeError,
    InvalidCountError,
    InvalidStringError,
    TrailingBytesError,
)
from coopgroup.protocol.reader import ByteReader

Read = Callable[[ByteReader], object]

READS: dict[str, Read] = {
    "int16": lambda reader: reader.read_int16("field"),
    "int32": lambda reader: reader.read_int32("field"),
    "string": lambda reader: reader.read_string("field"),
    "strings": lambda reader: reader.read_strings("field"),
    "nullable string": lambda reader: reader.read_nullable_string("field"),
    "nullable bytes": lambda reader: reader.read_nullable_bytes("field"),
    "count": lambda reader: reader.read_count("field", bytes_min=2),
    "nullable count": lambda reader: reader.read_nullable_count("field", bytes_min=2),
}


@pytest.mark.parametrize(
    ("kind", "content", "value", "used"),
    [
        ("int16", "8001", -32767, 2),
        ("int32", "0102030405", 0x01020304, 4),
        ("string", "00026869ff", "hi", 4),
        ("string", "0000", "", 2),
        ("strings", "00000002 0001 61 0000", ["a", ""], 9),
        ("strings", "00000000", [], 4),
        ("nullable string", "ffff", None, 2),
        ("nullable string", "000161", "a", 3),
        ("nullable bytes", "ffffffff", None, 4),
        ("nullable bytes", "00000002ffee", b"\xff\xee", 6),
        ("count", "00000002 00000000", 2, 4),
        ("nullable count", "ffffffff", None, 4),
        ("nullable count", "00000000", 0, 4),
    ],
)
def test_read_when_bytes_suffice_gives_value_and_moves(
    kind: str, content: str, value: object, used: int
) -> None:
    reader = ByteReader(bytes.fromhex(content))
    assert (READS[kind](reader), reader.offset) == (value, used)


@pytest.mark.parametrize(
    ("kind", "content", "error", "message"),
    [
        ("int16", "01", BufferUnderflowError, "2 bytes needed, 1 left at offset 0"),
        ("int32", "010203", BufferUnderflowError, "4 bytes needed, 3 left at offset 0"),
        ("string", "ffff", InvalidCountError, "length -1 is negative at offset 0"),
        (
            "string",
            "000361",
            InvalidCountError,
            "length 3 with no more than 1 bytes left at offset 0",
        ),
        ("string", "0003 61ff61", InvalidStringError, "not UTF-8 at offset 3"),
        (
            "strings",
            "00000002 0000",
            InvalidCountError,
            "length 2 with no more than 2 bytes left at offset 0",
        ),
        (
            "strings",
            "00000002 0003 616161 00",
            BufferUnderflowError,
            "2 bytes needed, 1 left at offset 9",
        ),
        (
            "strings",
            "00000002 0001 61 fffe",
            InvalidCountError,
            "length -2 is negative at offset 7",
        ),
        ("strings", "00000002 0001 61 0001 80", InvalidStringError, "not UTF-8 at offset 9"),
        ("nullable string", "fffe", InvalidCountError, "length -2 is negative at offset 0"),
        ("nullable bytes", "fffffffe", InvalidCountError, "length -2 is negative at offset 0"),
        (
            "count",
            "00000003 0000000000",
            InvalidCountError,
            "length 3 with no more than 5 bytes left at offset 0",
        ),
        ("count", "ffffffff", InvalidCountError, "length -1 is negative at offset 0"),
    ],
)
def test_read_when_bytes_are_wrong_names_field_and_offset(
    kind: str, content: str, error: type[DecodeError], message: str
) -> None:
    with pytest.raises(error) as refused:
        READS[kind](ByteReader(bytes.fromhex(content)))
    assert (type(refused.value), str(refused.value)) == (error, f"field: {message}")


def test_require_end_when_bytes_are_left_counts_them() -> None:
    reader = ByteReader(b"\x00\x01\x02\x03")
    reader.read_int16("field")
    with pytest.raises(TrailingBytesError, match=r"^2 bytes after the message at offset 2$"):
        reader.require_end()
