"""Assignors by name, for configuration, command line and scenario files."""

from __future__ import annotations

from typing import Final

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.drain.assignor import DrainTimeAssignor
from coopgroup.core.assignors.lag.assignor import LagAwareAssignor
from coopgroup.core.assignors.range.assignor import RangeAssignor
from coopgroup.core.assignors.round_robin import RoundRobinAssignor
from coopgroup.core.assignors.sticky.assignor import CooperativeStickyAssignor, StickyAssignor
from coopgroup.core.assignors.weighted import WeightedAssignor
from coopgroup.core.model.named_factories import NamedFactories

__all__ = ["assignor_names", "choose_assignor", "create_assignor", "register_assignor"]

_ASSIGNORS: Final = NamedFactories[Assignor](
    "assignor",
    {
        CooperativeStickyAssignor.name: CooperativeStickyAssignor,
        DrainTimeAssignor.name: DrainTimeAssignor,
        LagAwareAssignor.name: LagAwareAssignor,
        RangeAssignor.name: RangeAssignor,
        RoundRobinAssignor.name: RoundRobinAssignor,
        StickyAssignor.name: StickyAssignor,
        WeightedAssignor.name: WeightedAssignor,
    },
    made=Assignor,
)

assignor_names = _ASSIGNORS.names
choose_assignor = _ASSIGNORS.choose
create_assignor = _ASSIGNORS.create
register_assignor = _ASSIGNORS.register
