"""What can happen to a member: frozen values, named in the past tense.

Rules of this file: values only. The host makes events and passes them to `step` in the order in
which they happened.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from attrs import frozen

from coopgroup.model import ResourceSet
from coopgroup.model.group_api import Answer

__all__ = [
    "Answered",
    "ApplicationStalled",
    "CatalogueSeen",
    "CommitRequested",
    "CommitsAbandoned",
    "Event",
    "LeaveRequested",
    "LossHandled",
    "Offset",
    "RejoinRequested",
    "RequestFailed",
    "RevocationCompleted",
    "RoundDecided",
    "SubscriptionChanged",
    "Woken",
]


class Offset(NamedTuple):
    """An offset to commit for one partition; a tuple, for a commit has one for each partition.

    Attributes:
        topic: the topic.
        partition: the partition.
        offset: of the next record to read.
        leader_epoch: of the record before it, -1 when unknown (KIP-320).
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
    """

    topics: tuple[str, ...]


@frozen(kw_only=True)
class CatalogueSeen:
    """The application has seen a version of what the group shares; the next join says so.

    It asks for no round: whoever leads, or sees that the leader is behind, does that.

    Attributes:
        version: from 0 up, None for none.
    """

    version: int | None


@frozen(kw_only=True)
class RejoinRequested:
    """Something outside the group asks for a round, such as new partitions or uneven lag.

    Attributes:
        reason: for logs and for the broker (KIP-800).
    """

    reason: str


@frozen(kw_only=True)
class LeaveRequested:
    """The application gave up everything and leaves the group.

    Attributes:
        reason: for logs and for the broker (KIP-800).
        for_good: whether nobody will come back as this member: one whose identity is kept then
            tells the coordinator as any dynamic member does.
    """

    reason: str
    for_good: bool = False


@frozen(kw_only=True)
class ApplicationStalled:
    """The application has not polled within `max.poll.interval.ms`."""


@frozen(kw_only=True)
class RevocationCompleted:
    """The application stopped some of what it was told to stop, in this round or an earlier one.

    Its offsets are committed, or asked for by `CommitRequested`: the join that gives the resources
    up waits for every commit of them that was asked for before.

    Attributes:
        resources: what it stopped; what was lost or given up meanwhile means nothing.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class LossHandled:
    """The application knows that it lost everything."""


@frozen(kw_only=True)
class CommitRequested:
    """The application, or auto-commit, wants offsets committed.

    Attributes:
        commit_id: distinct number that the outcome will carry.
        offsets: at most one per partition.
    """

    commit_id: int
    offsets: tuple[Offset, ...]


@frozen(kw_only=True)
class CommitsAbandoned:
    """The callers of some commits were told that they timed out, and wait no more.

    These commits are not sent any more and end with REQUEST_TIMED_OUT. One that is under way cannot
    be taken back: it ends with its answer, and is not tried again. One that has ended already means
    nothing. The queue is copied once for all of them, so a host names them together.

    Attributes:
        commit_ids: of the `CommitRequested`.
    """

    commit_ids: frozenset[int]


@frozen(kw_only=True)
class RoundDecided:
    """The leader's decision about the round that this member leads is there.

    Attributes:
        number: of the `DecideRound`.
        assignments: (member id, assignment bytes) for every member.
    """

    number: int
    assignments: tuple[tuple[str, bytes], ...]


@frozen(kw_only=True)
class Answered:
    """A request was answered.

    Attributes:
        request_id: of the `Send` effect.
        answer: the coordinator's answer.
    """

    request_id: int
    answer: Answer


@frozen(kw_only=True)
class RequestFailed:
    """No answer will come to a request.

    Attributes:
        request_id: of the `Send` effect.
        code: NO_ANSWER, UNSUPPORTED_BY_BROKER or UNAUTHENTICATED (`ErrorCode`).
        message: what happened, for the application.
    """

    request_id: int
    code: int
    message: str


@frozen(kw_only=True)
class Woken:
    """Time has passed; `next_deadline_ms` says when this is due."""


Event: TypeAlias = (
    SubscriptionChanged
    | CatalogueSeen
    | RejoinRequested
    | LeaveRequested
    | ApplicationStalled
    | RevocationCompleted
    | LossHandled
    | CommitRequested
    | CommitsAbandoned
    | RoundDecided
    | Answered
    | RequestFailed
    | Woken
)
