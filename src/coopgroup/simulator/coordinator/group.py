"""`GroupCoordinator`: the model of Kafka's coordinator for one group.

The group is classic, until a member of KIP-848 makes it a consumer group (`consumer_group`).

A request comes in with a token. Its answer appears in `outbox` with the same token, perhaps much
later. Nothing else connects a request with its sender.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    Answer,
    ConsumerBeatRequest,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from coopgroup.simulator.coordinator.answers import find_coordinator, refusal
from coopgroup.simulator.coordinator.classic import (
    drop_unsynced,
    end_round_in_time,
    expire,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    prepare_round,
    sync_group,
)
from coopgroup.simulator.coordinator.consumer_group import (
    ConsumerGroup,
    TopicIds,
    from_classic_group,
    to_classic_group,
)
from coopgroup.simulator.coordinator.state import (
    ClassicGroup,
    CoordinatorSettings,
    GroupState,
    Token,
)

_Group: TypeAlias = ClassicGroup | ConsumerGroup


@define(kw_only=True, eq=False)
class GroupCoordinator:
    """One group on one broker at a time.

    Attributes:
        existing: all partitions by topic id, which the broker assigns in a consumer group.
        names: names of topic ids, also of deleted topics; an id without one is its own name.
        forgotten: partitions that conversions did not know of, see `from_classic_group`.
        may_convert: `group.consumer.migration.policy`: whether a classic group with members may
            become a consumer group, and the other way round.
        committed: offsets by topic and partition; they survive every broker.
        on_commit: called with each accepted commit, before its answer is sent.
    """

    settings: CoordinatorSettings = field(factory=CoordinatorSettings)
    node_id: int = 1
    existing: Callable[[], ResourceSet] = field(default=lambda: EMPTY)
    names: Callable[[], Mapping[str, str]] = field(default=dict)
    may_convert: tuple[bool, bool] = (True, True)
    forgotten: ResourceSet = EMPTY
    group: _Group = field(init=False)
    committed: dict[tuple[str, int], int] = field(factory=dict)
    on_commit: Callable[[OffsetCommitRequest], None] = field(default=lambda _: None)
    _stored: _Group = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.group = ClassicGroup(settings=self.settings)
        self._stored = self.group.stored()

    def receive(
        self,
        token: Token,
        request: GroupRequest,
        now_ms: int,
        *,
        client_id: str = "client",
    ) -> None:
        """Process a request; answers appear in the outbox, now or later."""
        self.advance(now_ms)
        group = self._of_protocol(request)
        if isinstance(group, ConsumerGroup):
            self._receive_in_consumer_group(group, token, request, client_id)
            return
        self._receive_in_classic_group(group, token, request, client_id)
        if group.round_ends_at_ms == now_ms:  # a first round without a wait
            self.advance(now_ms)

    def _receive_in_classic_group(
        self, group: ClassicGroup, token: Token, request: GroupRequest, client_id: str
    ) -> None:
        generation = group.generation
        writes = False
        match request:
            case HeartbeatRequest():
                heartbeat(group, token, request)
            case JoinGroupRequest():
                writes = join_group(group, token, request, client_id)
            case SyncGroupRequest():
                writes = sync_group(group, token, request)
            case LeaveGroupRequest():
                leave_group(group, token, request)
            case OffsetCommitRequest():
                if offset_commit(group, token, request):
                    self._commit(request)
            case FindCoordinatorRequest():
                group.answer(token, find_coordinator(self.node_id, is_up=True))
            case ConsumerBeatRequest():
                group.answer(token, refusal(request, ErrorCode.GROUP_ID_NOT_FOUND))
        self._write_log(generation, due=writes)

    def _of_protocol(self, request: GroupRequest) -> _Group:
        """Return the group, after the conversion that a request causes."""
        group = self.group
        match group, request:
            case ClassicGroup(), ConsumerBeatRequest(epoch=0):
                may = self.may_convert[0] or not group.seats
                topics = TopicIds(existing=self.existing, names=self.names)
                converted = from_classic_group(group, topics) if may else None
                if converted is not None:
                    self.group = converted
                    self.forgotten |= converted.forgotten
            case ConsumerGroup(), JoinGroupRequest() if not group.seats:
                self.group = to_classic_group(group)
                self._stored = self.group.stored()
            case _:
                pass
        return self.group

    def _receive_in_consumer_group(
        self,
        group: ConsumerGroup,
        token: Token,
        request: GroupRequest,
        client_id: str,
    ) -> None:
        match request:
            case ConsumerBeatRequest():
                group.beat(token, request)
            case HeartbeatRequest():
                group.heartbeat(token, request)
            case JoinGroupRequest():
                group.join(token, request, client_id)
            case SyncGroupRequest():
                group.sync(token, request)
            case LeaveGroupRequest():
                group.leave(token, request)
            case OffsetCommitRequest():
                if group.offset_commit(token, request):
                    self._commit(request)
            case FindCoordinatorRequest():
                group.answer(token, find_coordinator(self.node_id, is_up=True))
        self._become_classic(group)

    def _become_classic(self, group: ConsumerGroup) -> None:
        if group.is_classic_again and self.may_convert[1]:
            self.group = classic = to_classic_group(group)
            prepare_round(classic)
            self._stored = classic.stored()

    def advance(self, now_ms: int) -> None:
        """Advance the time: end sessions, ids, rounds and syncs in order."""
        group = self.group
        if isinstance(group, ConsumerGroup):
            while (at_ms := group.deadline_ms()) is not None and at_ms <= now_ms:
                group.now_ms = max(group.now_ms, at_ms)
                group.expire(at_ms)
                self._become_classic(group)
                if self.group is not group:
                    self.advance(now_ms)
                    return
            group.now_ms = max(group.now_ms, now_ms)
            return
        while (at_ms := group.deadline_ms()) is not None and at_ms <= now_ms:
            group.now_ms = max(group.now_ms, at_ms)
            generation = group.generation
            for member_id in group.take_expired():
                expire(group, member_id)
            if group.round_ends_at_ms is not None and group.round_ends_at_ms <= at_ms:
                end_round_in_time(group)
            if group.sync_ends_at_ms is not None and group.sync_ends_at_ms <= at_ms:
                drop_unsynced(group)
            self._write_log(generation, due=False)
        group.now_ms = max(group.now_ms, now_ms)

    def deadline_ms(self) -> int | None:
        """Return when `advance` is due at the latest, None for never."""
        return self.group.deadline_ms()

    def take_answers(self) -> list[tuple[Token, Answer]]:
        """Return the answers since the last call."""
        answers = list(self.group.outbox)
        self.group.outbox.clear()
        return answers

    def fail_over(self, node_id: int, now_ms: int) -> tuple[Token, ...]:
        """Let another broker take over the group from the log; return the unanswered tokens."""
        waiting = []
        if isinstance(self.group, ClassicGroup):  # a consumer group answers each request at once
            seats = self.group.seats.values()
            waiting = [t for seat in seats for t in (seat.join, seat.sync) if t is not None]
        else:  # and every change of it is in the log
            self._stored = self.group
        self.node_id = node_id
        self.group = self._stored.stored()
        self.group.start_sessions(now_ms)
        return tuple(waiting)

    def _commit(self, request: OffsetCommitRequest) -> None:
        self.committed |= {row[:2]: row[2] for row in request.offsets}
        self.on_commit(request)

    def _write_log(self, generation: int, *, due: bool) -> None:
        """Write a group that has its assignment, a new static id, or no members left."""
        group = self.group
        if due or (group.generation != generation and group.state is GroupState.EMPTY):
            self._stored = group.stored()
