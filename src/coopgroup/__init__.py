"""Incremental cooperative rebalancing for Kafka consumer groups.

Public names are imported on first use. So `import coopgroup` stays fast, and each command imports
only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coopgroup.assignors import (
        DrainTimeAssignor,
        LagAwareAssignor,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        WeightedAssignor,
    )
    from coopgroup.groups import Catalogue, CooperativeGroup, Leadership, WorkFailure
    from coopgroup.kafka.consumer import CooperativeConsumer
    from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy

__all__ = [
    "Catalogue",
    "CooperativeConsumer",
    "CooperativeGroup",
    "DeferredPolicy",
    "DrainTimeAssignor",
    "IncrementalPolicy",
    "LagAwareAssignor",
    "Leadership",
    "RangeAssignor",
    "RoundRobinAssignor",
    "SimplePolicy",
    "StickyAssignor",
    "WeightedAssignor",
    "WorkFailure",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "Catalogue": "coopgroup.groups",
    "CooperativeConsumer": "coopgroup.kafka.consumer",
    "CooperativeGroup": "coopgroup.groups",
    "DeferredPolicy": "coopgroup.policies",
    "DrainTimeAssignor": "coopgroup.assignors",
    "IncrementalPolicy": "coopgroup.policies",
    "LagAwareAssignor": "coopgroup.assignors",
    "Leadership": "coopgroup.groups",
    "RangeAssignor": "coopgroup.assignors",
    "RoundRobinAssignor": "coopgroup.assignors",
    "SimplePolicy": "coopgroup.policies",
    "StickyAssignor": "coopgroup.assignors",
    "WeightedAssignor": "coopgroup.assignors",
    "WorkFailure": "coopgroup.groups",
}

if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names, imported or not."""
        return sorted({*globals(), *__all__})
