"""What an assignor is: WHERE each resource should be.

An assignor is any object with the two attributes and the one method of `Assignor`; nothing needs
to be inherited. It is pure: the same group, lags and options give the same target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["Assignor"]


@runtime_checkable
class Assignor(Protocol):
    """Decides where each resource should be.

    Attributes:
        name: the name by which users choose it and logs show it.
        needs_lags: whether the leader has to look the lags up before a round.
    """

    @property
    def name(self) -> str:
        """Name by which users choose it."""
        ...

    @property
    def needs_lags(self) -> bool:
        """Whether `assign` reads the lags."""
        ...

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources; `group.owner` says who holds what now, for
                stickiness. An owner need not subscribe to what it holds, and only resources with
                `group.assignable` may be placed.
            lags: int64 (R,): lag of each resource, 0 where unknown.

        Returns:
            int32 (R,): number of the member that should hold each resource, NOBODY for those
            not assignable or without a subscriber. Every other resource must have a holder that
            subscribes to it.
        """
        ...
