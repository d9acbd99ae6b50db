"""`QuickEnum`: an enum whose members are hashed by identity.

`enum.Enum` hashes the name of a member, in Python. Each step of a member looks up states, requests
and connections in dictionaries and sets. With `enum.Enum`, a run of the swarm takes 3 % longer.
"""

from __future__ import annotations

import enum

__all__ = ["QuickEnum"]


class QuickEnum(enum.Enum):
    """An enum without members, as the base of other enums."""

    __hash__ = object.__hash__
