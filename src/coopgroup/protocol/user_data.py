"""Codec of the user data that our assignors add to a subscription.

Four bytes of magic, an int16 version from 1, then fields that later versions only append to. The
magic keeps foreign user data apart: Kafka's CooperativeStickyAssignor puts a bare int32 generation
there, its StickyAssignor a list of previous partitions, other clients nothing or anything.
"""

from __future__ import annotations

from typing import Final

from coopgroup.errors import EncodeError, InvalidValueError, UnsupportedVersionError
from coopgroup.model import NO_LOSS
from coopgroup.protocol.reader import INT16, INT32, NULL, ByteReader
from coopgroup.protocol.values import UserData
from coopgroup.protocol.writer import packed_int32

__all__ = ["MAGIC", "USER_DATA_NEWEST", "decode_user_data", "encode_user_data"]

# Read as StickyAssignor's first field, a count, or as a generation, these bytes are 1,668,773,220.
MAGIC: Final = b"cwud"
USER_DATA_NEWEST: Final = 2
_DELAY: Final = "remaining_delay_ms"
_LOSS: Final = "remaining_loss_ms"


def encode_user_data(user_data: UserData) -> bytes:
    """Write user data in the oldest version that can say it.

    Raises:
        EncodeError: a time is negative or does not fit into an int32.
    """
    delay_ms, loss_ms = user_data.remaining_delay_ms, user_data.remaining_loss_ms
    delay = INT32.pack(NULL) if delay_ms is None else _packed_time(delay_ms, _DELAY)
    if loss_ms is None:
        return MAGIC + INT16.pack(1) + delay
    loss = INT32.pack(NO_LOSS) if loss_ms == NO_LOSS else _packed_time(loss_ms, _LOSS)
    return MAGIC + INT16.pack(2) + delay + loss


def decode_user_data(content: bytes | None) -> UserData | None:
    """Read user data; None for absent bytes and for bytes that are not ours.

    A newer version is read by the prefix that we know.

    Args:
        content: `Subscription.user_data`.

    Raises:
        DecodeError: the bytes begin as ours do and are damaged; offsets count from their start. A
            subscription with such user data is itself readable.
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
    if version <= USER_DATA_NEWEST:
        reader.require_end()
    return UserData(
        remaining_delay_ms=None if delay_ms == NULL else delay_ms, remaining_loss_ms=loss_ms
    )


def _packed_time(time_ms: int, field: str) -> bytes:
    if time_ms < 0:
        raise EncodeError(f"{field}: {time_ms} is negative")
    return packed_int32(time_ms, field)


def _read_time(reader: ByteReader, field: str) -> int:
    """Read ms, or -1: what that means is for the field to say."""
    offset = reader.offset
    time_ms = reader.read_int32(field)
    if time_ms < -1:
        raise InvalidValueError(f"{field}: {time_ms} is negative", offset)
    return time_ms
