"""Incremental cooperative rebalancing for Kafka consumer groups.

Public names are imported on first use. So `import coopgroup` stays fast, and each command imports
only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coopgroup.assignors import (
        Assignor,
        CooperativeStickyAssignor,
        DrainTimeAssignor,
        LagAwareAssignor,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        WeightedAssignor,
    )
    from coopgroup.errors import (
        AssignorError,
        BufferUnderflowError,
        ConfigurationError,
        CoopgroupError,
        DecodeError,
        EncodeError,
        InvalidCountError,
        InvalidStringError,
        InvalidValueError,
        InvariantViolationError,
        LocalProtocolError,
        ProcessingError,
        ProtocolError,
        RemoteProtocolError,
        TrailingBytesError,
        UnsupportedVersionError,
    )
    from coopgroup.groups import (
        Catalogue,
        CooperativeGroup,
        Leadership,
        WorkFailure,
    )
    from coopgroup.kafka.consumer import (
        CooperativeConsumer,
    )
    from coopgroup.model import (
        Resource,
        ResourceSet,
    )
    from coopgroup.policies import (
        DeferredPolicy,
        IncrementalPolicy,
        Policy,
        SimplePolicy,
    )

__all__ = [
    "Assignor",
    "AssignorError",
    "BufferUnderflowError",
    "Catalogue",
    "ConfigurationError",
    "CooperativeConsumer",
    "CooperativeGroup",
    "CooperativeStickyAssignor",
    "CoopgroupError",
    "DecodeError",
    "DeferredPolicy",
    "DrainTimeAssignor",
    "EncodeError",
    "IncrementalPolicy",
    "InvalidCountError",
    "InvalidStringError",
    "InvalidValueError",
    "InvariantViolationError",
    "LagAwareAssignor",
    "Leadership",
    "LocalProtocolError",
    "Policy",
    "ProcessingError",
    "ProtocolError",
    "RangeAssignor",
    "RemoteProtocolError",
    "Resource",
    "ResourceSet",
    "RoundRobinAssignor",
    "SimplePolicy",
    "StickyAssignor",
    "TrailingBytesError",
    "UnsupportedVersionError",
    "WeightedAssignor",
    "WorkFailure",
    "__version__",
]

__version__ = "0.2.0.dev0"

_HOMES = {
    "Assignor": "coopgroup.assignors",
    "AssignorError": "coopgroup.errors",
    "BufferUnderflowError": "coopgroup.errors",
    "Catalogue": "coopgroup.groups",
    "ConfigurationError": "coopgroup.errors",
    "CooperativeConsumer": "coopgroup.kafka.consumer",
    "CooperativeGroup": "coopgroup.groups",
    "CooperativeStickyAssignor": "coopgroup.assignors",
    "CoopgroupError": "coopgroup.errors",
    "DecodeError": "coopgroup.errors",
    "DeferredPolicy": "coopgroup.policies",
    "DrainTimeAssignor": "coopgroup.assignors",
    "EncodeError": "coopgroup.errors",
    "IncrementalPolicy": "coopgroup.policies",
    "InvalidCountError": "coopgroup.errors",
    "InvalidStringError": "coopgroup.errors",
    "InvalidValueError": "coopgroup.errors",
    "InvariantViolationError": "coopgroup.errors",
    "LagAwareAssignor": "coopgroup.assignors",
    "Leadership": "coopgroup.groups",
    "LocalProtocolError": "coopgroup.errors",
    "Policy": "coopgroup.policies",
    "ProcessingError": "coopgroup.errors",
    "ProtocolError": "coopgroup.errors",
    "RangeAssignor": "coopgroup.assignors",
    "RemoteProtocolError": "coopgroup.errors",
    "Resource": "coopgroup.model",
    "ResourceSet": "coopgroup.model",
    "RoundRobinAssignor": "coopgroup.assignors",
    "SimplePolicy": "coopgroup.policies",
    "StickyAssignor": "coopgroup.assignors",
    "TrailingBytesError": "coopgroup.errors",
    "UnsupportedVersionError": "coopgroup.errors",
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
