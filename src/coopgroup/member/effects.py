"""What a member asks of its host: frozen values, named as commands.

Rules of this file: values only. The host carries effects out in the order in which `step` gave
them.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from coopgroup.model import ResourceSet
from coopgroup.model.group_api import Coordinator, GroupRequest, JoinedMember
from coopgroup.telemetry import Record

if TYPE_CHECKING:
    from coopgroup.member.kept_identity import KeptIdentity

__all__ = [
    "STALLED",
    "CancelJoin",
    "DecideRound",
    "Effect",
    "FailMember",
    "FinishCommit",
    "GrantResources",
    "KeepIdentity",
    "Lane",
    "LoseResources",
    "Report",
    "RevokeResources",
    "Send",
]

STALLED: Final = "max.poll.interval.ms exceeded"
"""Cause of a loss because the application did not poll."""


class Lane(enum.Enum):
    """Which of the two connections to the coordinator a request takes.

    A broker serves one request of a connection at a time, so whatever must get through while a
    join waits needs a connection of its own.
    """

    __hash__ = object.__hash__  # part of the key of every connection: that of `Enum` is in Python

    JOIN = "join"
    COMMIT = "commit"


@frozen(kw_only=True)
class Send:
    """Send a request; exactly one `Answered` or `RequestFailed` with its id must follow.

    Attributes:
        request_id: distinct number.
        lane: which connection.
        coordinator: where to; None for the look-up, which any broker answers.
        request: what to send.
        timeout_ms: how long to wait for the answer, in ms.
    """

    request_id: int
    lane: Lane
    coordinator: Coordinator | None
    request: GroupRequest
    timeout_ms: int


@frozen(kw_only=True)
class CancelJoin:
    """Give up the request that waits on the join lane; its outcome is of no interest any more."""


@frozen(kw_only=True)
class DecideRound:
    """This member leads the round: decide it off the loop, then give `RoundDecided`.

    Attributes:
        number: distinct number that the decision must carry. A generation is not enough: a
            coordinator that takes over from an older log counts some of them once more.
        generation: of the round.
        completed_generation: last generation that this member completed.
        member_id: of this member, the leader.
        members: all members with their subscriptions.
    """

    number: int
    generation: int
    completed_generation: int
    member_id: str
    members: tuple[JoinedMember, ...]


@frozen(kw_only=True)
class GrantResources:
    """Start work on resources: `on_assign`, on the application's thread."""

    resources: ResourceSet


@frozen(kw_only=True)
class RevokeResources:
    """Stop work on resources: `on_revoke`, flush, commit, then give `RevocationCompleted`.

    That may be done in parts: what has stopped may go elsewhere while the rest still stops.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class LoseResources:
    """Stop all work at once, commit nothing: `on_lost`, then give `LossHandled`.

    Whatever was queued for the application before is void.

    Attributes:
        resources: what was held.
        cause: why, for logs.
    """

    resources: ResourceSet
    cause: str


@frozen(kw_only=True)
class KeepIdentity:
    """Keep who this member is beyond the end of the process, in place of what was kept before.

    Attributes:
        identity: what `new_member` takes in the next life of the process; None when the group
            knows the member no more, and nothing is to be kept.
    """

    identity: KeptIdentity | None


@frozen(kw_only=True)
class FinishCommit:
    """A commit came to its end.

    Attributes:
        commit_id: of the `CommitRequested`.
        codes: (topic, partition, error code), ascending; 0 for committed.
    """

    commit_id: int
    codes: tuple[tuple[str, int, int], ...]


@frozen(kw_only=True)
class FailMember:
    """Give the application an error that no retry mends.

    Attributes:
        code: the error code.
        message: one line that says what was refused and what to do.
    """

    code: int
    message: str


@frozen(kw_only=True)
class Report:
    """Write a telemetry record."""

    record: Record


Effect: TypeAlias = (
    Send
    | CancelJoin
    | DecideRound
    | GrantResources
    | RevokeResources
    | LoseResources
    | KeepIdentity
    | FinishCommit
    | FailMember
    | Report
)
