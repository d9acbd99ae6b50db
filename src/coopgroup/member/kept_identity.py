"""Who a member was, as it is kept beyond the end of its process (what it is worth: `identity`)."""

from __future__ import annotations

from attrs import frozen

__all__ = ["KeptIdentity"]


@frozen(kw_only=True)
class KeptIdentity:
    """Who a member was in the last round that it completed.

    Attributes:
        member_id: the coordinator's id of it.
        generation: of the round.
        topics: names that it subscribed to in the round, ascending.
        protocol: that the coordinator chose for the round; "" for our own.
    """

    member_id: str
    generation: int
    topics: tuple[str, ...]
    protocol: str = ""
