"""Assignors by name, for configuration, command line and scenario files."""

from __future__ import annotations

from typing import Final

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.drain import DrainTimeAssignor
from coopgroup.core.assignors.lag.assignor import LagAwareAssignor
from coopgroup.core.assignors.range import RangeAssignor
from coopgroup.core.assignors.round_robin import RoundRobinAssignor
from coopgroup.core.assignors.sticky.assignor import CooperativeStickyAssignor, StickyAssignor
from coopgroup.core.assignors.weighted import WeightedAssignor
from coopgroup.core.model.named_factories import NamedFactories

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
