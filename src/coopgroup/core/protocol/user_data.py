"""Codec of our user data in a subscription.

Four bytes of magic, an int16 version from 1, then fields; a new version only appends fields. The
magic distinguishes it from other user data: Kafka's CooperativeStickyAssignor writes an int32
generation, StickyAssignor a list of previous partitions, other clients nothing or something else.
"""

from __future__ import annotations

import math
from typing import Final

from coopgroup.core.model import EMPTY, NO_LOSS
from coopgroup.core.protocol.reader import INT16, INT32, INT64, NULL, ByteReader
from coopgroup.core.protocol.resource_array import (
    packed_nullable_resources,
    packed_resources,
    read_nullable_resources,
    read_resources,
)
from coopgroup.core.protocol.values import UserData
from coopgroup.core.protocol.writer import packed_int32, packed_int64, packed_nullable_string
from coopgroup.errors import EncodeError, InvalidValueError, UnsupportedVersionError

# As StickyAssignor's first field (a count) or as a generation these bytes are 1,668,773,220.
MAGIC: Final = b"cwud"
USER_DATA_NEWEST: Final = 7
_DELAY: Final = "remaining_delay_ms"
_LOSS: Final = "remaining_loss_ms"
_RATE: Final = "consumption_rate_per_s"
_CATALOGUE: Final = "catalogue_version"
_WARM: Final = "warm"
_HOST: Final = "host"
_DECLINED: Final = "declined"
_HANDS_OVER: Final = "hands_over"
_RATE_UNITS_PER_S: Final = 1_000


def encode_user_data(user_data: UserData, *, index_min: int = 0) -> bytes:
    """Write user data in the oldest version that has all its fields.

    Args:
        user_data: the user data.
        index_min: smallest allowed index of a warm resource: 0 for partitions, -1 in groups of
            connectors.

    Raises:
        EncodeError: a time or a version is negative or does not fit its type, the rate is invalid,
            or a warm resource, a declined one or the host has no wire form.
    """
    delay_ms, loss_ms = user_data.remaining_delay_ms, user_data.remaining_loss_ms
    rate_per_s, catalogue = user_data.consumption_rate_per_s, user_data.catalogue_version
    declined = packed_resources(user_data.declined, _DECLINED, index_min=index_min)
    delay = INT32.pack(NULL) if delay_ms is None else _packed_time(delay_ms, _DELAY)
    fields = (
        delay,
        delay if loss_ms is None else _packed_loss(loss_ms),
        INT64.pack(NULL) if rate_per_s is None else _packed_rate(rate_per_s),
        INT64.pack(NULL) if catalogue is None else _packed_version(catalogue),
        packed_nullable_resources(user_data.warm, _WARM, index_min=index_min),
        packed_nullable_string(user_data.host, _HOST) + declined,
        INT32.pack(user_data.hands_over),
    )
    version = _oldest_version(user_data)
    return MAGIC + INT16.pack(version) + b"".join(fields[:version])


def _oldest_version(user_data: UserData) -> int:
    """Return the oldest version that has all fields that are known."""
    known = (
        True,
        user_data.remaining_loss_ms is not None,
        user_data.consumption_rate_per_s is not None,
        user_data.catalogue_version is not None,
        user_data.warm is not None,
        user_data.host is not None or bool(user_data.declined),
        user_data.hands_over,
    )
    return max(version for version, is_known in enumerate(known, start=1) if is_known)


def decode_user_data(content: bytes | None, *, index_min: int = 0) -> UserData | None:
    """Read user data; None for absent user data and for that of other clients.

    From a newer version the known fields are read.

    Args:
        content: `Subscription.user_data`.
        index_min: smallest allowed index of a warm resource: 0 for partitions, -1 in groups of
            connectors.

    Raises:
        DecodeError: the bytes have our magic and are damaged; offsets count from their start. The
            subscription around them is still readable.
    """
    if content is None or not content.startswith(MAGIC):
        return None
    reader = ByteReader(content)
    reader.offset = len(MAGIC)
    version = reader.read_int16("user data version")
    if version < 1:
        raise UnsupportedVersionError(f"user data version: {version} has never existed", len(MAGIC))
    delay_ms = _read_time(reader, _DELAY)
    loss_ms = _read_time(reader, _LOSS) if version >= 2 else None
    rate_per_s = _read_rate(reader) if version >= 3 else None
    catalogue = _read_int64(reader, _CATALOGUE) if version >= 4 else None
    warm = None
    if version >= 5:
        warm = read_nullable_resources(reader, _WARM, index_min=index_min)
    host, declined = None, EMPTY
    if version >= 6:
        host = reader.read_nullable_string(_HOST)
        declined = read_resources(reader, _DECLINED, index_min=index_min)
    hands_over = version >= 7 and reader.read_int32(_HANDS_OVER) == 1
    if version <= USER_DATA_NEWEST:
        reader.require_end()
    if version >= 3 and loss_ms == delay_ms:  # one wait, or none
        loss_ms = None
    return UserData(
        remaining_delay_ms=None if delay_ms == NULL else delay_ms,
        remaining_loss_ms=loss_ms,
        consumption_rate_per_s=rate_per_s,
        catalogue_version=catalogue,
        warm=warm,
        host=host,
        declined=declined,
        hands_over=hands_over,
    )


def _packed_time(time_ms: int, field: str) -> bytes:
    if time_ms < 0:
        raise EncodeError(f"{field}: {time_ms} is negative")
    return packed_int32(time_ms, field)


def _packed_loss(loss_ms: int) -> bytes:
    return INT32.pack(NO_LOSS) if loss_ms == NO_LOSS else _packed_time(loss_ms, _LOSS)


def _packed_rate(rate_per_s: float) -> bytes:
    if not math.isfinite(rate_per_s) or rate_per_s < 0:
        raise EncodeError(f"{_RATE}: {rate_per_s!r} is no rate")
    return packed_int64(round(rate_per_s * _RATE_UNITS_PER_S), _RATE)


def _packed_version(version: int) -> bytes:
    if version < 0:
        raise EncodeError(f"{_CATALOGUE}: {version} is negative")
    return packed_int64(version, _CATALOGUE)


def _read_time(reader: ByteReader, field: str) -> int:
    """Read a time in ms, or -1, whose meaning depends on the field."""
    return _not_below_null(reader.read_int32(field), field, reader.offset - INT32.size)


def _read_rate(reader: ByteReader) -> float | None:
    units = _read_int64(reader, _RATE)
    return None if units is None else units / _RATE_UNITS_PER_S


def _read_int64(reader: ByteReader, field: str) -> int | None:
    offset = reader.offset
    number = _not_below_null(reader.read_int64(field), field, offset)
    return None if number == NULL else number


def _not_below_null(value: int, field: str, offset: int) -> int:
    if value < NULL:
        raise InvalidValueError(f"{field}: {value} is negative", offset)
    return value
