"""`GroupCoordinator`: the model of Kafka's coordinator for one classic group.

A request comes in with a token. Its answer appears in `outbox` with the same token, perhaps much
later. Nothing else connects a request with its sender.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from coopgroup.model.group_api import (
    Answer,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from coopgroup.simulator.coordinator.answers import find_coordinator
from coopgroup.simulator.coordinator.heartbeat import heartbeat
from coopgroup.simulator.coordinator.join_group import join_group
from coopgroup.simulator.coordinator.leave_group import leave_group
from coopgroup.simulator.coordinator.offset_commit import offset_commit
from coopgroup.simulator.coordinator.rounds import drop_unsynced, end_round_in_time, expire
from coopgroup.simulator.coordinator.state import (
    ClassicGroup,
    CoordinatorSettings,
    GroupState,
    Token,
)
from coopgroup.simulator.coordinator.sync_group import sync_group

__all__ = ["GroupCoordinator"]


@define(kw_only=True, eq=False)
class GroupCoordinator:
    """One classic group on one broker at a time.

    Attributes:
        committed: offsets by topic and partition; they survive every broker.
        on_commit: called with each accepted commit, before its answer is sent.
    """

    settings: CoordinatorSettings = field(factory=CoordinatorSettings)
    node_id: int = 1
    group: ClassicGroup = field(init=False)
    committed: dict[tuple[str, int], int] = field(factory=dict)
    on_commit: Callable[[OffsetCommitRequest], None] = field(default=lambda _: None)
    _stored: ClassicGroup = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.group = ClassicGroup(settings=self.settings)
        self._stored = self.group.stored()

    def receive(
        self, token: Token, request: GroupRequest, now_ms: int, *, client_id: str = "client"
    ) -> None:
        """Process a request; answers appear in the outbox, now or later."""
        self.advance(now_ms)
        group = self.group
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
        self._write_log(generation, due=writes)
        if group.round_ends_at_ms == now_ms:  # a first round without a wait
            self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """Advance the time: end sessions, ids, rounds and syncs in order."""
        group = self.group
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
        answers, self.group.outbox = self.group.outbox, []
        return answers

    def fail_over(self, node_id: int, now_ms: int) -> tuple[Token, ...]:
        """Let another broker take over the group from the log; return the unanswered tokens."""
        seats = self.group.seats.values()
        waiting = [t for seat in seats for t in (seat.join, seat.sync) if t is not None]
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
