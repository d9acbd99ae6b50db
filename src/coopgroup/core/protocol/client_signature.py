"""The signature of our members while the group speaks another client's protocol.

Empty user data in our format follows the user data of that protocol. Other clients skip bytes after
their own, and range and roundrobin have none. Only `coopgroup group migrate` reads the signature;
no leader decides by it.
"""

from __future__ import annotations

from typing import Final

from coopgroup.core.protocol.user_data import encode_user_data
from coopgroup.core.protocol.values import UserData

__all__ = ["has_signature", "with_signature", "without_signature"]

_SIGNATURE: Final = encode_user_data(UserData())


def with_signature(user_data: bytes) -> bytes:
    """Append our signature to user data of another client's protocol."""
    return user_data + _SIGNATURE


def has_signature(user_data: bytes | None) -> bool:
    """Return whether user data of another client's protocol has our signature."""
    return user_data is not None and user_data.endswith(_SIGNATURE)


def without_signature(user_data: bytes) -> bytes:
    """Remove the signature from user data."""
    return user_data.removesuffix(_SIGNATURE)
