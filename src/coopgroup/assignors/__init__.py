"""Assignors decide WHERE each resource should be; policies decide WHEN it moves there.

Users register their own assignors by name (`register_assignor`). This module exports everything
that an assignor of a user imports.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.assignors.base import Assignor
    from coopgroup.assignors.drain.assignor import DrainTimeAssignor
    from coopgroup.assignors.lag.assignor import LagAwareAssignor
    from coopgroup.assignors.pools import Pool, subscriber_pools
    from coopgroup.assignors.range.assignor import RangeAssignor
    from coopgroup.assignors.registry import assignor_names, create_assignor, register_assignor
    from coopgroup.assignors.round_robin import RoundRobinAssignor
    from coopgroup.assignors.sticky.assignor import CooperativeStickyAssignor, StickyAssignor
    from coopgroup.assignors.weighted import WeightedAssignor
    from coopgroup.model import (
        NOBODY,
        GroupMember,
        GroupSnapshot,
        MemberClaim,
        ReplicaRacks,
        Resource,
        ResourceSet,
        resolve_claims,
    )
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

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
    "Pool",
    "RangeAssignor",
    "ReplicaRacks",
    "Resource",
    "ResourceSet",
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
            "coopgroup.assignors.base": ("Assignor",),
            "coopgroup.assignors.drain.assignor": ("DrainTimeAssignor",),
            "coopgroup.assignors.lag.assignor": ("LagAwareAssignor",),
            "coopgroup.assignors.pools": ("Pool", "subscriber_pools"),
            "coopgroup.assignors.range.assignor": ("RangeAssignor",),
            "coopgroup.assignors.registry": (
                "assignor_names",
                "create_assignor",
                "register_assignor",
            ),
            "coopgroup.assignors.round_robin": ("RoundRobinAssignor",),
            "coopgroup.assignors.sticky.assignor": ("CooperativeStickyAssignor", "StickyAssignor"),
            "coopgroup.assignors.weighted": ("WeightedAssignor",),
            "coopgroup.model": (
                "GroupMember",
                "GroupSnapshot",
                "MemberClaim",
                "NOBODY",
                "ReplicaRacks",
                "Resource",
                "ResourceSet",
                "resolve_claims",
            ),
            "coopgroup.model.resource_set": ("BoolArray", "Int32Array", "Int64Array"),
        },
    )
