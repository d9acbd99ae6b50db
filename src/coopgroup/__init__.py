"""Incremental cooperative rebalancing for Kafka consumer groups.

The public names are imported on first use, so that `import coopgroup` (and with it every
command of the command line) stays quick and pulls in only what is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coopgroup.assignors import (
        LagAwareAssignor,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
    )
    from coopgroup.kafka.consumer import CooperativeConsumer
    from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy

__all__ = [
    "CooperativeConsumer",
    "DeferredPolicy",
    "IncrementalPolicy",
    "LagAwareAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "SimplePolicy",
    "StickyAssignor",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "CooperativeConsumer": "coopgroup.kafka.consumer",
    "DeferredPolicy": "coopgroup.policies",
    "IncrementalPolicy": "coopgroup.policies",
    "LagAwareAssignor": "coopgroup.assignors",
    "RangeAssignor": "coopgroup.assignors",
    "RoundRobinAssignor": "coopgroup.assignors",
    "SimplePolicy": "coopgroup.policies",
    "StickyAssignor": "coopgroup.assignors",
}

if not TYPE_CHECKING:  # a type checker sees the imports above, and no other name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names, imported or not."""
        return sorted({*globals(), *__all__})
