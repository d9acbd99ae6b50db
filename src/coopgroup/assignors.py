"""Assignors decide WHERE each resource should be; policies decide WHEN it moves there.

Users register their own assignors by name (`register_assignor`). This module exports everything
that an assignor of a user imports.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor, Placement
    from coopgroup.core.assignors.drain import DrainTimeAssignor
    from coopgroup.core.assignors.lag.assignor import LagAwareAssignor
    from coopgroup.core.assignors.placement import PlacementAssignor, ResourceToPlace
    from coopgroup.core.assignors.pools import Pool, subscriber_pools
    from coopgroup.core.assignors.range import RangeAssignor
    from coopgroup.core.assignors.registry import assignor_names, create_assignor, register_assignor
    from coopgroup.core.assignors.round_robin import RoundRobinAssignor
    from coopgroup.core.assignors.sticky.assignor import CooperativeStickyAssignor, StickyAssignor
    from coopgroup.core.assignors.weighted import WeightedAssignor
    from coopgroup.core.model import (
        NOBODY,
        GroupMember,
        GroupSnapshot,
        MemberClaim,
        ReplicaRacks,
        Resource,
        ResourceSet,
        resolve_claims,
    )
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = [
    "NOBODY",
    "Assignor",
    "BoolArray",
    "CooperativeStickyAssignor",
    "DrainTimeAssignor",
    "GroupMember",
    "GroupSnapshot",
    "Int32Array",
    "Int64Array",
    "LagAwareAssignor",
    "MemberClaim",
    "Placement",
    "PlacementAssignor",
    "Pool",
    "RangeAssignor",
    "ReplicaRacks",
    "Resource",
    "ResourceSet",
    "ResourceToPlace",
    "RoundRobinAssignor",
    "StickyAssignor",
    "WeightedAssignor",
    "assignor_names",
    "create_assignor",
    "register_assignor",
    "resolve_claims",
    "subscriber_pools",
]

if not TYPE_CHECKING:  # type checkers see only the imports above
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "coopgroup.core.assignors.base": ("Assignor", "Placement"),
            "coopgroup.core.assignors.drain": ("DrainTimeAssignor",),
            "coopgroup.core.assignors.lag.assignor": ("LagAwareAssignor",),
            "coopgroup.core.assignors.placement": ("PlacementAssignor", "ResourceToPlace"),
            "coopgroup.core.assignors.pools": ("Pool", "subscriber_pools"),
            "coopgroup.core.assignors.range": ("RangeAssignor",),
            "coopgroup.core.assignors.registry": (
                "assignor_names",
                "create_assignor",
                "register_assignor",
            ),
            "coopgroup.core.assignors.round_robin": ("RoundRobinAssignor",),
            "coopgroup.core.assignors.sticky.assignor": (
                "CooperativeStickyAssignor",
                "StickyAssignor",
            ),
            "coopgroup.core.assignors.weighted": ("WeightedAssignor",),
            "coopgroup.core.model": (
                "GroupMember",
                "GroupSnapshot",
                "MemberClaim",
                "NOBODY",
                "ReplicaRacks",
                "Resource",
                "ResourceSet",
                "resolve_claims",
            ),
            "coopgroup.core.model.resource_set": ("BoolArray", "Int32Array", "Int64Array"),
        },
    )
