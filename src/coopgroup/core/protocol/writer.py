"""Kafka's classic types to bytes: the counterpart of `reader`.

Every function raises an `EncodeError` if the value does not fit: an integer that is too large for
its type, a string with a lone surrogate or with more than 32,767 bytes, an unknown version.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  (a class, named like one)
from typing import Final

from coopgroup.core.protocol.reader import INT16, INT32, INT64, NULL
from coopgroup.errors import EncodeError

_STRING_BYTES_MAX: Final = 2**15 - 1


def packed_int32(value: int, field: str) -> bytes:
    """Write an INT32."""
    return _packed(INT32, value, field)


def packed_int64(value: int, field: str) -> bytes:
    """Write an INT64."""
    return _packed(INT64, value, field)


def packed_nullable_int32(value: int | None, field: str) -> bytes:
    """Write an INT32 from 0 on, -1 for None."""
    return packed_int32(_or_null(value, field), field)


def packed_nullable_int64(value: int | None, field: str) -> bytes:
    """Write an INT64 from 0 on, -1 for None."""
    return packed_int64(_or_null(value, field), field)


def packed_string(value: str, field: str) -> bytes:
    """Write a STRING."""
    raw = _utf8(value, field)
    return INT16.pack(len(raw)) + raw


def packed_nullable_string(value: str | None, field: str) -> bytes:
    """Write a NULLABLE_STRING."""
    return INT16.pack(NULL) if value is None else packed_string(value, field)


def packed_nullable_bytes(value: bytes | None, field: str) -> bytes:
    """Write NULLABLE_BYTES."""
    return INT32.pack(NULL) if value is None else packed_int32(len(value), field) + value


def packed_strings(values: Sequence[str], field: str) -> bytes:
    """Write an ARRAY of STRING."""
    pack_length = INT16.pack
    raws = all_utf8(values, field)
    return packed_int32(len(raws), field) + b"".join([pack_length(len(raw)) + raw for raw in raws])


def require_version(version: int, *, oldest: int, newest: int) -> bytes:
    """Write the version of a message, which has to exist."""
    if not oldest <= version <= newest:
        raise EncodeError(f"version: got {version}, expected {oldest} to {newest}")
    return INT16.pack(version)


def all_utf8(values: Sequence[str], field: str) -> list[bytes]:
    """Encode strings with INT16 lengths."""
    try:
        raws = list(map(str.encode, values))
    except UnicodeEncodeError:
        raws = []
    if len(raws) < len(values) or max(map(len, raws), default=0) > _STRING_BYTES_MAX:
        return [_utf8(value, field) for value in values]  # raises the error of the wrong string
    return raws


def _utf8(value: str, field: str) -> bytes:
    """Encode a string with an INT16 length."""
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{field}: {value!r} has no UTF-8 form") from None
    if len(raw) > _STRING_BYTES_MAX:
        raise EncodeError(f"{field}: {len(raw)} bytes, expected {_STRING_BYTES_MAX} at most")
    return raw


def _or_null(value: int | None, field: str) -> int:
    if value is None:
        return NULL
    if value < 0:
        raise EncodeError(f"{field}: {value} is negative")
    return value


def _packed(form: Struct, value: int, field: str) -> bytes:
    try:
        return form.pack(value)
    except StructError:
        raise EncodeError(f"{field}: {value!r} does not fit into {form.size} bytes") from None
