"""Incremental cooperative rebalancing for Kafka consumer groups.

Public names are imported on first use. So `import coopgroup` stays fast, and each command imports
only what it needs.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

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
    from coopgroup.core.model import (
        Resource,
        ResourceSet,
    )
    from coopgroup.errors import (
        AssignorError,
        BufferUnderflowError,
        ConfigurationError,
        CoopgroupError,
        Decline,
        DecodeError,
        EncodeError,
        InvalidCountError,
        InvalidStringError,
        InvalidValueError,
        InvariantViolationError,
        LocalProtocolError,
        MissingExtraError,
        ProcessingError,
        ProtocolError,
        RemoteProtocolError,
        StartFailed,
        TrailingBytesError,
        UnsupportedVersionError,
    )
    from coopgroup.groups import (
        Catalogue,
        CatalogueTopic,
        CooperativeGroup,
        GroupResource,
        Leadership,
        Peer,
        WorkFailure,
    )
    from coopgroup.kafka.consumer import (
        CooperativeConsumer,
    )
    from coopgroup.policies import (
        DeferredPolicy,
        IncrementalPolicy,
        Policy,
        SimplePolicy,
        Warmup,
    )

__all__ = [
    "Assignor",
    "AssignorError",
    "BufferUnderflowError",
    "Catalogue",
    "CatalogueTopic",
    "ConfigurationError",
    "CooperativeConsumer",
    "CooperativeGroup",
    "CooperativeStickyAssignor",
    "CoopgroupError",
    "Decline",
    "DecodeError",
    "DeferredPolicy",
    "DrainTimeAssignor",
    "EncodeError",
    "GroupResource",
    "IncrementalPolicy",
    "InvalidCountError",
    "InvalidStringError",
    "InvalidValueError",
    "InvariantViolationError",
    "LagAwareAssignor",
    "Leadership",
    "LocalProtocolError",
    "MissingExtraError",
    "Peer",
    "Policy",
    "ProcessingError",
    "ProtocolError",
    "RangeAssignor",
    "RemoteProtocolError",
    "Resource",
    "ResourceSet",
    "RoundRobinAssignor",
    "SimplePolicy",
    "StartFailed",
    "StickyAssignor",
    "TrailingBytesError",
    "UnsupportedVersionError",
    "Warmup",
    "WeightedAssignor",
    "WorkFailure",
    "__version__",
]

__version__ = "0.2.0.dev0"

if not TYPE_CHECKING:  # type checkers see only the imports above
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "coopgroup.assignors": (
                "Assignor",
                "CooperativeStickyAssignor",
                "DrainTimeAssignor",
                "LagAwareAssignor",
                "RangeAssignor",
                "RoundRobinAssignor",
                "StickyAssignor",
                "WeightedAssignor",
            ),
            "coopgroup.errors": (
                "AssignorError",
                "BufferUnderflowError",
                "ConfigurationError",
                "CoopgroupError",
                "Decline",
                "DecodeError",
                "EncodeError",
                "InvalidCountError",
                "InvalidStringError",
                "InvalidValueError",
                "InvariantViolationError",
                "LocalProtocolError",
                "MissingExtraError",
                "ProcessingError",
                "ProtocolError",
                "RemoteProtocolError",
                "StartFailed",
                "TrailingBytesError",
                "UnsupportedVersionError",
            ),
            "coopgroup.groups": (
                "Catalogue",
                "CatalogueTopic",
                "CooperativeGroup",
                "GroupResource",
                "Leadership",
                "Peer",
                "WorkFailure",
            ),
            "coopgroup.kafka.consumer": ("CooperativeConsumer",),
            "coopgroup.policies": (
                "DeferredPolicy",
                "IncrementalPolicy",
                "Policy",
                "SimplePolicy",
                "Warmup",
            ),
            "coopgroup.core.model": (
                "Resource",
                "ResourceSet",
            ),
        },
    )
