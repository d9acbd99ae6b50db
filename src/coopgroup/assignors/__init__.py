"""Assignors decide WHERE each resource should be; policies decide WHEN it moves there.

Each assignor is one module. Users register their own assignors by name (`registry`).
"""

from coopgroup.assignors.base import Assignor
from coopgroup.assignors.drain_time import DrainTimeAssignor
from coopgroup.assignors.lag_aware import LagAwareAssignor
from coopgroup.assignors.range import RangeAssignor
from coopgroup.assignors.registry import assignor_names, create_assignor, register_assignor
from coopgroup.assignors.round_robin import RoundRobinAssignor
from coopgroup.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from coopgroup.assignors.weighted import WeightedAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "DrainTimeAssignor",
    "LagAwareAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "WeightedAssignor",
    "assignor_names",
    "create_assignor",
    "register_assignor",
]
