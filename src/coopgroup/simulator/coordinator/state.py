"""The group coordinator's state of one classic group.

Values change in place, as in the coordinator. A token stands for a waiting request. Members are in
the order of their joins, while Kafka uses a hash table. Only the choice of a leader's successor
depends on it.

Timers of members (sessions, unused ids) are in one heap, one timer per member. A heartbeat only
moves the end of a session, and a timer that fires too early is set again. If an end moves before
the timer (a new member's is minutes away), it gets a second timer, and the old one is ignored when
it fires.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Final, TypeAlias

from attrs import define, field, frozen

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import Answer

Token: TypeAlias = Hashable
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Longest wait of the join of a member that has never been in a generation."""


class GroupState(enum.Enum):
    """States of a classic group. Dead groups are not modelled: a group is never deleted."""

    EMPTY = "Empty"
    """No members. Joins begin the first round; everything else is refused."""

    PREPARING = "PreparingRebalance"
    """Members are asked to rejoin (heartbeats answer 27); joins wait for all, or a time-out."""

    COMPLETING = "CompletingRebalance"
    """The joins are answered; syncs wait for the leader's."""

    STABLE = "Stable"
    """Every member can get its assignment."""


@frozen(kw_only=True)
class CoordinatorSettings:
    """The broker's configuration for groups.

    Attributes:
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`: how long the first round of
            an empty group waits for more members; 3,000 by default on a broker.
        session_timeout_min_ms: `group.min.session.timeout.ms`; 6,000 by default on a broker.
        assignment_interval_ms: `group.consumer.assignment.interval.ms` (KIP-1263): shortest time
            between two targets of a consumer group; 1,000 by default on a broker.
        consumer_session_timeout_ms: `group.consumer.session.timeout.ms`, of members of KIP-848.
        consumer_heartbeat_interval_ms: `group.consumer.heartbeat.interval.ms`, likewise.
        takes_older_epochs: whether a member of KIP-848 may commit with an older epoch in which it
            owned the partitions already (KIP-1251); brokers before 4.3 refuse that.
    """

    initial_rebalance_delay_ms: int = 0
    session_timeout_min_ms: int = 1
    session_timeout_max_ms: int = 1_800_000
    assignment_interval_ms: int = 0
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    takes_older_epochs: bool = True


@define(kw_only=True, eq=False)
class Seat:
    """A member as the coordinator knows it.

    Attributes:
        protocols: protocols of its last join with subscriptions, preferred first.
        join: token of the waiting join, or None.
        sync: token of the waiting sync, or None.
        is_new: whether it has not been in a generation yet.
    """

    member_id: str
    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    protocols: Protocols
    expires_at_ms: int
    join: Token | None = None
    sync: Token | None = None
    assignment: bytes = b""
    is_new: bool = True
    timer_at_ms: int | None = None

    def metadata(self, protocol_name: str) -> bytes:
        """Return its subscription for a protocol."""
        return next((message for name, message in self.protocols if name == protocol_name), b"")

    def stored(self) -> Seat:
        """Return the seat as in the log, without waiting requests and timers."""
        return Seat(
            member_id=self.member_id,
            instance_id=self.instance_id,
            session_ms=self.session_ms,
            rebalance_ms=self.rebalance_ms,
            protocols=self.protocols,
            expires_at_ms=self.expires_at_ms,
            assignment=self.assignment,
            is_new=False,
        )

    @property
    def can_expire(self) -> bool:
        """Return whether its session can expire: not while a known member's join or sync waits."""
        return self.is_new or (self.join is None and self.sync is None)


@define(kw_only=True, eq=False)
class ClassicGroup:
    """One group.

    Attributes:
        exists: whether any member ever joined; before that, requests are refused differently.
        is_initial: whether the present round is the first of an empty group.
        pending: ids given with MEMBER_ID_REQUIRED and not used yet, with the end of each.
        unsynced: members of the generation that have not sent their sync.
        round_ends_at_ms: when members that have not rejoined are removed, None for never.
        initial_left_ms: how much longer the first round may be extended.
        newcomer: whether a member joined since the last extension of the first round.
        sync_ends_at_ms: when members that have not synced are removed, None for never.
        led_by: leader of each generation's assignment, for tests and checkers.
    """

    now_ms: int = 0
    settings: CoordinatorSettings = CoordinatorSettings()
    outbox: list[tuple[Token, Answer]] = field(factory=list)
    exists: bool = False
    state: GroupState = GroupState.EMPTY
    is_initial: bool = False
    generation: int = 0
    leader_id: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    seats: dict[str, Seat] = field(factory=dict)
    static_ids: dict[str, str] = field(factory=dict)
    pending: dict[str, int] = field(factory=dict)
    unsynced: dict[str, None] = field(factory=dict)
    joins: int = 0
    round_ends_at_ms: int | None = None
    initial_left_ms: int = 0
    newcomer: bool = False
    sync_ends_at_ms: int | None = None
    led_by: dict[int, str] = field(factory=dict)
    numbers: Iterator[int] = field(factory=lambda: count(1))
    _timers: list[tuple[int, str]] = field(factory=list)
    # Number of members for each list of protocol names.
    _spoken: dict[tuple[str, ...], int] = field(factory=dict)

    def answer(self, token: Token, answer: Answer) -> None:
        """Answer a request."""
        self.outbox.append((token, answer))

    def new_member_id(self, name: str) -> str:
        """Return a new id in the form of a broker's id, with a counter instead of a random UUID."""
        return f"{name}-00000000-0000-0000-0000-{next(self.numbers):012x}"

    @property
    def has_all_joined(self) -> bool:
        """Return whether every member's join waits and no given id is unused."""
        return self.joins == len(self.seats) and not self.pending

    @property
    def rebalance_ms(self) -> int:
        """Return the longest rebalance timeout of a member."""
        return max((seat.rebalance_ms for seat in self.seats.values()), default=0)

    # --- who is who ----------------------------------------------------------------------------

    def identity_code(self, member_id: str, instance_id: str | None) -> int:
        """Return 0 for a member of the group, otherwise the error code (KIP-345)."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.seats else ErrorCode.UNKNOWN_MEMBER_ID

    def fence_code(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Return the same for requests that must carry the present generation."""
        code = self.identity_code(member_id, instance_id)
        if not code and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    # --- protocols -----------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if not self.seats:  # all members left during the round
            return protocol_type == self.protocol_type and bool(protocols)
        common = self._common_protocols()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the common protocol that most members prefer; "" without members."""
        common = self._common_protocols()
        votes: dict[str, int] = {}
        for seat in self.seats.values():
            wanted = next((name for name, _ in seat.protocols if name in common), "")
            votes[wanted] = votes.get(wanted, 0) + 1
        return max(votes, key=lambda name: votes[name], default="")

    def _common_protocols(self) -> set[str]:
        names = [set(names) for names in self._spoken]
        return set.intersection(*names) if names else set()

    def change_protocols(self, seat: Seat, protocols: Protocols) -> None:
        """Change the protocols of a member that joins again."""
        self._unspeak(seat.protocols)
        seat.protocols = protocols
        self._speak(protocols)

    def _speak(self, protocols: Protocols) -> None:
        names = tuple(name for name, _ in protocols)
        self._spoken[names] = self._spoken.get(names, 0) + 1

    def _unspeak(self, protocols: Protocols) -> None:
        names = tuple(name for name, _ in protocols)
        self._spoken[names] -= 1
        if not self._spoken[names]:
            del self._spoken[names]

    # --- members come and go -------------------------------------------------------------------

    def seat(self, seat: Seat) -> None:
        """Add a member."""
        self.seats[seat.member_id] = seat
        self._speak(seat.protocols)
        if seat.instance_id is not None:
            self.static_ids[seat.instance_id] = seat.member_id
        if seat.join is not None:
            self.joins += 1
        if not self.leader_id:
            self.leader_id = seat.member_id
        seat.timer_at_ms = None
        self._set_timer(seat)

    def unseat(self, member_id: str) -> Seat:
        """Remove a member; if it led, another member leads."""
        seat = self.seats.pop(member_id)
        self._unspeak(seat.protocols)
        if seat.join is not None:
            self.joins -= 1
        if seat.instance_id is not None:
            self.static_ids.pop(seat.instance_id, None)
        self.unsynced.pop(member_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.seats), "")
        return seat

    def wait_in_join(self, seat: Seat, token: Token) -> None:
        """Let a member's join wait."""
        if seat.join is None:
            self.joins += 1
        seat.join = token

    def take_join(self, seat: Seat) -> Token | None:
        """Take the waiting join from a member."""
        token, seat.join = seat.join, None
        if token is not None:
            self.joins -= 1
        return token

    # --- time ----------------------------------------------------------------------------------

    def touch(self, seat: Seat, for_ms: int | None = None) -> None:
        """Renew a member's session."""
        seat.expires_at_ms = self.now_ms + (seat.session_ms if for_ms is None else for_ms)
        self._set_timer(seat)

    def expect(self, member_id: str, for_ms: int) -> None:
        """Keep a given id valid for some time."""
        self.pending[member_id] = self.now_ms + for_ms
        heapq.heappush(self._timers, (self.now_ms + for_ms, member_id))

    def deadline_ms(self) -> int | None:
        """Return the earliest time at which something ends by itself, None for never."""
        first_ms = self._timers[0][0] if self._timers else None
        if self.round_ends_at_ms is None and self.sync_ends_at_ms is None:  # the usual case
            return first_ms
        for end_ms in (self.round_ends_at_ms, self.sync_ends_at_ms):
            if end_ms is not None and (first_ms is None or end_ms < first_ms):
                first_ms = end_ms
        return first_ms

    def take_expired(self) -> Iterator[str]:
        """Yield the ids that expire now: of members, and unused ones."""
        while self._timers and self._timers[0][0] <= self.now_ms:
            at_ms, member_id = heapq.heappop(self._timers)
            if self.pending.get(member_id, at_ms + 1) <= at_ms:
                yield member_id
                continue
            seat = self.seats.get(member_id)
            if seat is None or seat.timer_at_ms != at_ms:
                continue
            seat.timer_at_ms = None
            if seat.expires_at_ms > at_ms:
                self._set_timer(seat)
            elif seat.can_expire:
                yield member_id

    def _set_timer(self, seat: Seat) -> None:
        if seat.timer_at_ms is None or seat.expires_at_ms < seat.timer_at_ms:
            seat.timer_at_ms = seat.expires_at_ms
            heapq.heappush(self._timers, (seat.expires_at_ms, seat.member_id))

    # --- the log -------------------------------------------------------------------------------

    def stored(self) -> ClassicGroup:
        """Return the group that a broker loads if this state is the last one in the log."""
        return ClassicGroup(
            settings=self.settings,
            exists=self.exists,
            state=GroupState.STABLE if self.seats else GroupState.EMPTY,
            generation=self.generation,
            leader_id=self.leader_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            seats={member_id: seat.stored() for member_id, seat in self.seats.items()},
            static_ids=dict(self.static_ids),
            led_by=self.led_by,
            numbers=self.numbers,
            spoken=dict(self._spoken),
        )

    def start_sessions(self, now_ms: int) -> None:
        """Start every member's session, because a broker took over the group."""
        self.now_ms = now_ms
        for seat in self.seats.values():
            self.touch(seat)
