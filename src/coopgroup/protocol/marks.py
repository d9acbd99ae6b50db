"""How a member of ours is told from others while the group speaks another client's protocol.

At the end of the user data that the protocol wants stands an empty one of ours. Other clients pass
over what follows their own, and range and roundrobin have none. Only people look at the mark
(`coopgroup group migrate`): no leader decides by it.
"""

from __future__ import annotations

from typing import Final

from coopgroup.protocol.user_data import encode_user_data
from coopgroup.protocol.values import UserData

__all__ = ["has_mark", "with_mark", "without_mark"]

_MARK: Final = encode_user_data(UserData())


def with_mark(user_data: bytes) -> bytes:
    """User data of another client's protocol, marked as that of a member of ours."""
    return user_data + _MARK


def has_mark(user_data: bytes | None) -> bool:
    """Whether a member of ours wrote user data of another client's protocol."""
    return user_data is not None and user_data.endswith(_MARK)


def without_mark(user_data: bytes) -> bytes:
    """User data as the protocol wants it."""
    return user_data.removesuffix(_MARK)
