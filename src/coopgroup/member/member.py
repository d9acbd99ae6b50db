"""`Member`: the whole state of a group member, as one frozen value.

This file defines values and questions about them. `machine` moves a member.
"""

from __future__ import annotations

import enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import frozen

from coopgroup.errors import ConfigurationError
from coopgroup.member.commits import Commits
from coopgroup.member.error_actions import RequestKind
from coopgroup.member.transitions import AT_WORK, MemberState
from coopgroup.model import EMPTY, NO_LOSS, ResourceSet
from coopgroup.model.claims import NO_GENERATION

if TYPE_CHECKING:
    from coopgroup.member.kept_identity import KeptIdentity
    from coopgroup.model.group_api import Coordinator

__all__ = ["IdStanding", "Member", "MemberConfig", "Outstanding", "lease_is_over", "new_member"]

# Looked up once, because every step uses these names. Looking up a member of an enum, or a method
# of `object`, costs as much as a call.
_STABLE: Final = MemberState.STABLE
_REVOKING: Final = MemberState.REVOKING
_JOIN: Final = RequestKind.JOIN_GROUP
_SYNC: Final = RequestKind.SYNC_GROUP
_new: Final = object.__new__
_fill: Final = object.__setattr__


def _positive(
    _: object, attribute: attrs.Attribute[int], value: int
) -> None:  # a trust boundary: users set these values
    if value <= 0:
        raise ConfigurationError(attribute.name, value, "a positive number of milliseconds")


def _not_negative(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        raise ConfigurationError(attribute.name, value, "0 or a positive number of milliseconds")


@frozen(kw_only=True)
class MemberConfig:
    """Settings of a member, fixed for its life.

    Attributes:
        group_id: the group.
        protocol_type: embedded protocol's family, "consumer" for partitions.
        protocol_name: coopgroup's own embedded protocol; the only one unless `protocols` is set.
        protocols: all protocols that the member can speak, the preferred one first, including
            Kafka's own. The whole group must share one. Empty for `protocol_name` alone.
        instance_id: static id (KIP-345), None for a dynamic member.
        rack: rack of the process (KIP-881), None if unknown.
        session_timeout_ms: time without a heartbeat after which the coordinator drops the member,
            and the member by itself treats all its resources as lost.
        rebalance_timeout_ms: how long the coordinator waits for members to rejoin.
        heartbeat_interval_ms: pace of heartbeats.
        retry_backoff_ms: first wait before a request is tried again; doubles with each try.
        retry_backoff_max_ms: longest wait.
        request_timeout_ms: how long to wait for an answer that does not depend on other members.
        commit_attempts_max: how often a commit is sent before its error goes to the caller;
            waiting for a round does not count.
        revocation_grace_ms: how long a join waits for the rest of the revocations, after some have
            finished or a round is wanted; 0 for no wait.
        window_heartbeat_interval_ms: pace of heartbeats during a scheduled delay or a revocation,
            so that a round of other members begins immediately; never slower than the normal pace.
        eager: whether the member stops all its resources before each join, and claims none.
        keeps_identity: whether the member asks its host to store its identity (`KeepIdentity`).
            Such a member does not tell the coordinator that it leaves, like a static member
            (KIP-345). No effect on a static member.
        index_min: smallest index of a resource: 0 for partitions, -1 if a group shares connectors.
    """

    group_id: str
    protocol_type: str = "consumer"
    protocol_name: str = "coopgroup"
    protocols: tuple[str, ...] = ()
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = attrs.field(default=45_000, validator=_positive)
    rebalance_timeout_ms: int = attrs.field(default=300_000, validator=_positive)
    heartbeat_interval_ms: int = attrs.field(default=3_000, validator=_positive)
    retry_backoff_ms: int = attrs.field(default=100, validator=_positive)
    retry_backoff_max_ms: int = attrs.field(default=1_000, validator=_positive)
    request_timeout_ms: int = attrs.field(default=30_000, validator=_positive)
    commit_attempts_max: int = 10
    revocation_grace_ms: int = attrs.field(default=200, validator=_not_negative)
    window_heartbeat_interval_ms: int = attrs.field(default=250, validator=_positive)
    eager: bool = False
    keeps_identity: bool = False
    index_min: int = 0

    @cached_property
    def rejoin_within_ms(self) -> int:
        """Return how long after a round's begin a join may be sent and still count, in ms.

        That is the rebalance timeout minus the time that a request needs to arrive.
        """
        timeout_ms = self.rebalance_timeout_ms
        return timeout_ms - min(self.heartbeat_interval_ms, timeout_ms // 10)


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
    """The same, and the coordinator was lost since; or a join without an id was lost, which gives
    the place to an id that this member never hears of if it is served late (KAFKA-20985)."""


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


@frozen(kw_only=True, slots=False)
class Member:
    """A group member.

    Attributes:
        config: its settings.
        state: its state.
        topics: subscribed names, ascending.
        joined_topics: topics in the last join.
        joined_protocols: names of the protocols in the last join.
        catalogue_version: newest version of the group's catalogue that it has seen, or None.
        joined_catalogue_version: the version in the last join.
        identity: its identity in the last round that it completed, as long as the group may know
            it; None if identities are not stored.
        member_id: id that the coordinator gave, "" before.
        id_standing: whether the group's log has the id of a static member.
        generation: generation of the current round, from the answer to the join on.
        claim_generation: generation of the last completed round; its claims carry this number.
        owned: owned resources, which the next join claims.
        revoking: part of `owned` that it must stop and has not stopped yet, from any round.
        stopped: part of `owned` that it has stopped, but whose commits have not ended yet.
        rejoin_at_ms: when it joins even if revocations are unfinished; None to wait for them.
        rejoin_latest_ms: latest time for `rejoin_at_ms` while one part stops after another.
        coordinator: the group's coordinator, None if unknown.
        outstanding: requests on their way, by kind.
        next_request_id: number of the next request.
        last_assigned: assignment of the last completed round, in any membership.
        shared_digest: digest of all resources that its group shared in that round, noted by the
            leader for this member's next process; None without such a note.
        yields: whether it gives up all claims before the next join. Set if the last join was
            refused for its claims, or the leader could not read them.
        decided: the leader's assignments for its sync; empty for a follower.
        protocol_chosen: protocol that the coordinator chose for the round.
        leads: whether it is the leader of the round.
        duty_number: number of the round that it decides, or decided last.
        attempts: failed tries in a row, for the back-off.
        retry_at_ms: earliest time of a join, sync or look-up; 0 for immediately.
        heartbeat_at_ms: when the next heartbeat is due.
        lease_until_ms: until when it may work on its owned resources. Counts from the sending of
            the last request that proved the session alive.
        settled_at_ms: the coordinator's time-outs for a join or sync that this member may miss
            began at this time or later.
        joining_since_ms: when the first join without a known outcome was sent; None if no join was
            sent since the last answer.
        joined_at_ms: when the last join was sent.
        round_open_at_ms: when the last heartbeat was sent that proved the round of the waiting join
            or sync still open.
        scheduled_rejoin_ms: when the leader wants all members to rejoin, None for never.
        loss_deadline_ms: when the wait for lost owners ends, None without such a wait. Later than
            the rejoin if the leader wants the rejoin only to continue with paced moves.
        rejoin_reason: why a round is wanted, "" if none is.
        consumption_rate_per_s: records that its application processes in a second of work, measured
            by its host; None if unknown.
        commits: offsets on their way.
    """

    config: MemberConfig
    commits: Commits
    state: MemberState = MemberState.UNSUBSCRIBED
    topics: tuple[str, ...] = ()
    joined_topics: tuple[str, ...] = ()
    joined_protocols: tuple[str, ...] = ()
    catalogue_version: int | None = None
    joined_catalogue_version: int | None = None
    identity: KeptIdentity | None = None
    member_id: str = ""
    id_standing: IdStanding = IdStanding.STORED
    generation: int = NO_GENERATION
    claim_generation: int = NO_GENERATION
    owned: ResourceSet = EMPTY
    revoking: ResourceSet = EMPTY
    stopped: ResourceSet = EMPTY
    rejoin_at_ms: int | None = None
    rejoin_latest_ms: int = 0
    coordinator: Coordinator | None = None
    outstanding: dict[RequestKind, Outstanding] = attrs.field(factory=dict)
    next_request_id: int = 1
    last_assigned: ResourceSet = EMPTY
    shared_digest: int | None = None
    yields: bool = False
    decided: tuple[tuple[str, bytes], ...] = ()
    protocol_chosen: str = ""
    leads: bool = False
    duty_number: int = 0
    attempts: int = 0
    retry_at_ms: int = 0
    heartbeat_at_ms: int = 0
    lease_until_ms: int = 0
    settled_at_ms: int = 0
    joining_since_ms: int | None = None
    joined_at_ms: int = 0
    round_open_at_ms: int = 0
    scheduled_rejoin_ms: int | None = None
    loss_deadline_ms: int | None = None
    rejoin_reason: str = ""
    consumption_rate_per_s: float | None = None

    def replaced(self, changes: dict[str, Any]) -> Member:
        """Return the member with other values of some fields.

        Most events change a few of the many fields, several times in one step. So a member has a
        dictionary instead of slots. Copying it costs a fraction of `attrs.evolve`, which looks at
        every field.

        Raises:
            TypeError: a field does not exist.
        """
        before = self.__dict__
        fields = before | changes
        if len(fields) > len(before):
            message = f"a member has no {', '.join(sorted(changes.keys() - before.keys()))}"
            raise TypeError(message)
        made = _new(Member)
        _fill(made, "__dict__", fields)
        return made

    @property
    def in_generation(self) -> bool:
        """Return whether the member can send heartbeats: it has a generation."""
        return self.generation != NO_GENERATION and self.state in AT_WORK

    @property
    def rejoined_at_ms(self) -> int:
        """Return the earliest time at which the coordinator may wait for this member, in ms.

        While its join is on its way, a member counts as part of a round only after a later
        heartbeat was answered. Without that, the join may be cut off, and the round continues
        without it. A follower's sync waits for the leader's, and is sent early enough to arrive. A
        leader's sync is answered immediately. Without an answer it may not have arrived.
        """
        if not self.outstanding:
            return self.settled_at_ms
        sync = self.outstanding.get(_SYNC)
        if sync is not None and not self.leads:
            return max(self.settled_at_ms, self.round_open_at_ms, sync.sent_at_ms)
        join = self.outstanding.get(_JOIN)
        if join is not None and self.round_open_at_ms >= join.sent_at_ms:
            return self.round_ended_after_ms
        return self.settled_at_ms

    @property
    def round_ended_after_ms(self) -> int:
        """Return a time at which the round of the waiting join had not ended yet."""
        return max(self.settled_at_ms, self.round_open_at_ms, self.joining_since_ms or 0)

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
        return min(self.lease_until_ms, self.rejoin_by_ms)

    @property
    def hold_until_ms(self) -> int:
        """Return until when the member may work on its owned resources, in ms.

        The chance to join the round proves nothing: a join or a sync may be stuck while heartbeats
        pass. The coordinator drops no member before the rebalance timeout, counted from the last
        proof that it had not begun to run. After it the member keeps its owned resources, but
        pauses until an answer reports the result of the round.
        """
        return min(self.lost_at_ms, self.settled_at_ms + self.config.rebalance_timeout_ms)

    @property
    def wants_a_round_at_ms(self) -> int | None:
        """Return when the member wants a round by itself, in ms; None for never."""
        if self.state is _STABLE:
            return self.scheduled_rejoin_ms
        if self.state is _REVOKING and not (self.config.eager or self.yields):
            soon_ms = self.rejoin_at_ms
            return self.scheduled_rejoin_ms if soon_ms is None else soon_ms
        return None

    def heartbeat_pace_ms(self, now_ms: int) -> int:
        """Return the time from one heartbeat to the next, in ms.

        It is short in two cases. In a scheduled delay, the round of a returning member must begin
        immediately. In a revocation, other members may wait for this member's join.
        """
        pace_ms = self.config.heartbeat_interval_ms
        if self.state is _REVOKING or self.remaining_delay_ms(now_ms):
            return min(pace_ms, self.config.window_heartbeat_interval_ms)
        return pace_ms

    def remaining_delay_ms(self, now_ms: int) -> int | None:
        """Return the rest of the scheduled delay, in ms; 0 when just over, None without a delay."""
        if self.scheduled_rejoin_ms is None:
            return None
        return max(0, self.scheduled_rejoin_ms - now_ms)

    def remaining_loss_ms(self, now_ms: int) -> int | None:
        """Return the rest of the wait for lost owners, in ms; 0 when just over.

        `NO_LOSS` without such a wait; None if the scheduled delay is for that wait.
        """
        if self.loss_deadline_ms == self.scheduled_rejoin_ms:
            return None
        return NO_LOSS if self.loss_deadline_ms is None else max(0, self.loss_deadline_ms - now_ms)


def lease_is_over(member: Member, now_ms: int) -> bool:
    """Return whether the member must treat all its resources as lost.

    Two cases. The member sent no request within `session.timeout.ms` that proves the session alive.
    Or a round may have begun, and the member could not join it within the rebalance timeout. In
    both cases the coordinator may have dropped the member and given its resources away.
    """
    if not member.owned:
        return False
    if now_ms < min(member.lease_until_ms, member.settled_at_ms + member.config.rejoin_within_ms):
        return False  # requests on their way only extend this time
    return now_ms >= member.lost_at_ms


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
    return Member(config=config, commits=Commits(), identity=kept if proves else None)
