"""A model of Kafka's coordinator of classic groups: pure, in virtual time, one group.

It is written from `GroupMetadataManager` and `ClassicGroup` of Kafka 4.x, function by function, so
that a reader can compare. What is left out: sizes and authorizations, and the delay of the first
round (`group.initial.rebalance.delay.ms` is 0).

Rules of this file: a request comes in with a token, answers go out in `outbox` with the token that
they belong to, maybe much later; nothing else ties a request to its sender.
"""

import enum
from itertools import count

import attrs

from coopgroup.member.error_actions import ErrorCode
from coopgroup.model.group_api import (
    Answer,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)

Token = int
Fenced = HeartbeatRequest | SyncGroupRequest | OffsetCommitRequest
Commit = tuple[str, int, int, str, int]


class GroupState(enum.Enum):
    """States of a classic group."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@attrs.define(kw_only=True)
class Seat:
    """A member as the coordinator knows it.

    Attributes:
        member_id: its id.
        instance_id: its static id.
        session_ms: its session time-out.
        rebalance_ms: its rebalance time-out.
        metadata: subscription of its last join.
        expires_at_ms: end of its session.
        join: token of the join that waits.
        sync: token of the sync that waits.
        assignment: what the leader gave it.
    """

    member_id: str
    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    metadata: bytes
    expires_at_ms: int
    join: Token | None = None
    sync: Token | None = None
    assignment: bytes = b""


@attrs.frozen(kw_only=True)
class Stored:
    """What a coordinator finds in the log when it takes the group over."""

    generation: int = 0
    leader_id: str = ""
    seats: tuple[Seat, ...] = ()


def refusal(request: GroupRequest, code: int) -> Answer:
    """The answer to a request that is refused with a code."""
    match request:
        case JoinGroupRequest():
            return _join_refusal(code, request.member_id)
        case SyncGroupRequest():
            return SyncGroupAnswer(error_code=code, assignment=b"")
        case HeartbeatRequest():
            return HeartbeatAnswer(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupAnswer(error_code=code)
        case FindCoordinatorRequest():
            return FindCoordinatorAnswer(error_code=code, error_message="", coordinator=None)
        case OffsetCommitRequest():
            codes = sorted((topic, partition, code) for topic, partition, *_ in request.offsets)
            return OffsetCommitAnswer(codes=tuple(codes))


def _join_refusal(code: int, member_id: str) -> JoinGroupAnswer:
    return JoinGroupAnswer(
        error_code=code,
        generation=-1,
        protocol_name="",
        leader_id="",
        member_id=member_id,
        members=(),
        skip_assignment=False,
    )


@attrs.define(kw_only=True)
class GroupCoordinator:
    """One classic group.

    Attributes:
        now_ms: virtual time.
        state: of the group.
        generation: of the group.
        leader_id: who leads.
        seats: members by id.
        pending: ids given with MEMBER_ID_REQUIRED and not used yet, with their end.
        unsynced: members of the generation that have not sent their sync.
        round_ends_at_ms: when whoever has not rejoined is dropped.
        sync_ends_at_ms: when whoever has not synced is dropped.
        outbox: answers to be taken by the host.
        stored: what is in the log.
        committed: offsets by topic and partition.
        backward: accepted commits that went back: topic, partition, offset, member, generation.
        led_by: which leader's assignment each generation has.
    """

    now_ms: int = 0
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    leader_id: str = ""
    seats: dict[str, Seat] = attrs.field(factory=dict)
    pending: dict[str, int] = attrs.field(factory=dict)
    unsynced: set[str] = attrs.field(factory=set)
    round_ends_at_ms: int | None = None
    sync_ends_at_ms: int | None = None
    outbox: list[tuple[Token, Answer]] = attrs.field(factory=list)
    stored: Stored = attrs.field(factory=Stored)
    committed: dict[tuple[str, int], int] = attrs.field(factory=dict)
    backward: list[Commit] = attrs.field(factory=list)
    led_by: dict[int, str] = attrs.field(factory=dict)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1))

    def receive(self, token: Token, request: GroupRequest, now_ms: int) -> None:
        """Take a request; answers appear in `outbox`, now or later."""
        self.advance(now_ms)
        match request:
            case JoinGroupRequest():
                self._join(token, request)
            case SyncGroupRequest():
                self._sync(token, request)
            case HeartbeatRequest():
                self._heartbeat(token, request)
            case LeaveGroupRequest():
                self._leave(token, request)
            case OffsetCommitRequest():
                self._commit(token, request)
            case FindCoordinatorRequest():
                raise AssertionError("any broker answers this one")

    def advance(self, now_ms: int) -> None:
        """Let time pass: sessions, ids, rounds and syncs come to their end, in order."""
        while (at_ms := self.deadline_ms()) is not None and at_ms <= now_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self._expire(at_ms)
        self.now_ms = now_ms

    def deadline_ms(self) -> int | None:
        """When something ends by itself, None for never."""
        ends = [seat.expires_at_ms for seat in self.seats.values() if _can_expire(seat)]
        ends += self.pending.values()
        if self.round_ends_at_ms is not None:
            ends.append(self.round_ends_at_ms)
        if self.sync_ends_at_ms is not None:
            ends.append(self.sync_ends_at_ms)
        return min(ends, default=None)

    def fail_over(self, now_ms: int) -> tuple[Token, ...]:
        """Another broker takes the group over from the log, at a time that may be in the future.

        Returns:
            Tokens of the requests that waited.
        """
        waiting = [t for seat in self.seats.values() for t in (seat.join, seat.sync) if t]
        self.seats = {
            seat.member_id: attrs.evolve(
                seat, join=None, sync=None, expires_at_ms=now_ms + seat.session_ms
            )
            for seat in self.stored.seats
        }
        self.generation, self.leader_id = self.stored.generation, self.stored.leader_id
        self.state = GroupState.STABLE if self.seats else GroupState.EMPTY
        self.now_ms = now_ms
        self.pending, self.unsynced = {}, set()
        self.round_ends_at_ms = self.sync_ends_at_ms = None
        return tuple(waiting)

    # --- JoinGroup -----------------------------------------------------------------------------

    def _join(self, token: Token, request: JoinGroupRequest) -> None:
        member_id, instance_id = request.member_id, request.group_instance_id
        if not member_id:
            self._join_new(token, request)
            return
        if member_id in self.pending and instance_id is None:
            del self.pending[member_id]
            self._add(token, request, member_id)
            return
        code = self._identity(member_id, instance_id)
        if code:
            self._answer(token, _join_refusal(code, member_id))
            return
        seat = self.seats[member_id]
        changed = seat.metadata != request.protocols[0][1]
        leads = self.state is GroupState.STABLE and member_id == self.leader_id
        if self.state is GroupState.PREPARING or changed or leads:
            self._update(token, request, seat)
        else:
            self._answer(token, self._joined(seat))
            self._touch(seat)

    def _join_new(self, token: Token, request: JoinGroupRequest) -> None:
        instance_id = request.group_instance_id
        member_id = f"{instance_id or 'm'}-{next(self._numbers):03}"
        if instance_id is None:
            self.pending[member_id] = self.now_ms + request.session_timeout_ms
            code = ErrorCode.MEMBER_ID_REQUIRED
            self._answer(token, _join_refusal(code, member_id))
            return
        before = self._static(instance_id)
        if before is None:
            self._add(token, request, member_id)
        else:
            self._replace(token, request, before, member_id)

    def _add(self, token: Token, request: JoinGroupRequest, member_id: str) -> None:
        self.seats[member_id] = Seat(
            member_id=member_id,
            instance_id=request.group_instance_id,
            session_ms=request.session_timeout_ms,
            rebalance_ms=request.rebalance_timeout_ms,
            metadata=request.protocols[0][1],
            expires_at_ms=self.now_ms + request.session_timeout_ms,
            join=token,
        )
        if not self.leader_id:
            self.leader_id = member_id
        self._prepare()

    def _update(self, token: Token, request: JoinGroupRequest, seat: Seat) -> None:
        seat.metadata = request.protocols[0][1]
        seat.session_ms = request.session_timeout_ms
        seat.rebalance_ms = request.rebalance_timeout_ms
        seat.join = token
        self._prepare()

    def _replace(
        self, token: Token, request: JoinGroupRequest, before: Seat, member_id: str
    ) -> None:
        """A static member came back (KIP-345): a new id for the old seat."""
        del self.seats[before.member_id]
        self.unsynced.discard(before.member_id)
        for waiting in (before.join, before.sync):
            if waiting is not None:
                code = ErrorCode.FENCED_INSTANCE_ID
                empty = (
                    _join_refusal(code, before.member_id)
                    if waiting == before.join
                    else SyncGroupAnswer(error_code=code, assignment=b"")
                )
                self._answer(waiting, empty)
        seat = attrs.evolve(
            before,
            member_id=member_id,
            metadata=request.protocols[0][1],
            join=None,
            sync=None,
            expires_at_ms=self.now_ms + request.session_timeout_ms,
        )
        self.seats[member_id] = seat
        leads = self.leader_id == before.member_id
        if leads:
            self.leader_id = member_id
        if self.state is GroupState.STABLE:
            self._store()
            self._answer(token, attrs.evolve(self._joined(seat), skip_assignment=leads))
            return
        seat.join = token
        self._prepare()

    def _prepare(self) -> None:
        if self.state is GroupState.COMPLETING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            for seat in self.seats.values():
                seat.assignment = b""
                if seat.sync is not None:
                    self._answer(seat.sync, SyncGroupAnswer(error_code=code, assignment=b""))
                    self._touch(seat)
                    seat.sync = None
        if self.state is not GroupState.PREPARING:
            self.state = GroupState.PREPARING
            self.sync_ends_at_ms, self.unsynced = None, set()
            self.round_ends_at_ms = self.now_ms + self._rebalance_ms()
        self._complete_if_all_joined()

    def _rebalance_ms(self) -> int:
        return max((seat.rebalance_ms for seat in self.seats.values()), default=0)

    def _complete_if_all_joined(self) -> None:
        if self.state is not GroupState.PREPARING or self.pending:
            return
        if all(seat.join is not None for seat in self.seats.values()):
            self._complete()

    def _complete(self) -> None:
        """End the join phase: who has not rejoined is dropped, but for static members."""
        for seat in tuple(self.seats.values()):
            if seat.join is None and seat.instance_id is None:
                del self.seats[seat.member_id]
        joined = [seat for seat in self.seats.values() if seat.join is not None]
        if self.seats and not joined:
            self.round_ends_at_ms = self.now_ms + self._rebalance_ms()
            return
        self.generation += 1
        self.round_ends_at_ms = None
        if not joined:
            self.state, self.leader_id = GroupState.EMPTY, ""
            self._store()
            return
        if self.leader_id not in {seat.member_id for seat in joined}:
            self.leader_id = joined[0].member_id
        self.state = GroupState.COMPLETING
        self.sync_ends_at_ms = self.now_ms + self._rebalance_ms()
        self.unsynced = set(self.seats)
        for seat in self.seats.values():
            self._touch(seat)
            if seat.join is not None:
                self._answer(seat.join, self._joined(seat))
                seat.join = None

    def _joined(self, seat: Seat) -> JoinGroupAnswer:
        leads = seat.member_id == self.leader_id
        members = tuple(
            JoinedMember(
                member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata
            )
            for one in self.seats.values()
        )
        return JoinGroupAnswer(
            error_code=0,
            generation=self.generation,
            protocol_name="coopgroup",
            leader_id=self.leader_id,
            member_id=seat.member_id,
            members=members if leads else (),
            skip_assignment=False,
        )

    # --- the other requests --------------------------------------------------------------------

    def _sync(self, token: Token, request: SyncGroupRequest) -> None:
        code = self._fence(request)
        if not code and self.state is GroupState.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            self._answer(token, SyncGroupAnswer(error_code=code, assignment=b""))
            return
        seat = self.seats[request.member_id]
        self.unsynced.discard(seat.member_id)
        seat.sync = token
        if self.state is GroupState.COMPLETING and seat.member_id == self.leader_id:
            given = dict(request.assignments)
            for one in self.seats.values():
                one.assignment = given.get(one.member_id, b"")
            self.state = GroupState.STABLE
            self.led_by[self.generation] = self.leader_id
            self._store()
        if self.state is GroupState.STABLE:
            for one in self.seats.values():
                if one.sync is not None:
                    answer = SyncGroupAnswer(error_code=0, assignment=one.assignment)
                    self._answer(one.sync, answer)
                    one.sync = None
                    self._touch(one)

    def _heartbeat(self, token: Token, request: HeartbeatRequest) -> None:
        code = self._fence(request)
        if not code:
            self._touch(self.seats[request.member_id])
            if self.state is GroupState.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        self._answer(token, HeartbeatAnswer(error_code=code))

    def _leave(self, token: Token, request: LeaveGroupRequest) -> None:
        if self.pending.pop(request.member_id, None) is not None:
            self._answer(token, LeaveGroupAnswer(error_code=0))
            self._complete_if_all_joined()
            return
        code = self._identity(request.member_id, request.group_instance_id)
        self._answer(token, LeaveGroupAnswer(error_code=code))
        if not code:
            self._remove(request.member_id)

    def _commit(self, token: Token, request: OffsetCommitRequest) -> None:
        code = self._fence(request)
        if not code and self.state is GroupState.COMPLETING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if not code:
            self._touch(self.seats[request.member_id])
            for topic, partition, offset, *_ in request.offsets:
                if offset < self.committed.get((topic, partition), 0):
                    commit = (topic, partition, offset, request.member_id, request.generation)
                    self.backward.append(commit)
                self.committed[topic, partition] = offset
        self._answer(token, refusal(request, code))

    # --- membership ----------------------------------------------------------------------------

    def _fence(self, request: Fenced) -> int:
        code = self._identity(request.member_id, request.group_instance_id)
        if not code and request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    def _identity(self, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None:
            seat = self._static(instance_id)
            if seat is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if seat.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.seats else ErrorCode.UNKNOWN_MEMBER_ID

    def _static(self, instance_id: str) -> Seat | None:
        found = (seat for seat in self.seats.values() if seat.instance_id == instance_id)
        return next(found, None)

    def _remove(self, member_id: str) -> None:
        seat = self.seats.pop(member_id)
        self.unsynced.discard(member_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if seat.join is not None:
            self._answer(seat.join, _join_refusal(code, member_id))
        if seat.sync is not None:
            self._answer(seat.sync, SyncGroupAnswer(error_code=code, assignment=b""))
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.seats), "")
        self._prepare()

    def _expire(self, now_ms: int) -> None:
        for member_id in [one for one, end in self.pending.items() if end <= now_ms]:
            del self.pending[member_id]
            self._complete_if_all_joined()
        for seat in tuple(self.seats.values()):
            over = seat.member_id in self.seats and seat.expires_at_ms <= now_ms
            if over and _can_expire(seat):
                self._remove(seat.member_id)
        if self.round_ends_at_ms is not None and self.round_ends_at_ms <= now_ms:
            self._complete()
        if self.sync_ends_at_ms is not None and self.sync_ends_at_ms <= now_ms:
            self.sync_ends_at_ms = None
            for member_id in sorted(self.unsynced & set(self.seats)):
                self._remove(member_id)

    def _touch(self, seat: Seat) -> None:
        seat.expires_at_ms = self.now_ms + seat.session_ms

    def _store(self) -> None:
        seats = tuple(attrs.evolve(seat) for seat in self.seats.values())
        self.stored = Stored(generation=self.generation, leader_id=self.leader_id, seats=seats)

    def _answer(self, token: Token, answer: Answer) -> None:
        self.outbox.append((token, answer))


def _can_expire(seat: Seat) -> bool:
    """A member whose join or sync waits is alive for the coordinator, whatever its silence."""
    return seat.join is None and seat.sync is None
