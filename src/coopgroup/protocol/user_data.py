"""Codec of the user data that our assignors add to a subscription.

Four bytes of magic, an int16 version from 1, then fields that later versions only append to. The
magic keeps foreign user data apart: Kafka's CooperativeStickyAssignor puts a bare int32 generation
there, its StickyAssignor a list of previous partitions, other clients nothing or anything.
"""

from __future__ import annotations

from typing import Final

from coopgroup.errors import EncodeError, InvalidValueError, UnsupportedVersionError
from coopgroup.protocol.reader import INT16, INT32, NULL, ByteReader
from coopgroup.protocol.values import UserData
from coopgroup.protocol.writer import packed_int32

__all__ = ["MAGIC", "USER_DATA_NEWEST", "decode_user_data", "encode_user_data"]

# Read as StickyAssignor's first field, a count, or as a generation, these bytes are 1,668,773,220.
MAGIC: Final = b"cwud"
USER_DATA_NEWEST: Final = 1
_DELAY: Final = "remaining_delay_ms"


def encode_user_data(user_data: UserData) -> bytes:
    """Write user data in the newest version.

    Raises:
        EncodeError: the delay is negative or does not fit into an int32.
    """
    delay_ms = user_data.remaining_delay_ms
    if delay_ms is not None and delay_ms < 0:
        raise EncodeError(f"{_DELAY}: {delay_ms} is negative")
    wire_delay = INT32.pack(NULL) if delay_ms is None else packed_int32(delay_ms, _DELAY)
    return MAGIC + INT16.pack(USER_DATA_NEWEST) + wire_delay


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
    offset = reader.offset
    delay_ms = reader.read_int32(_DELAY)
    if delay_ms < NULL:
        raise InvalidValueError(f"{_DELAY}: {delay_ms} is negative", offset)
    if version <= USER_DATA_NEWEST:
        reader.require_end()
    return UserData(remaining_delay_ms=None if delay_ms == NULL else delay_ms)
