"""Assignors decide WHERE each resource should be; policies decide WHEN it moves there.

Users register their own assignors by name (`register_assignor`). This module exports everything
that an assignor of a user imports.
"""

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
