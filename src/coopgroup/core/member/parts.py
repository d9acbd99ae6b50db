"""The parts of a member: values whose fields change together.

A member has a field for each part. Each part answers one question, for instance how long the lease
lasts, or what the application still has to stop. The parts have slots, because every step reads
them.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.member.effects import NO_REPORT, SelfReport
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION

if TYPE_CHECKING:
    from coopgroup.core.member.config import MemberConfig
    from coopgroup.core.member.effects import KeptIdentity
    from coopgroup.core.protocol.values import Assignment

BELL_PAUSE_MS: Final = 50
"""Shortest time between two rings of a member, and between two heartbeats for heard rings."""


@frozen(kw_only=True)
class Lease:
    """Bounds on the coordinator's timers, which limit how long the member may own its resources.

    Attributes:
        until_ms: until when it may work on its owned resources. Counts from the sending of the last
            request that proved the session alive.
        settled_at_ms: the coordinator's time-outs for a join or sync that this member may miss
            began at this time or later.
        joining_since_ms: when the first join without a known outcome was sent; None if no join was
            sent since the last answer.
        round_open_at_ms: when the last heartbeat was sent that proved the round of the waiting join
            or sync still open.
        generation: the last generation that the member joined, also in a membership that it has
            lost.
        falls_back: whether the group may be in the last generation that the member completed,
            because the coordinator was lost before it stored the generation that the member joined.
        may_restart: whether a coordinator was looked up since that join. It may have continued from
            an earlier generation, and counted another round with the same number.
    """

    until_ms: int = 0
    settled_at_ms: int = 0
    joining_since_ms: int | None = None
    round_open_at_ms: int = 0
    generation: int = NO_GENERATION
    falls_back: bool = False
    may_restart: bool = False

    @property
    def round_ended_after_ms(self) -> int:
        """Return a time at which the round of the waiting join had not ended yet."""
        return max(self.settled_at_ms, self.round_open_at_ms, self.joining_since_ms or 0)

    def joining(self, now_ms: int) -> Lease:
        """Return the lease after a join was sent; the first one without an outcome counts."""
        if self.joining_since_ms is not None:
            return self
        return attrs.evolve(self, joining_since_ms=now_ms)

    def joined(self, generation: int) -> Lease:
        """Return the lease after the answer to a join."""
        return attrs.evolve(
            self,
            joining_since_ms=None,
            generation=generation,
            falls_back=False,
            may_restart=False,
        )

    def proven(self, *, until_ms: int, settled_at_ms: int = 0, round_open_at_ms: int = 0) -> Lease:
        """Return the lease after proofs; a proof that is older than the last one changes nothing.

        Args:
            until_ms: the session lives until this time at least.
            settled_at_ms: no round had begun at this time; 0 without a proof.
            round_open_at_ms: the round was still open at this time; 0 without a proof.
        """
        return Lease(
            until_ms=max(self.until_ms, until_ms),
            settled_at_ms=max(self.settled_at_ms, settled_at_ms),
            joining_since_ms=self.joining_since_ms,
            round_open_at_ms=max(self.round_open_at_ms, round_open_at_ms),
            generation=self.generation,
            falls_back=self.falls_back,
            may_restart=self.may_restart,
        )


@frozen(kw_only=True)
class Warmups:
    """The warm-ups of a member whose application takes part in them (KIP-441).

    The sets survive the loss of a membership, because state is local to the process.

    Attributes:
        wanted: warm-ups of the last assignment: the complete set. It can contain resources that the
            member still stops, and whose state it is to keep.
        begun: warm-ups that the application was told of, and that were not cancelled.
        warm: resources that the member is warm for, and does not own; the next join tells them.
        failed: wanted resources that the application refused; the next join tells them.
        rejoin_at_ms: when the member wants a round, to tell one of the two; None for never.
        rejoin_reason: why it wants this round.
        is_new: whether the process has not received an assignment yet.
    """

    wanted: ResourceSet = EMPTY
    begun: ResourceSet = EMPTY
    warm: ResourceSet = EMPTY
    failed: ResourceSet = EMPTY
    rejoin_at_ms: int | None = None
    rejoin_reason: str = ""
    is_new: bool = True


@frozen(kw_only=True)
class NextJoin:
    """The content of the member's next join, apart from its claims.

    Attributes:
        topics: subscribed names, ascending.
        catalogue_version: newest version of the group's catalogue that the member has seen, or
            None.
        consumption_rate_per_s: records that the application processes in a second of work, measured
            by the member's host; None if unknown.
        warmups: the member's warm-ups; None if its application takes no part in them.
        hands_over: whether the member leaves permanently, and keeps each resource until its next
            owner is warm.
        declined: resources that its application declines to start.
    """

    topics: tuple[str, ...] = ()
    catalogue_version: int | None = None
    consumption_rate_per_s: float | None = None
    warmups: Warmups | None = None
    hands_over: bool = False
    declined: ResourceSet = EMPTY


@frozen(kw_only=True)
class LastJoin:
    """The content of the member's last join.

    Attributes:
        topics: subscribed names.
        hands_over: whether the member handed over its resources.
        protocols: names of the offered protocols.
        catalogue_version: version of the group's catalogue, or None.
        report: what it told of the process.
        sent_at_ms: when it was sent.
    """

    topics: tuple[str, ...] = ()
    hands_over: bool = False
    protocols: tuple[str, ...] = ()
    catalogue_version: int | None = None
    report: SelfReport = NO_REPORT
    sent_at_ms: int = 0


@frozen(kw_only=True)
class Round:
    """The member's part in a round, from the answer to its join on.

    Attributes:
        protocol: protocol that the coordinator chose for the round.
        leader_id: id of the leader, "" if unknown.
        leads: whether the member is the leader of the round.
        duty_number: number of the decision that the leader waits for.
        decided: the leader's assignments for its sync; empty for a follower.
        by_broker: whether the group coordinator assigns, see `broker_assigns`.
        look_at_ms: when the member asks for another assignment by itself, None for never.
    """

    protocol: str = ""
    leader_id: str = ""
    leads: bool = False
    by_broker: bool = False
    look_at_ms: int | None = None
    duty_number: int = 0
    decided: tuple[tuple[str, bytes], ...] = ()


@frozen(kw_only=True)
class LastAssignment:
    """The assignment of the last round that the member completed, in any membership.

    Attributes:
        resources: the assigned resources.
        shared_digest: digest of all resources that the group shared in that round, noted by the
            leader for this member's next process; None if unknown.
        catalogue_version: version of the catalogue that the leader read; None without versions.
        by_broker: whether the group coordinator assigned them, see `Round`.
        refusals: number of assignments in a row of which the member refused a part.
        unreadable_since_ms: when the first one in a row arrived that could not be read, or None.
        error: why it could not be read.
    """

    resources: ResourceSet = EMPTY
    shared_digest: int | None = None
    catalogue_version: int | None = None
    by_broker: bool = False
    refusals: int = 0
    unreadable_since_ms: int | None = None
    error: str = ""


class IdStanding(enum.Enum):
    """Whether the group's log has a static member's id, which requires a complete round.

    A coordinator keeps a new id only in memory until then. If the group moves to another broker,
    the new coordinator reads the id of the member's earlier process, and fences the new id.
    """

    STORED = "stored"
    """A round with this id is complete, or there is no id yet."""

    GIVEN = "given"
    """The coordinator has given the id in a round that is not complete."""

    DOUBTFUL = "doubtful"
    """The same, and the coordinator has been lost since. Or a join without an id was lost: if it is
    served late, the static id belongs to a member id that this member never gets (KAFKA-20985)."""


@frozen(kw_only=True)
class Identity:
    """The records of the member's id outside of this process.

    Attributes:
        kept: the identity in the last round that the member completed, as long as the group may
            know it; None if identities are not stored.
        standing: whether the group's log has the id of a static member.
    """

    kept: KeptIdentity | None = None
    standing: IdStanding = IdStanding.STORED


@frozen(kw_only=True)
class Delay:
    """The delay that the leader announced.

    Attributes:
        rejoin_at_ms: when the leader wants all members to rejoin, None for never.
        loss_until_ms: when the wait for lost owners ends, None without such a wait. Later than the
            rejoin if the leader wants the rejoin only to continue with paced moves.
    """

    rejoin_at_ms: int | None = None
    loss_until_ms: int | None = None

    def after(self, assignment: Assignment, *, joined_at_ms: int, now_ms: int) -> Delay:
        """Return the delay after a round.

        A round with a follow-up is not final and sets no delay, so a running delay continues. A
        delay that was over when the join was sent is dropped, because the join reported it. After a
        pause between moves only the wait for a loss remains.

        Args:
            assignment: the leader's assignment, which names the delay.
            joined_at_ms: when the member's join of that round was sent.
            now_ms: the host's monotonic clock, in ms.
        """
        if assignment.rejoin_in_ms is not None:
            ends_in_ms = assignment.loss_ends_in_ms
            return Delay(
                rejoin_at_ms=now_ms + assignment.rejoin_in_ms,
                loss_until_ms=None if ends_in_ms is None else now_ms + ends_in_ms,
            )
        if assignment.revoked is None:
            return NO_DELAY
        running_ms, waits_ms = (
            time_ms if time_ms is not None and time_ms > joined_at_ms else None
            for time_ms in (self.rejoin_at_ms, self.loss_until_ms)
        )
        rejoin_at_ms = waits_ms if running_ms is None else running_ms
        return Delay(rejoin_at_ms=rejoin_at_ms, loss_until_ms=waits_ms)

    def rejoin_in_ms(self, now_ms: int) -> int | None:
        """Return the time until the scheduled rejoin; 0 if it is due, None without one."""
        return None if self.rejoin_at_ms is None else max(0, self.rejoin_at_ms - now_ms)

    def loss_ends_in_ms(self, now_ms: int) -> int | None:
        """Return the rest of the wait for lost owners; 0 when just over, None without one.

        A wait that ends after the rejoin has at least 1 ms left. Otherwise the two times would be
        equal when both are over, and a new leader would not know that moves have begun.
        """
        if self.loss_until_ms is None:
            return None
        return max(self.loss_until_ms != self.rejoin_at_ms, self.loss_until_ms - now_ms)


@frozen(kw_only=True)
class Revocation:
    """The owned resources that the member gives up, and the join that gives them up.

    Attributes:
        pending: resources that it must stop and has not stopped yet, from any round.
        stopped: resources that it has stopped, but whose commits have not ended yet.
        join_at_ms: when it joins even if revocations are unfinished; None to wait for them.
        join_latest_ms: latest time for `join_at_ms` while one part stops after another.
        yields: whether it gives up all claims before the next join. Set if the last join was
            refused for its claims, or the leader could not read them.
    """

    pending: ResourceSet = EMPTY
    stopped: ResourceSet = EMPTY
    join_at_ms: int | None = None
    join_latest_ms: int = 0
    yields: bool = False

    def joined(self) -> Revocation:
        """Return the revocation after a join, which claims nothing that was given up."""
        if not self.is_under_way:
            return NO_REVOCATION
        return attrs.evolve(self, yields=False)

    def with_more(self, stopping: ResourceSet, *, yields: bool) -> Revocation:
        """Return the revocation with more resources that must stop; the join waits for all."""
        pending = self.pending | stopping
        return attrs.evolve(self, pending=pending, join_at_ms=None, yields=yields)

    @property
    def is_under_way(self) -> bool:
        """Return whether resources must stop, or commits of stopped resources must end."""
        return bool(self.pending or self.stopped)


@frozen(kw_only=True)
class BackOff:
    """The wait before a request is tried again, longer after each failure.

    Attributes:
        attempts: failed tries in a row.
        until_ms: earliest time of the next try; 0 for immediately.
    """

    attempts: int = 0
    until_ms: int = 0

    def after_failure(self, config: MemberConfig, now_ms: int) -> BackOff:
        """Return the wait after another failed try."""
        wait_ms = config.retry_backoff_ms << min(self.attempts, 16)
        until_ms = now_ms + min(wait_ms, config.retry_backoff_max_ms)
        return BackOff(attempts=self.attempts + 1, until_ms=until_ms)


@frozen(kw_only=True)
class Rings:
    """The member's rings, and the rings that it heard (`bell`).

    Attributes:
        ring_at_ms: when it rings if its join still waits, None for never.
        rung_at_ms: when it rang last, None before.
        is_heard: whether it heard a ring that it cannot heed yet.
        heed_at_ms: earliest time of the next heartbeat for a ring.
        paid_until_ms: one heartbeat interval later for each heartbeat for a ring; bounds their
            number.
    """

    ring_at_ms: int | None = None
    rung_at_ms: int | None = None
    is_heard: bool = False
    heed_at_ms: int = 0
    paid_until_ms: int = 0


NO_LEASE: Final = Lease()
NOTHING_TO_JOIN_FOR: Final = NextJoin()
NO_JOIN: Final = LastJoin()
NO_ASSIGNMENT: Final = LastAssignment()
NO_IDENTITY: Final = Identity()
NO_ROUND: Final = Round()
NO_DELAY: Final = Delay()
NO_REVOCATION: Final = Revocation()
NO_BACK_OFF: Final = BackOff()
NO_RINGS: Final = Rings()
