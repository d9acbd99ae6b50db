"""What happened in a group, as frozen records in one versioned schema.

Logs, reports, the simulator and the Spark pipeline read these records and nothing else.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.core.telemetry.codec import SCHEMA_VERSION, Envelope, from_json, to_json
    from coopgroup.core.telemetry.ownership import Ownership, read_ownership
    from coopgroup.core.telemetry.records import (
        AssigningMoved,
        AssignmentReceived,
        AssignmentRefused,
        AssignmentUnreadable,
        BalanceRequested,
        ClaimRefused,
        CommitFailed,
        EndCause,
        FaultInjected,
        MemberReported,
        MembershipLost,
        OffsetsCommitted,
        ProcessEnded,
        ProcessPaused,
        ProcessResumed,
        ProcessStarted,
        Record,
        RequestRefused,
        ResourcesStarted,
        ResourcesStopped,
        RoundDecided,
        RoundRefused,
        StateChanged,
        StopReason,
        SubscriptionUnreadable,
        WarmupsChanged,
        WorkFailed,
    )
    from coopgroup.core.telemetry.warm_spans import WarmEnd, WarmSpan, read_warm_spans

__all__ = [
    "SCHEMA_VERSION",
    "AssigningMoved",
    "AssignmentReceived",
    "AssignmentRefused",
    "AssignmentUnreadable",
    "BalanceRequested",
    "ClaimRefused",
    "CommitFailed",
    "EndCause",
    "Envelope",
    "FaultInjected",
    "MemberReported",
    "MembershipLost",
    "OffsetsCommitted",
    "Ownership",
    "ProcessEnded",
    "ProcessPaused",
    "ProcessResumed",
    "ProcessStarted",
    "Record",
    "RequestRefused",
    "ResourcesStarted",
    "ResourcesStopped",
    "RoundDecided",
    "RoundRefused",
    "StateChanged",
    "StopReason",
    "SubscriptionUnreadable",
    "WarmEnd",
    "WarmSpan",
    "WarmupsChanged",
    "WorkFailed",
    "from_json",
    "read_ownership",
    "read_warm_spans",
    "to_json",
]

if not TYPE_CHECKING:  # type checkers see only the imports above
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "coopgroup.core.telemetry.codec": (
                "Envelope",
                "SCHEMA_VERSION",
                "from_json",
                "to_json",
            ),
            "coopgroup.core.telemetry.ownership": ("Ownership", "read_ownership"),
            "coopgroup.core.telemetry.records": (
                "AssigningMoved",
                "AssignmentReceived",
                "AssignmentRefused",
                "AssignmentUnreadable",
                "BalanceRequested",
                "ClaimRefused",
                "CommitFailed",
                "EndCause",
                "FaultInjected",
                "MemberReported",
                "MembershipLost",
                "OffsetsCommitted",
                "ProcessEnded",
                "ProcessPaused",
                "ProcessResumed",
                "ProcessStarted",
                "Record",
                "RequestRefused",
                "ResourcesStarted",
                "ResourcesStopped",
                "RoundDecided",
                "RoundRefused",
                "StateChanged",
                "StopReason",
                "SubscriptionUnreadable",
                "WarmupsChanged",
                "WorkFailed",
            ),
            "coopgroup.core.telemetry.warm_spans": ("WarmEnd", "WarmSpan", "read_warm_spans"),
        },
    )
