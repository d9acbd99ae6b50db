"""The stored identity of a member, which outlives its process (`identity` explains its use)."""

from __future__ import annotations

from attrs import frozen

__all__ = ["KeptIdentity"]


@frozen(kw_only=True)
class KeptIdentity:
    """The identity of a member in the last round that it completed.

    Attributes:
        member_id: its id from the coordinator.
        generation: generation of the round.
        topics: names that it subscribed to in the round, ascending.
        protocol: protocol that the coordinator chose for the round; "" for coopgroup's own.
    """

    member_id: str
    generation: int
    topics: tuple[str, ...]
    protocol: str = ""
