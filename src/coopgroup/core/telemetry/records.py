"""Telemetry records: one class for each kind of event.

A record is a frozen value named in the past tense. Its fields are plain values, resource sets or
tuples of them. The class docstring names the writer and the moment. A field may be added with a
default, and is never renamed or removed (see `codec`).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen

from coopgroup.core.model import EMPTY, ResourceSet


class StopReason(enum.StrEnum):
    """Why a member stopped working on resources."""

    REVOKED = "revoked"
    LOST = "lost"
    CLOSED = "closed"
    CHANGED = "changed"


class EndCause(enum.StrEnum):
    """How a process ended."""

    CLOSED = "closed"
    CRASHED = "crashed"


@frozen(kw_only=True)
class StateChanged:
    """A member's state machine changed its state. Written by the member."""

    before: str
    after: str
    cause: str


@frozen(kw_only=True)
class AssignmentReceived:
    """A member completed a round and received its assignment. Written by the member.

    Attributes:
        gained: assigned now and not owned before.
        kept: owned before and assigned now.
        revoked: to be stopped now.
        rejoin_in_ms: when all members rejoin even if nothing happens, in ms from now; None for
            never.
        protocol: group protocol of the round: ours, or a protocol of Kafka's own clients; "" if
            unknown.
        session_timeout_ms: how long the member may own its resources without a heartbeat; 0 if
            unknown.
    """

    leader: bool
    gained: ResourceSet = EMPTY
    kept: ResourceSet = EMPTY
    revoked: ResourceSet = EMPTY
    follow_up: bool = False
    rejoin_in_ms: int | None = None
    protocol: str = ""
    session_timeout_ms: int = 0


@frozen(kw_only=True)
class AssigningMoved:
    """The group coordinator began or ended to assign in place of a leader. Written by each member.

    It assigns while the group has members with `group.protocol=consumer` (KIP-848). Meanwhile the
    group's policy and assignor have no effect.

    Attributes:
        meaning: this in words, for logs.
    """

    to_broker: bool
    meaning: str = ""


@frozen(kw_only=True)
class AssignmentRefused:
    """A leader assigned other topics, or resources that do not exist. Written by the member.

    The member does not own the refused resources, and rejoins.

    Attributes:
        leader: member id of the leader; "" if unknown.
        topics: the first names of the refused resources, ascending.
        topic_count: number of these names in all.
        resource_count: number of refused resources.
    """

    leader: str
    topics: tuple[str, ...]
    topic_count: int
    resource_count: int


@frozen(kw_only=True)
class AssignmentUnreadable:
    """A member could not read its assignment, and keeps what it owns. Written by the member."""

    protocol: str
    error: str


@frozen(kw_only=True)
class ResourcesStarted:
    """The application started work on resources. Written by the host, after `on_assign`."""

    resources: ResourceSet


@frozen(kw_only=True)
class ResourcesStopped:
    """The application stopped work on resources. Written by the host, after the callback.

    Attributes:
        duration_ms: duration of the stop, including callback and commit, in ms.
    """

    resources: ResourceSet
    reason: StopReason
    duration_ms: int = 0


@frozen(kw_only=True)
class MembershipLost:
    """A member lost all its resources without a chance to commit. Written by the member.

    Attributes:
        cause: "lease expired", "rebalance time-out", or the request and the error from which
            the member learned it.
        since_lease_ms: time since its lease had ended, in ms, for example of a frozen process; 0 if
            it had not.
    """

    resources: ResourceSet
    cause: str
    since_lease_ms: int = 0


@frozen(kw_only=True)
class RequestRefused:
    """The group coordinator refused a request or did not answer. Written by the member."""

    request: str
    error: str
    action: str


@frozen(kw_only=True)
class RequestRetried:
    """A request has failed for 10 s and is tried again without end. Written by the member.

    Written again each 10 minutes, and once more when the request succeeds.

    Attributes:
        request: name of the request.
        error: name of the last error.
        code: number of the last error.
        for_ms: time since the first failure, in ms.
        cause: usual cause of the error, "" if unknown.
        is_over: whether the request has succeeded.
    """

    request: str
    error: str
    code: int = 0
    for_ms: int = 0
    cause: str = ""
    is_over: bool = False


@frozen(kw_only=True)
class CommitFailed:
    """Offsets could not be committed. Written by the host.

    Attributes:
        resources: partitions whose offsets were refused.
    """

    resources: ResourceSet
    error: str


@frozen(kw_only=True)
class RoundDecided:
    """A leader decided a round. Written by the leader.

    Attributes:
        members: member ids, ascending.
        granted: resources with a new owner.
        revoked: claims that members must give up.
        lost: lost, and still waiting for the owner.
        created: never owned before, granted now.
        waiting: in target and not yet released.
        contested: claimed twice in one generation, and therefore not granted.
        rejoin_in_ms: as in `AssignmentReceived`.
        protocol: group protocol of the round, as in `AssignmentReceived`.
        gone: known to this leader before, and no longer existing for any subscriber.
    """

    policy: str
    assignor: str
    members: tuple[str, ...]
    granted: ResourceSet = EMPTY
    revoked: ResourceSet = EMPTY
    lost: ResourceSet = EMPTY
    created: ResourceSet = EMPTY
    waiting: ResourceSet = EMPTY
    contested: ResourceSet = EMPTY
    follow_up: bool = False
    rejoin_in_ms: int | None = None
    protocol: str = ""
    gone: ResourceSet = EMPTY


@frozen(kw_only=True)
class RoundRefused:
    """A leader's safety check refused a staged round, which then moved nothing. This is a bug.

    Attributes:
        violations: the violated rules, one sentence each.
    """

    violations: tuple[str, ...]


@frozen(kw_only=True)
class BalanceRequested:
    """A leader asked for a round because lags were uneven for a long time. Written by the leader.

    Attributes:
        lags: lag of each of them, in records. If a member reports its rate, its lag is scaled to a
            member of mean speed.
        mean_lag: mean of all members, scaled in the same way.
        resources: resources that would move with the present lags; the round looks again.
    """

    overloaded: tuple[str, ...]
    lags: tuple[int, ...]
    mean_lag: int
    resources: ResourceSet = EMPTY


@frozen(kw_only=True)
class SubscriptionUnreadable:
    """A member's subscription could not be decoded, so it gains nothing. Written by the leader."""

    member_id: str
    reason: str


@frozen(kw_only=True)
class UserDataUnreadable:
    """User data of ours could not be decoded, and is ignored. Written by the leader."""

    member_id: str
    reason: str


@frozen(kw_only=True)
class PolicyOrAssignorDiffers:
    """Members have another policy or assignor than their leader, whose own count.

    Written by the leader, for each difference, when it appears. A leader that finds more than five
    differences writes the rest as the fifth.

    Attributes:
        difference: what differs, for example "policy deferred instead of simple".
        members: ids of members with this difference, ascending, at most ten.
        count: number of members with this difference.
        advice: what to do.
    """

    difference: str
    members: tuple[str, ...]
    count: int
    advice: str = "normal while members restart one by one; otherwise give all members the same"


@frozen(kw_only=True)
class WithoutRoom:
    """Resources stay without an owner, because no member has room. Written by the leader.

    A round has a record for each reason. If there are more than five, the fifth has the rest.

    Attributes:
        resources: these resources.
        reasons: reasons of the assignor, ascending, at most five.
    """

    resources: ResourceSet
    reasons: tuple[str, ...]


@frozen(kw_only=True)
class ClaimRefused:
    """A leader does not believe claims of a member, or still waits for it. Written by the leader.

    Attributes:
        count: number of claimed resources.
        reason: "never assigned" or "not given up".
        waited_ms: how long the leader has waited for the member to give them up, in ms.
    """

    member_id: str
    count: int
    reason: str
    waited_ms: int = 0


@frozen(kw_only=True)
class WarmupsChanged:
    """Warm-ups of a member began, were finished, or ended. Written by the member.

    Attributes:
        begun: to be restored, or to be kept warm, from now on.
        warm: now warm: the state is restored, was kept when the resources were revoked, or was
            found before the member subscribed.
        moved: assigned to this member, warm or not.
        cancelled: not wanted any longer.
        failed: refused by the application.
        error: reason of the failure, "" without one.
    """

    begun: ResourceSet = EMPTY
    warm: ResourceSet = EMPTY
    moved: ResourceSet = EMPTY
    cancelled: ResourceSet = EMPTY
    failed: ResourceSet = EMPTY
    error: str = ""


@frozen(kw_only=True)
class WorkFailed:
    """A callback of a group of named resources raised. Written by the host.

    Attributes:
        action: "start", "stop", "lost" or "change", which the host repeats; "warm" or "cool", which
            it does not.
        attempts: number of attempts in a row.
        permanent: whether a start has failed permanently (`StartFailed`).
    """

    resources: ResourceSet
    action: str
    error: str
    attempts: int
    permanent: bool = False


@frozen(kw_only=True)
class MemberReported:
    """A member told how it is, as it does from time to time. Written by the host, to topics only.

    Attributes:
        state: its state, as in `StateChanged`.
        interval_ms: time to the next report, in ms.
        since_poll_ms: time since the application was last in `poll`, in ms; 0 inside `poll`, -1 for
            an application that does not poll.
        lease_ms: how long the member may own its resources without another heartbeat, in ms; 0 if
            its lease has ended, -1 without owned resources.
        rate_per_s: records that the application processes in a second of work; -1.0 if unknown.
        revoking: owned, and being stopped.
        warming: state that is being restored.
        warm: warm for a later owner, or as a standby.
        failed: owned, and not running, because their start has failed permanently.
    """

    state: str
    interval_ms: int
    since_poll_ms: int = -1
    lease_ms: int = -1
    rate_per_s: float = -1.0
    revoking: ResourceSet = EMPTY
    warming: ResourceSet = EMPTY
    warm: ResourceSet = EMPTY
    failed: ResourceSet = EMPTY


# Only a host that controls processes, such as the simulator, writes the following records.


@frozen(kw_only=True)
class ProcessStarted:
    """A process started. Written by the host, before all other records of this process.

    Attributes:
        instance_id: its static id, "" for a dynamic member.
        topics: names that it subscribes to, ascending.
    """

    instance_id: str = ""
    topics: tuple[str, ...] = ()


@frozen(kw_only=True)
class ProcessEnded:
    """A process ended, and with it all its work. Written by the host."""

    cause: EndCause


@frozen(kw_only=True)
class ProcessPaused:
    """A process paused all its work. Written by the host.

    Causes are SIGSTOP, and uncertainty whether the process still owns its resources
    (`hold_until_ms`).
    """


@frozen(kw_only=True)
class ProcessResumed:
    """A paused process continued. Written by the host.

    It continues its work, except for resources in a `ResourcesStopped` during the pause or at its
    end, for example because its lease had expired.
    """


@frozen(kw_only=True)
class OffsetsCommitted:
    """The group coordinator accepted a commit. Written by the host at that moment.

    Attributes:
        offsets: offset of each partition, in the order of `resources`.
    """

    resources: ResourceSet
    offsets: tuple[int, ...]


@frozen(kw_only=True)
class FaultInjected:
    """A fault was injected into the environment of the group. Written by the host."""

    description: str


Record: TypeAlias = (
    StateChanged
    | AssignmentReceived
    | AssigningMoved
    | AssignmentRefused
    | AssignmentUnreadable
    | ResourcesStarted
    | ResourcesStopped
    | MembershipLost
    | RequestRefused
    | RequestRetried
    | CommitFailed
    | RoundDecided
    | RoundRefused
    | BalanceRequested
    | SubscriptionUnreadable
    | UserDataUnreadable
    | PolicyOrAssignorDiffers
    | WithoutRoom
    | ClaimRefused
    | WarmupsChanged
    | WorkFailed
    | MemberReported
    | ProcessStarted
    | ProcessEnded
    | ProcessPaused
    | ProcessResumed
    | OffsetsCommitted
    | FaultInjected
)
