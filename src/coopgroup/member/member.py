"""`Member`: all that a group member knows, as one frozen value.

Rules of this file: values and questions about them; nothing here moves a member (see `machine`).
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

# Looked up once: what follows is asked for in every step, and a member of an enum, or a method of
# `object`, costs as much to look up as a call does.
_STABLE: Final = MemberState.STABLE
_REVOKING: Final = MemberState.REVOKING
_JOIN: Final = RequestKind.JOIN_GROUP
_SYNC: Final = RequestKind.SYNC_GROUP
_new: Final = object.__new__
_fill: Final = object.__setattr__


def _positive(
    _: object, attribute: attrs.Attribute[int], value: int
) -> None:  # a trust boundary: users set these
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
        protocol_name: embedded protocol that is our own; the only one unless there are `protocols`.
        protocols: all that it can speak, most wanted first, Kafka's own among them; the whole group
            must have one in common. Empty for `protocol_name` alone.
        instance_id: static id (KIP-345), None for a dynamic member.
        rack: rack of the process (KIP-881), None when unknown.
        session_timeout_ms: after so long without a heartbeat the coordinator drops the member,
            and the member by itself takes everything for lost.
        rebalance_timeout_ms: how long the coordinator waits for members to rejoin.
        heartbeat_interval_ms: pace of heartbeats.
        retry_backoff_ms: first wait before a request is tried again; doubles with each try.
        retry_backoff_max_ms: longest wait.
        request_timeout_ms: how long to wait for an answer that does not wait for others.
        commit_attempts_max: how often a commit is sent before its error goes to the caller;
            waiting for a round does not count.
        revocation_grace_ms: how long a member that has stopped some of what it must stop, or that
            is wanted in a round, waits for the rest before it joins; 0 for not at all.
        window_heartbeat_interval_ms: pace of heartbeats while a scheduled delay runs or something
            is being stopped, so that a round that others want begins at once; never slower than
            the normal one.
        eager: whether it stops all that it holds before each join, and claims nothing.
        keeps_identity: whether it asks its host to keep who it is (`KeepIdentity`). It then does
            not tell the coordinator that it leaves, as a static member does not (KIP-345). Means
            nothing to a static member.
        index_min: smallest index that a resource may have: 0 for partitions, -1 where a group
            shares connectors.
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
        """How long after the begin of a round its join may be sent and count, in ms.

        That is the rebalance time-out, less what a request needs to arrive.
        """
        timeout_ms = self.rebalance_timeout_ms
        return timeout_ms - min(self.heartbeat_interval_ms, timeout_ms // 10)


class IdStanding(enum.Enum):
    """Whether the group's log has the id of a static member: a round must be complete for that.

    A coordinator keeps a new id in memory until then. If the group moves to another broker, that
    one reads the id of the member's earlier life, and refuses the new one as fenced.
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
    """A request whose answer has not come yet.

    Attributes:
        request_id: its number.
        sent_at_ms: when it was handed to the host, before it was sent.
        node_id: broker it went to, -1 for any.
        generation: that it was sent under.
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
        state: where it stands.
        topics: subscribed names, ascending.
        joined_topics: those that the last join carried.
        joined_protocols: names of the protocols that the last join offered.
        catalogue_version: newest version of the group's catalogue that it has seen, None for none.
        joined_catalogue_version: the one that the last join carried.
        identity: who it was in the last round that it completed, as long as the group may know
            it; None where that is not kept.
        member_id: id that the coordinator gave, "" before.
        id_standing: whether the group's log has the id of a static member.
        generation: of the round that it is in (from the answer to the join on).
        claim_generation: of the last round that it completed; what its claims carry.
        owned: what it holds, and claims in the next join.
        revoking: part of `owned` that it was told to stop and has not stopped yet, in whatever
            round that was.
        stopped: part of `owned` that it has stopped, while commits of it have not ended yet.
        rejoin_at_ms: when it joins though it has not given up all that it should; None for when
            it has.
        rejoin_latest_ms: how far that may be put off while one part stops after the other.
        coordinator: where the group's coordinator is, None when unknown.
        outstanding: requests on their way, by kind.
        next_request_id: number of the next request.
        last_assigned: what the last round that it completed assigned to it, in whatever membership.
        shared_digest: of all that its group had to share in that round, as its leader noted it for
            this member's next life; None where that is not said.
        yields: whether its join was refused because of what it holds, or its leader could not read
            what it claims: it gives up all of that before the next one.
        decided: what the leader hands in with its sync; empty for a follower.
        protocol_chosen: protocol that the coordinator chose for the round.
        leads: whether it is the leader of the round.
        duty_number: of the round that it decides, or decided last.
        attempts: failed tries in a row, for the back-off.
        retry_at_ms: no join, sync or look-up before; 0 for at once.
        heartbeat_at_ms: when the next heartbeat is due.
        lease_until_ms: until when it may work on what it holds. Counts from the sending of the
            last request that proved the session alive.
        settled_at_ms: the coordinator's time-outs to join or to sync, of a round that this member
            may miss, have not begun to run before.
        joining_since_ms: sending of the first of the joins whose outcome is not known; None when
            none was sent since the last one was answered.
        joined_at_ms: sending of the last join.
        round_open_at_ms: sending of the last heartbeat whose answer proved that the round of the
            waiting join or sync was still open.
        scheduled_rejoin_ms: when the leader wants everybody back, None for never.
        loss_deadline_ms: when the wait for lost owners ends, None for no such wait. Later than
            the rejoin where the leader wants everybody back only to go on with paced moves.
        rejoin_reason: why a round is wanted, "" when none is.
        consumption_rate_per_s: records that its application gets done in a second of work, as its
            host measured; None when unknown.
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
        """The member with other values of some fields.

        Most of what happens to a member changes a few of its many fields, several times in one
        step. So it has a dictionary instead of slots: to copy that costs a fraction of
        `attrs.evolve`, which looks at every field.

        Raises:
            TypeError: there is no such field.
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
        """Whether it can send heartbeats: it has a generation, and has not lost it."""
        return self.generation != NO_GENERATION and self.state in AT_WORK

    @property
    def rejoined_at_ms(self) -> int:
        """When the coordinator can have begun to wait for this member at the earliest, in ms.

        A member counts as part of a round while its join is on its way, once a later heartbeat was
        answered: the join may have been cut off, and the round goes on without it. A follower's
        sync waits for the leader's, and is sent early enough to arrive; that of a leader is
        answered at once, so one that is not may not have arrived.
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
        """A time at which the round of the join that waits had not ended yet."""
        return max(self.settled_at_ms, self.round_open_at_ms, self.joining_since_ms or 0)

    @property
    def rejoin_by_ms(self) -> int:
        """Until when the member hopes to be part of the round, in ms; then it takes all for lost.

        A round may begin right after the last proof that none had, without a word to a member
        that is cut off; it is open for the rebalance time-out, and so is the time to sync after
        it. What waits at the coordinator puts this off, as far as heartbeats say that it may.
        """
        return self.rejoined_at_ms + self.config.rejoin_within_ms

    @property
    def lost_at_ms(self) -> int:
        """When the member takes all that it owns for lost by itself, in ms."""
        return min(self.lease_until_ms, self.rejoin_by_ms)

    @property
    def hold_until_ms(self) -> int:
        """Until when the member may work on what it owns, in ms: nothing is handed out later.

        That it hopes to be part of a round is no proof: a join or a sync may be stuck on its way
        while heartbeats pass. Nobody is dropped before the rebalance time-out, counted from the
        last proof that it had not begun to run. After it the member keeps what it owns, but stands
        still until an answer says what became of the round.
        """
        return min(self.lost_at_ms, self.settled_at_ms + self.config.rebalance_timeout_ms)

    @property
    def wants_a_round_at_ms(self) -> int | None:
        """When it wants a round by itself, in ms, while it is in none; None for never."""
        if self.state is _STABLE:
            return self.scheduled_rejoin_ms
        if self.state is _REVOKING and not (self.config.eager or self.yields):
            soon_ms = self.rejoin_at_ms
            return self.scheduled_rejoin_ms if soon_ms is None else soon_ms
        return None

    def heartbeat_pace_ms(self, now_ms: int) -> int:
        """How long after a heartbeat the next one is due, in ms.

        While a scheduled delay runs the round of a member that returns must begin at once, and
        while this one stops something others may wait for it to join: both it hears by heartbeat.
        """
        pace_ms = self.config.heartbeat_interval_ms
        if self.state is _REVOKING or self.remaining_delay_ms(now_ms):
            return min(pace_ms, self.config.window_heartbeat_interval_ms)
        return pace_ms

    def remaining_delay_ms(self, now_ms: int) -> int | None:
        """How long the scheduled delay still runs, in ms; 0 when just over, None for none."""
        if self.scheduled_rejoin_ms is None:
            return None
        return max(0, self.scheduled_rejoin_ms - now_ms)

    def remaining_loss_ms(self, now_ms: int) -> int | None:
        """How long the wait for lost owners still runs, in ms; 0 when just over.

        NO_LOSS for no such wait; None where it is what the scheduled delay is for.
        """
        if self.loss_deadline_ms == self.scheduled_rejoin_ms:
            return None
        return NO_LOSS if self.loss_deadline_ms is None else max(0, self.loss_deadline_ms - now_ms)


def lease_is_over(member: Member, now_ms: int) -> bool:
    """Whether the member must take all that it holds for lost by itself.

    Either no request that proves the session alive was sent within `session.timeout.ms`, or a
    round may have begun and the member could not join it within the rebalance time-out: in both
    cases the coordinator may have dropped it and given its resources away.
    """
    if not member.owned:
        return False
    if now_ms < min(member.lease_until_ms, member.settled_at_ms + member.config.rejoin_within_ms):
        return False  # whatever is on its way, which only puts the end off
    return now_ms >= member.lost_at_ms


def new_member(config: MemberConfig, kept: KeptIdentity | None = None) -> Member:
    """A member that has not subscribed yet.

    Args:
        config: its settings.
        kept: who it was in an earlier life, which is over; None when nothing was kept. Means
            nothing unless the settings say that identities are kept.

    Raises:
        ConfigurationError: the session time-out is not longer than the heartbeat interval, or the
            rebalance time-out is shorter than the session time-out. In the latter case a round
            could end without a member whose session the coordinator still takes for alive.
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
