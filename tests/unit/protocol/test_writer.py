"""Writing single fields to bytes."""

import pytest

from coopgroup.errors import EncodeError
from coopgroup.protocol.writer import (
    packed_int16,
    packed_int32,
    packed_nullable_bytes,
    packed_nullable_string,
    packed_string,
    packed_strings,
    require_version,
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (packed_int16(-2, "field"), "fffe"),
        (packed_int32(258, "field"), "00000102"),
        (packed_string("hé", "field"), "000368c3a9"),
        (packed_strings(["a", ""], "field"), "000000020001610000"),
        (packed_nullable_string(None, "field"), "ffff"),
        (packed_nullable_string("", "field"), "0000"),
        (packed_nullable_bytes(None, "field"), "ffffffff"),
        (packed_nullable_bytes(b"\x07", "field"), "0000000107"),
        (require_version(3, oldest=0, newest=3), "0003"),
    ],
)
def test_pack_when_value_fits_is_big_endian(written: bytes, expected: str) -> None:
    assert written.hex() == expected


@pytest.mark.parametrize("value", [2**15, -(2**15) - 1])
def test_pack_int16_when_too_large_names_the_field(value: int) -> None:
    with pytest.raises(EncodeError, match=f"^field: {value} does not fit into 2 bytes$"):
        packed_int16(value, "field")


def test_pack_strings_when_one_is_too_long_says_so() -> None:
    assert len(packed_strings(["é" * 16_383], "field")) == 4 + 2 + 32_766
    with pytest.raises(EncodeError, match=r"^field: 32768 bytes, expected 32767 at most$"):
        packed_strings(["a", "é" * 16_384], "field")
