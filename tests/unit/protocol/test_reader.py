"""Reading single fields from bytes, with the offset of each error."""

from collections.abc import Callable

import pytest

from coopgroup.errors import (
    BufferUnderflowError,
    DecodeError,
    InvalidCountError,
    InvalidStringError,
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
