"""Events of a member: frozen values, named in the past tense.

This file defines values only. The host creates events and passes them to `step` in the order of
their occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from attrs import field, frozen

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import Answer


class Offset(NamedTuple):
    """An offset to commit for one partition; a tuple, because a commit has one per partition.

    Attributes:
        topic: the topic.
        partition: the partition.
        offset: offset of the next record to read.
        leader_epoch: epoch of the record before it, -1 if unknown (KIP-320).
        metadata: the application's own note.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@frozen(kw_only=True)
class SubscriptionChanged:
    """The application subscribed, or the set of matching topics changed.

    Attributes:
        topics: subscribed names, ascending and distinct.
        hands_over: whether the member leaves permanently, and keeps each resource until its next
            owner is warm. It then has no topics.
    """

    topics: tuple[str, ...]
    hands_over: bool = False


@frozen(kw_only=True)
class CatalogueSeen:
    """The application has seen a version of the group's catalogue; the next join reports it.

    This event requests no round. The leader does that, or a member that sees that the leader is
    behind.

    Attributes:
        version: at least 0; None without a version.
    """

    version: int | None


@frozen(kw_only=True)
class StartsDeclined:
    """The application declines to start some resources; a round follows if they have changed.

    Attributes:
        resources: all declined resources; each join tells them.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class WarmSetDeclared:
    """The application takes part in warm-ups, or does no longer; given before it subscribes.

    Attributes:
        warm: resources whose state it found, such as on disk; None if it takes no part.
    """

    warm: ResourceSet | None


@frozen(kw_only=True)
class WarmedUp:
    """The application is warm for some resources of its warm-ups.

    A round follows soon, so that the leader learns it.

    Attributes:
        resources: the resources; those whose warm-up was cancelled meanwhile are ignored.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class WarmupFailed:
    """The application cannot warm up some resources, or lost their state.

    They do not begin again until the leader has cancelled them. The leader is not told why the
    member stays cold: its time-out decides.

    Attributes:
        resources: the resources; those whose warm-up was cancelled meanwhile are ignored.
        error: the reason, for telemetry.
    """

    resources: ResourceSet
    error: str


@frozen(kw_only=True)
class RejoinRequested:
    """Something outside the group requests a round, such as new partitions or uneven lag.

    Attributes:
        reason: for logs and for the broker (KIP-800).
    """

    reason: str


@frozen(kw_only=True)
class LeaveRequested:
    """The application gave up all resources and leaves the group.

    Attributes:
        reason: for logs and for the broker (KIP-800).
        for_good: whether no process will return as this member. A member with a stored identity
            then tells the coordinator, as any dynamic member does.
    """

    reason: str
    for_good: bool = False


@frozen(kw_only=True)
class ApplicationStalled:
    """The application has not polled within `max.poll.interval.ms`."""


@frozen(kw_only=True)
class RevocationCompleted:
    """The application stopped some of the resources that it had to stop, in this round or earlier.

    Their offsets are committed, or were requested with `CommitRequested`. The join that gives the
    resources up waits for every commit of them that was requested before.

    Attributes:
        resources: the stopped resources; resources lost or given up meanwhile are ignored.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class LossHandled:
    """The application knows that it lost all resources.

    A member that leaves meanwhile waits no longer, so this changes only the state `losing`.
    """


@frozen(kw_only=True)
class CommitRequested:
    """The application, or auto-commit, requests a commit of offsets.

    Attributes:
        commit_id: distinct number that the outcome will carry.
        offsets: at most one per partition.
        until_ms: when the caller stops waiting, by the host's clock; None for never.
    """

    commit_id: int
    offsets: tuple[Offset, ...]
    until_ms: int | None = None


@frozen(kw_only=True)
class AssignmentsDecided:
    """The leader's decision about the round that this member leads is available.

    Attributes:
        number: number of the `DecideRound`.
        assignments: (member id, assignment bytes) for every member.
    """

    number: int
    assignments: tuple[tuple[str, bytes], ...]


@frozen(kw_only=True)
class Answered:
    """A request was answered.

    Attributes:
        request_id: id of the `Send` effect.
        answer: the coordinator's answer.
        partition_counts: numbers of partitions by topic, if this is the outcome of
            `CountPartitions`; a topic whose number is unknown is missing. None in all other cases.
        topic_names: names of topics by id, if this is the outcome of `NameTopics`; a topic that was
            not found is missing. None in all other cases.
    """

    request_id: int
    answer: Answer
    partition_counts: Mapping[str, int] | None = field(default=None, hash=False)
    topic_names: Mapping[str, str] | None = field(default=None, hash=False)


@frozen(kw_only=True)
class RequestFailed:
    """A request will get no answer.

    Attributes:
        request_id: id of the `Send` effect.
        code: NO_ANSWER, UNSUPPORTED_BY_BROKER or UNAUTHENTICATED (`ErrorCode`).
        message: description for the application.
    """

    request_id: int
    code: int
    message: str


@frozen(kw_only=True)
class Woken:
    """Time has passed; `next_deadline_ms` says when this event is due."""


@frozen(kw_only=True)
class BellRang:
    """Another member of the group says that a round has begun. It may be wrong, or late."""


@frozen(kw_only=True)
class SessionTimeoutFound:
    """The outcome of `FindSessionTimeout`.

    Attributes:
        session_timeout_ms: the group's session timeout now.
    """

    session_timeout_ms: int


Event: TypeAlias = (
    SubscriptionChanged
    | CatalogueSeen
    | RejoinRequested
    | LeaveRequested
    | ApplicationStalled
    | RevocationCompleted
    | LossHandled
    | CommitRequested
    | StartsDeclined
    | WarmSetDeclared
    | WarmedUp
    | WarmupFailed
    | AssignmentsDecided
    | Answered
    | RequestFailed
    | Woken
    | BellRang
    | SessionTimeoutFound
)
