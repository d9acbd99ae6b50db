"""The records themselves: one class per kind of thing that can happen.

Rules of this file: a record is a frozen value in the past tense; its fields are plain values,
resource sets or tuples of them; the class docstring says who writes it and when. A field may be
added with a default, never renamed or removed (see `codec`).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen

from coopgroup.model import EMPTY, ResourceSet

__all__ = [
    "AssignmentReceived",
    "BalanceRequested",
    "CommitFailed",
    "EndCause",
    "FaultInjected",
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
    "RoundLed",
    "RoundRefused",
    "StateChanged",
    "StopReason",
    "SubscriptionUnreadable",
    "WorkFailed",
]


class StopReason(enum.StrEnum):
    """Why a member stopped working on resources."""

    REVOKED = "revoked"
    LOST = "lost"
    CLOSED = "closed"


class EndCause(enum.StrEnum):
    """How a process came to its end."""

    CLOSED = "closed"
    CRASHED = "crashed"


@frozen(kw_only=True)
class StateChanged:
    """A member's state machine moved. Written by the member.

    Attributes:
        before: state that it left.
        after: state that it entered.
        cause: event that moved it.
    """

    before: str
    after: str
    cause: str


@frozen(kw_only=True)
class AssignmentReceived:
    """A member completed a round and learnt what it holds. Written by the member.

    Attributes:
        leader: whether this member led the round.
        gained: held now, not before.
        kept: held before and now.
        revoked: to be stopped now.
        follow_up: whether the leader announced another round.
        scheduled_rebalance_timeout_ms: delay that the leader announced, in ms; 0 for none.
        protocol: that the group spoke in the round: ours, or one of Kafka's own clients; "" where
            the writer does not say.
    """

    leader: bool
    gained: ResourceSet = EMPTY
    kept: ResourceSet = EMPTY
    revoked: ResourceSet = EMPTY
    follow_up: bool = False
    scheduled_rebalance_timeout_ms: int = 0
    protocol: str = ""


@frozen(kw_only=True)
class ResourcesStarted:
    """The application began to work on resources. Written by the host, after `on_assign`.

    Attributes:
        resources: what it works on from now.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class ResourcesStopped:
    """The application works on resources no longer. Written by the host, after the callback.

    Attributes:
        resources: what it works on no more.
        reason: why.
        duration_ms: how long the stop took, callback and commit included, in ms.
    """

    resources: ResourceSet
    reason: StopReason
    duration_ms: int = 0


@frozen(kw_only=True)
class MembershipLost:
    """A member lost everything that it held without a chance to commit. Written by the member.

    Attributes:
        resources: what it held.
        cause: "lease expired", "rebalance time-out", or the request and error that said so.
    """

    resources: ResourceSet
    cause: str


@frozen(kw_only=True)
class RequestRefused:
    """The group coordinator refused a request, or no answer came. Written by the member.

    Attributes:
        request: name of the request.
        error: name of the error.
        action: what the member does about it.
    """

    request: str
    error: str
    action: str


@frozen(kw_only=True)
class CommitFailed:
    """Offsets could not be committed. Written by the host.

    Attributes:
        resources: partitions whose offsets were refused.
        error: name of the error.
    """

    resources: ResourceSet
    error: str


@frozen(kw_only=True)
class RoundLed:
    """A leader decided a round. Written by the leader.

    Attributes:
        policy: name of the policy.
        assignor: name of the assignor.
        members: member ids, ascending.
        granted: resources that somebody gained.
        revoked: claims that somebody must give up.
        lost: lost, and still waiting for the owner.
        created: never owned before, granted now.
        waiting: in target and not yet released.
        contested: claimed twice in one generation, granted to nobody.
        follow_up: whether another round was announced.
        scheduled_rebalance_timeout_ms: announced delay, in ms; 0 for none.
        protocol: that the group spoke in the round, as in `AssignmentReceived`.
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
    scheduled_rebalance_timeout_ms: int = 0
    protocol: str = ""


@frozen(kw_only=True)
class RoundRefused:
    """A leader's safety check refused a staged round, which then moved nothing: a bug.

    Attributes:
        violations: what was wrong, one sentence each.
    """

    violations: tuple[str, ...]


@frozen(kw_only=True)
class BalanceRequested:
    """A leader asked for a round because lags had been uneven for long. Written by the leader.

    Attributes:
        overloaded: member ids of those that carried too much, ascending.
        lags: lag of each of them, in records; those of members that tell how fast they are count
            as much as they would to one of mean speed.
        mean_lag: mean of all members, counted likewise.
        resources: what would have moved by the lags of that moment; the round looks again.
    """

    overloaded: tuple[str, ...]
    lags: tuple[int, ...]
    mean_lag: int
    resources: ResourceSet = EMPTY


@frozen(kw_only=True)
class SubscriptionUnreadable:
    """A member's subscription could not be decoded; it gains nothing. Written by the leader.

    Attributes:
        member_id: whose it is.
        reason: what is wrong, with the offset.
    """

    member_id: str
    reason: str


@frozen(kw_only=True)
class WorkFailed:
    """A callback of a group of named resources raised. Written by the host; it is tried again.

    Attributes:
        resources: what it was about.
        action: "start", "stop" or "lost".
        error: what was raised, one line.
        attempts: how often in a row.
    """

    resources: ResourceSet
    action: str
    error: str
    attempts: int


# What follows only a host knows that controls processes, such as the simulator.


@frozen(kw_only=True)
class ProcessStarted:
    """A process began its life. Written by the host, before anything else of this life.

    Attributes:
        instance_id: its static id, "" for a dynamic member.
        topics: names that it subscribes to, ascending.
    """

    instance_id: str = ""
    topics: tuple[str, ...] = ()


@frozen(kw_only=True)
class ProcessEnded:
    """A process ended: whatever it worked on, it works on no more. Written by the host.

    Attributes:
        cause: how.
    """

    cause: EndCause


@frozen(kw_only=True)
class ProcessPaused:
    """A process stands still: it works on nothing. Written by the host.

    As after SIGSTOP, or because what it holds may be another's by now (`hold_until_ms`).
    """


@frozen(kw_only=True)
class ProcessResumed:
    """A process goes on. Written by the host.

    What it worked on when it was paused it works on again, but for what a `ResourcesStopped`
    meanwhile or at the same time takes away: its lease ran out, say.
    """


@frozen(kw_only=True)
class OffsetsCommitted:
    """The group coordinator accepted a commit. Written by the host, as the coordinator does it.

    Attributes:
        resources: the partitions.
        offsets: the offset of each, in the order of `resources`.
    """

    resources: ResourceSet
    offsets: tuple[int, ...]


@frozen(kw_only=True)
class FaultInjected:
    """Something happened to the surroundings of the group. Written by the host.

    Attributes:
        description: what, in a few words.
    """

    description: str


Record: TypeAlias = (
    StateChanged
    | AssignmentReceived
    | ResourcesStarted
    | ResourcesStopped
    | MembershipLost
    | RequestRefused
    | CommitFailed
    | RoundLed
    | RoundRefused
    | BalanceRequested
    | SubscriptionUnreadable
    | WorkFailed
    | ProcessStarted
    | ProcessEnded
    | ProcessPaused
    | ProcessResumed
    | OffsetsCommitted
    | FaultInjected
)
