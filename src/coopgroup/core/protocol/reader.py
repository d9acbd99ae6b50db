"""`ByteReader`: Kafka's classic types, read in order, with the offset in every error.

A length or count is checked against the remaining bytes BEFORE memory of that size is allocated. So
time and memory are proportional to the received bytes, not to the counts in them. A name costs much
more than an index, so the number of names in one list has a limit, `NAMES_MAX`. Integers are
big-endian; STRING is int16 length and UTF-8, BYTES int32 length, ARRAY int32 count; -1 is null
where null is allowed.

Every read raises a `DecodeError` if the bytes are wrong: too few of them (`BufferUnderflowError`),
a count or length that is negative or exceeds the remaining bytes (`InvalidCountError`), or text
that is not UTF-8 (`InvalidStringError`).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  (a class, named like one)
from typing import Final, final

from coopgroup.errors import (
    BufferUnderflowError,
    InvalidCountError,
    InvalidStringError,
    InvalidValueError,
    TrailingBytesError,
    UnsupportedVersionError,
)

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
NULL: Final = -1
NAMES_MAX: Final = 2**17
"""Limit of the names in one list: more than a large cluster has topics."""


def require_count(count: int, *, bytes_min: int, left: int, field: str, offset: int) -> None:
    """Refuse a count or length that the remaining bytes cannot hold.

    Raises:
        InvalidCountError: the count is negative, or exceeds the remaining bytes.
    """
    if count < 0:
        raise InvalidCountError(f"{field}: length {count} is negative", offset)
    if count > left // bytes_min:
        raise InvalidCountError(
            f"{field}: length {count} with no more than {left} bytes left", offset
        )


def require_names(count: int, *, field: str, offset: int) -> None:
    """Refuse a list of too many names.

    Raises:
        InvalidCountError: there are more than `NAMES_MAX`.
    """
    if count > NAMES_MAX:
        raise InvalidCountError(f"{field}: {count} names, expected {NAMES_MAX} at most", offset)


def decoded_string(raw: bytes, *, field: str, offset: int) -> str:
    """Decode UTF-8.

    Raises:
        InvalidStringError: the bytes are not UTF-8; its offset is that of the first wrong byte.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidStringError(f"{field}: not UTF-8", offset + error.start) from None


@final
class ByteReader:
    """A position in a message, moving forward.

    Attributes:
        offset: position of the next byte to read, counted from 0.
    """

    __slots__ = ("content", "offset")

    def __init__(self, content: bytes) -> None:
        self.content = bytes(content)
        self.offset = 0

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self.content) - self.offset

    def read_int16(self, field: str) -> int:
        """Read an INT16."""
        return self._read_integer(INT16, field)

    def read_int32(self, field: str) -> int:
        """Read an INT32."""
        return self._read_integer(INT32, field)

    def read_int64(self, field: str) -> int:
        """Read an INT64."""
        return self._read_integer(INT64, field)

    def read_nullable_int32(self, field: str) -> int | None:
        """Read an INT32 from 0 on, None for -1."""
        return self._read_nullable_integer(INT32, field)

    def read_nullable_int64(self, field: str) -> int | None:
        """Read an INT64 from 0 on, None for -1."""
        return self._read_nullable_integer(INT64, field)

    def read_version(self, field: str, known: int) -> None:
        """Read the version of a message of ours.

        Raises:
            UnsupportedVersionError: it is not the known version.
        """
        offset = self.offset
        version = self.read_int16(field)
        if version != known:
            raise UnsupportedVersionError(f"{field}: got {version}, expected {known}", offset)

    def read_string(self, field: str) -> str:
        """Read a STRING that may not be null."""
        return self._read_string_of(self._read_length(INT16, field), field)

    def read_strings(self, field: str) -> list[str]:
        """Read an ARRAY of STRING; array and strings may not be null."""
        count = self.read_count(field, bytes_min=INT16.size)
        require_names(count, field=field, offset=self.offset - INT32.size)
        content, offset, size = self.content, self.offset, len(self.content)
        strings: list[str] = []
        append, unpack_length = strings.append, INT16.unpack_from
        try:
            for _ in range(count):  # no call per string: a member can subscribe to 10,000 topics
                length = unpack_length(content, offset)[0]
                start = offset + 2
                if not 0 <= length <= size - start:
                    break
                end = start + length
                append(content[start:end].decode())
                offset = end
        except (StructError, UnicodeDecodeError):
            pass
        self.offset = offset
        if len(strings) < count:
            self.read_string(field)  # raises the error of the next string
        return strings

    def read_nullable_string(self, field: str) -> str | None:
        """Read a NULLABLE_STRING."""
        length = self._read_length(INT16, field, nullable=True)
        return None if length == NULL else self._read_string_of(length, field)

    def read_nullable_bytes(self, field: str) -> bytes | None:
        """Read NULLABLE_BYTES."""
        length = self._read_length(INT32, field, nullable=True)
        return None if length == NULL else self._take(length)

    def read_count(self, field: str, *, bytes_min: int) -> int:
        """Read the count of an ARRAY that may not be null."""
        return self._read_length(INT32, field, bytes_min=bytes_min)

    def read_nullable_count(self, field: str, *, bytes_min: int) -> int | None:
        """Read the count of an ARRAY, None for null; otherwise as `read_count`."""
        count = self._read_length(INT32, field, bytes_min=bytes_min, nullable=True)
        return None if count == NULL else count

    def require_end(self) -> None:
        """Check that the whole message was read.

        Raises:
            TrailingBytesError: bytes are left.
        """
        if self.left:
            raise TrailingBytesError(f"{self.left} bytes after the message", self.offset)

    def _read_integer(self, form: Struct, field: str) -> int:
        if self.left < form.size:
            raise BufferUnderflowError(
                f"{field}: {form.size} bytes needed, {self.left} left", self.offset
            )
        value: int = form.unpack_from(self.content, self.offset)[0]
        self.offset += form.size
        return value

    def _read_nullable_integer(self, form: Struct, field: str) -> int | None:
        offset = self.offset
        value = self._read_integer(form, field)
        if value < NULL:
            raise InvalidValueError(f"{field}: {value} is negative", offset)
        return None if value == NULL else value

    def _read_length(
        self, form: Struct, field: str, *, bytes_min: int = 1, nullable: bool = False
    ) -> int:
        offset = self.offset
        length = self._read_integer(form, field)
        if not (nullable and length == NULL):
            require_count(length, bytes_min=bytes_min, left=self.left, field=field, offset=offset)
        return length

    def _read_string_of(self, length: int, field: str) -> str:
        offset = self.offset
        return decoded_string(self._take(length), field=field, offset=offset)

    def _take(self, length: int) -> bytes:
        taken = self.content[self.offset : self.offset + length]
        self.offset += length
        return taken
