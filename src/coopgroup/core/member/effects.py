"""Effects: a member's commands to its host, as frozen values.

This file defines values only. The host carries effects out in the order of `step`'s result.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import attrs
from attrs import frozen

from coopgroup.core.member.events import Answered
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import Coordinator, GroupRequest, JoinedMember
from coopgroup.core.model.traits import Traits
from coopgroup.core.telemetry.records import Record


class Lane(enum.Enum):
    """The two connections to the coordinator; a request takes one or the other.

    A broker serves one request of a connection at a time. A request that must get through while a
    join waits needs another connection.
    """

    JOIN = "join"
    COMMIT = "commit"


@frozen(kw_only=True)
class Send:
    """Send a request; exactly one `Answered` or `RequestFailed` with its id must follow.

    Attributes:
        request_id: distinct number.
        lane: connection to use.
        coordinator: target broker; None for the look-up, which any broker answers.
        request: the request.
        timeout_ms: how long to wait for the answer, in ms.
    """

    request_id: int
    lane: Lane
    coordinator: Coordinator | None
    request: GroupRequest
    timeout_ms: int


@frozen(kw_only=True)
class CancelJoin:
    """Give up the request that waits on the join lane; its outcome no longer matters."""


@frozen(kw_only=True)
class CountPartitions:
    """Look up how many partitions topics have, and give `answered` again with `partition_counts`.

    The assignment waits for it, so the look-up must be bounded in time.

    Attributes:
        topics: names, ascending.
        answered: answer with partitions that the member does not know.
    """

    topics: tuple[str, ...]
    answered: Answered


@frozen(kw_only=True)
class NameTopics:
    """Look up the ids of topics, and give `answered` again with `topic_names`.

    The assignment, and the next heartbeat, wait for it. So the look-up must be bounded in time.

    Attributes:
        topics: names, ascending.
        answered: answer with topic ids that the member does not know.
    """

    topics: tuple[str, ...]
    answered: Answered


@frozen
class FindSessionTimeout:
    """Ask for the group's session timeout, which KIP-848 does not tell; give `SessionTimeoutFound`.

    No answer is needed: the member then goes on with the timeout that it knows.
    """


@frozen(kw_only=True)
class DecideRound:
    """Decide the round that this member leads, outside the loop, then give `AssignmentsDecided`.

    Attributes:
        number: distinct number that the decision must carry. A generation is not enough: a
            coordinator that takes over from an older log repeats some generations.
        generation: generation of the round.
        completed_generation: last generation that this member completed.
        member_id: id of this member, the leader.
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

    The host may report parts: stopped resources may move while the rest still stops.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class LoseResources:
    """Stop all work immediately without a commit: `on_lost`, then give `LossHandled`.

    All notices that were queued for the application before are void, except those of warm-ups.

    Attributes:
        resources: the resources that the member owned.
        cause: the reason, for logs.
    """

    resources: ResourceSet
    cause: str


@frozen(kw_only=True)
class BeginWarmups:
    """Restore the state of resources that other members own: `on_warmup`, then give `WarmedUp`.

    For resources that were just revoked: keep their state. The member counts as warm for them.
    """

    resources: ResourceSet


@frozen(kw_only=True)
class CancelWarmups:
    """Stop warm-ups, or keep the resources warm no longer: `on_warmup_cancelled`."""

    resources: ResourceSet


@frozen(kw_only=True)
class RingBell:
    """Tell the other members that a round has begun: each gets `BellRang`, if it can be reached.

    Nothing depends on it. The host does not repeat a ring, and reports no failure.
    """


@frozen(kw_only=True)
class SelfReport:
    """What a join tells the leader of its process, apart from topics and resources.

    Attributes:
        rack: see `MemberConfig`.
        traits: see `MemberConfig`.
        declines: whether it declines resources.
    """

    rack: str | None = None
    traits: Traits = attrs.field(factory=dict, hash=False)
    declines: bool = False


NO_REPORT: Final = SelfReport()


@frozen(kw_only=True)
class KeptIdentity:
    """The identity of a member in the last round that it completed.

    Attributes:
        member_id: its id from the coordinator.
        generation: generation of the round.
        topics: names that it subscribed to in the round, ascending.
        protocol: protocol that the coordinator chose for the round; "" for coopgroup's own.
        report: what its last join told.
    """

    member_id: str
    generation: int
    topics: tuple[str, ...]
    protocol: str = ""
    report: SelfReport = NO_REPORT


@frozen(kw_only=True)
class KeepIdentity:
    """Store the member's identity beyond the end of the process; it replaces the stored one.

    Attributes:
        identity: input of `new_member` in the next process; None if the group no longer knows the
            member, so that no identity is stored.
    """

    identity: KeptIdentity | None


@frozen(kw_only=True)
class FinishCommit:
    """Report the outcome of a commit.

    Attributes:
        commit_id: id of the `CommitRequested`.
        codes: (topic, partition, error code), ascending; 0 for committed.
    """

    commit_id: int
    codes: tuple[tuple[str, int, int], ...]


@frozen(kw_only=True)
class FailMember:
    """Give the application an error that a retry cannot fix.

    Attributes:
        code: the error code.
        message: one line that names the refusal and the remedy.
    """

    code: int
    message: str


@frozen(kw_only=True)
class Report:
    """Write a telemetry record.

    Attributes:
        member_id: id under which it happened; None for the present one.
    """

    record: Record
    member_id: str | None = None


Effect: TypeAlias = (
    Send
    | CancelJoin
    | CountPartitions
    | NameTopics
    | FindSessionTimeout
    | DecideRound
    | GrantResources
    | RevokeResources
    | LoseResources
    | BeginWarmups
    | CancelWarmups
    | KeepIdentity
    | FinishCommit
    | FailMember
    | RingBell
    | Report
)
