"""`Member`: the whole state of a group member, as one frozen value.

This file defines values and questions about them. `machine` moves a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from coopgroup.core.member.commits import NO_COMMITS, Commits
from coopgroup.core.member.config import MemberConfig
from coopgroup.core.member.consumer.beat import NO_BEAT, Beat
from coopgroup.core.member.error_actions import RequestKind
from coopgroup.core.member.parts import (
    NO_ASSIGNMENT,
    NO_BACK_OFF,
    NO_DELAY,
    NO_IDENTITY,
    NO_JOIN,
    NO_LEASE,
    NO_REVOCATION,
    NO_RINGS,
    NO_ROUND,
    NOTHING_TO_JOIN_FOR,
    BackOff,
    Delay,
    Identity,
    LastAssignment,
    LastJoin,
    Lease,
    NextJoin,
    Revocation,
    Rings,
    Round,
)
from coopgroup.core.member.transitions import AT_WORK, TRANSITIONS, MemberState, Moves
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.member.effects import KeptIdentity
    from coopgroup.core.model.group_api import Coordinator
    from coopgroup.core.model.retries import Retries


@frozen(kw_only=True)
class Outstanding:
    """A request that has no answer yet.

    Attributes:
        request_id: its number.
        sent_at_ms: when it was passed to the host, before it was sent.
        node_id: target broker, -1 for any.
        generation: the member's generation at that time.
    """

    request_id: int
    sent_at_ms: int
    node_id: int
    generation: int


@frozen(kw_only=True, slots=False)  # for `replaced`
class Member:
    """A group member.

    Attributes:
        config: its settings.
        moves: the legal moves of its group protocol.
        state: its state.
        member_id: id that the coordinator gave, "" before.
        generation: generation of the current round, from the answer to the join on.
        claim_generation: generation of the last completed round; its claims carry this number.
        owned: owned resources, which the next join claims.
        rejoin_reason: why a round is wanted, "" if none is.
        coordinator: the group's coordinator, None if unknown.
        outstanding: requests on their way, by kind.
        heard_at_ms: when the coordinator answered last; 0 if it never answered.
        next_request_id: number of the next request.
        heartbeat_at_ms: when the next heartbeat is due.
        back_off: the wait before the next join, sync, look-up, or heartbeat and leave of KIP-848.
        retries: requests that failed since their last success, by kind.
        next_join: the content of its next join.
        last_join: the content of its last join.
        last_assignment: the assignment of the last round that it completed.
        partition_counts: largest known number of partitions by topic.
        identity: the records of its id outside of this process.
        round: its part in the current round.
        lease: how long it may own its resources.
        delay: the delay that the leader announced.
        revocation: the owned resources that it gives up.
        commits: offsets on their way.
        rings: its rings, and those that it heard.
        beat: its heartbeats of KIP-848; unused in the classic protocol.
    """

    config: MemberConfig
    moves: Moves = attrs.field(default=TRANSITIONS, repr=False, eq=False)
    state: MemberState = MemberState.UNSUBSCRIBED
    member_id: str = ""
    generation: int = NO_GENERATION
    claim_generation: int = NO_GENERATION
    owned: ResourceSet = EMPTY
    rejoin_reason: str = ""
    coordinator: Coordinator | None = None
    outstanding: dict[RequestKind, Outstanding] = attrs.field(factory=dict)
    heard_at_ms: int = 0
    next_request_id: int = 1
    heartbeat_at_ms: int = 0
    back_off: BackOff = NO_BACK_OFF
    retries: Mapping[RequestKind, Retries] = attrs.field(factory=dict)
    next_join: NextJoin = NOTHING_TO_JOIN_FOR
    last_join: LastJoin = NO_JOIN
    last_assignment: LastAssignment = NO_ASSIGNMENT
    partition_counts: Mapping[str, int] = attrs.field(factory=dict)
    identity: Identity = NO_IDENTITY
    round: Round = NO_ROUND
    lease: Lease = NO_LEASE
    delay: Delay = NO_DELAY
    revocation: Revocation = NO_REVOCATION
    commits: Commits = NO_COMMITS
    rings: Rings = NO_RINGS
    beat: Beat = NO_BEAT

    @property
    def in_generation(self) -> bool:
        """Return whether the member can send heartbeats: it has a generation."""
        return self.generation != NO_GENERATION and self.state in AT_WORK

    @property
    def heartbeat_generation(self) -> int:
        """Return the generation of the next heartbeat, see `Lease.falls_back`."""
        falls_back = self.lease.falls_back and self.claim_generation != NO_GENERATION
        return self.claim_generation if falls_back else self.generation

    @property
    def rejoined_at_ms(self) -> int:
        """Return the earliest time at which the coordinator may wait for this member, in ms.

        While its join is on its way, a member counts as part of a round only after a later
        heartbeat was answered. Without that, the join may be cut off, and the round continues
        without it. A follower's sync waits for the leader's, and is sent early enough to arrive. A
        leader's sync is answered immediately. Without an answer it may not have arrived.
        """
        lease = self.lease
        if not self.outstanding:
            return lease.settled_at_ms
        sync = self.outstanding.get(RequestKind.SYNC_GROUP)
        if sync is not None and not self.round.leads:
            return max(lease.settled_at_ms, lease.round_open_at_ms, sync.sent_at_ms)
        join = self.outstanding.get(RequestKind.JOIN_GROUP)
        if join is not None and lease.round_open_at_ms >= join.sent_at_ms:
            return lease.round_ended_after_ms
        return lease.settled_at_ms

    @property
    def rejoin_by_ms(self) -> int:
        """Return when the member gives up on the round and treats all as lost, in ms.

        A round may begin right after the last proof that none had begun, and a disconnected member
        does not notice. The round is open for the rebalance timeout, and so is the time to sync
        after it. Requests that wait at the coordinator extend this time, as far as heartbeats prove
        it.
        """
        return self.rejoined_at_ms + self.config.rejoin_within_ms

    @property
    def lost_at_ms(self) -> int:
        """Return when the member by itself treats all owned resources as lost, in ms."""
        return min(self.lease.until_ms, self.rejoin_by_ms)

    @property
    def hold_until_ms(self) -> int:
        """Return until when the member may work on its owned resources, in ms.

        The chance to join the round proves nothing: a join or a sync may be stuck while heartbeats
        pass. The coordinator drops no member before the rebalance timeout, counted from the last
        proof that it had not begun to run. After it the member keeps its owned resources, but
        pauses until an answer reports the result of the round.
        """
        return min(self.lost_at_ms, self.lease.settled_at_ms + self.config.rebalance_timeout_ms)

    @property
    def wants_a_round_at_ms(self) -> int | None:
        """Return when the member wants a round by itself, in ms; None for never."""
        if self.state is MemberState.STABLE:
            return self._due_at_ms
        if self.state is MemberState.REVOKING and not (self.config.eager or self.revocation.yields):
            soon_ms = self.revocation.join_at_ms
            return self._due_at_ms if soon_ms is None else soon_ms
        return None

    @property
    def _due_at_ms(self) -> int | None:
        at_ms, warmups = self.delay.rejoin_at_ms, self.next_join.warmups
        if warmups is None or warmups.rejoin_at_ms is None:
            return at_ms
        return warmups.rejoin_at_ms if at_ms is None else min(at_ms, warmups.rejoin_at_ms)

    def heartbeat_pace_ms(self, now_ms: int) -> int:
        """Return the time from one heartbeat to the next, in ms.

        It is short in two cases. In a scheduled delay, the round of a returning member must begin
        immediately. In a revocation, other members may wait for this member's join. A coordinator
        that assigns asks for a join in each answer until the member has stopped all.
        """
        pace_ms = self.config.heartbeat_interval_ms
        others_wait = self.state is MemberState.REVOKING and not self.round.by_broker
        if others_wait or self.delay.rejoin_in_ms(now_ms):
            return min(pace_ms, self.config.window_heartbeat_interval_ms)
        return pace_ms


def lease_is_over(member: Member, now_ms: int) -> bool:
    """Return whether the member must treat all its resources as lost.

    Two cases. The member sent no request within `session.timeout.ms` that proves the session alive.
    Or a round may have begun, and the member could not join it within the rebalance timeout. In
    both cases the coordinator may have dropped the member and given its resources away.
    """
    return bool(member.owned) and now_ms >= member.lost_at_ms


def new_member(config: MemberConfig, kept: KeptIdentity | None = None) -> Member:
    """Return a member that has not subscribed yet.

    Args:
        config: its settings.
        kept: its identity from an earlier process that has ended, or None. Ignored unless the
            settings say that identities are stored.

    Raises:
        ConfigurationError: the session timeout is not longer than the heartbeat interval, or the
            rebalance timeout is shorter than the session timeout. In the latter case a round could
            end without a member whose session the coordinator still considers alive.
    """
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigurationError(
            "heartbeat.interval.ms",
            config.heartbeat_interval_ms,
            f"less than session.timeout.ms ({config.session_timeout_ms})",
        )
    if config.rebalance_timeout_ms < config.session_timeout_ms:
        raise ConfigurationError(
            "max.poll.interval.ms",
            config.rebalance_timeout_ms,
            f"at least session.timeout.ms ({config.session_timeout_ms})",
        )
    proves = config.keeps_identity and config.instance_id is None
    return Member(config=config, identity=Identity(kept=kept if proves else None))
