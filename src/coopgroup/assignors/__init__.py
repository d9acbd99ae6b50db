"""Assignors: WHERE each resource should be. Each is one file; users add theirs by name."""

from coopgroup.assignors.base import Assignor
from coopgroup.assignors.lag_aware import LagAwareAssignor
from coopgroup.assignors.range import RangeAssignor
from coopgroup.assignors.registry import assignor_names, create_assignor, register_assignor
from coopgroup.assignors.round_robin import RoundRobinAssignor
from coopgroup.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "LagAwareAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignor_names",
    "create_assignor",
    "register_assignor",
]
