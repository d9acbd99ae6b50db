"""The `Assignor` protocol: decide WHERE each resource should be.

An assignor is any object with two attributes and one method; it inherits from nothing. An assignor
is pure: the same group, lags and options give the same target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array, Resource


@frozen(kw_only=True, eq=False)
class Placement:
    """A target that leaves some resources without an owner, because no member has room.

    Attributes:
        target: int32 (R,), as `Assignor.assign` returns it; `NOBODY` for these resources too.
        no_room: why, in a few words, for each resource (name, index) that is left out. The round
            goes on without them, and the leader reports them (`WithoutRoom`).
    """

    target: Int32Array
    no_room: Mapping[tuple[str, int], str] | Mapping[Resource, str]


@runtime_checkable
class Assignor(Protocol):
    """Decides where each resource should be.

    Attributes:
        name: name in configuration, command line and logs.
        needs_lags: whether the leader must look up lags before it calls `assign`.
    """

    @property
    def name(self) -> str:
        """Name in configuration, command line and logs."""
        ...

    @property
    def needs_lags(self) -> bool:
        """Whether `assign` reads the lags."""
        ...

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array | Placement:
        """Place every assignable resource that has a subscriber.

        Args:
            group: the group with R resources. `group.owner` is the present owner of each resource,
                for stickiness. An owner can have unsubscribed since. Only resources with
                `group.assignable` may be placed.
            lags: int64 (R,): lag of each resource, 0 where unknown.

        Returns:
            int32 (R,): number of the member that should own each resource. `NOBODY` for a resource
            that is not assignable or has no subscriber. Every other resource must go to a
            subscriber. A `Placement` says of some resources that no member has room.
        """
        ...
