"""`Kip848Process`: a process whose consumer speaks KIP-848, so that the broker gives it partitions.

Its member sends ConsumerGroupHeartbeat to join, to live, to tell what it still owns, and to leave.
It joins again as a new member when it is fenced. Unlike a member of coopgroup it has no lease.
After a pause or a cut it could work on partitions of a new owner, so a simulation has neither. A
broker that refuses to convert the group ends a real client. Here it tries again.

The application is that of any process, with its own times to stop, commit and restore.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from attrs import define, field

from coopgroup.core.member import ErrorCode, MemberConfig, MemberState
from coopgroup.core.member.effects import FinishCommit, Lane, Send
from coopgroup.core.member.events import (
    Answered,
    CommitRequested,
    LeaveRequested,
    LossHandled,
    RequestFailed,
    RevocationCompleted,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    Coordinator,
    GroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
)
from coopgroup.core.session import SessionEvent
from coopgroup.simulator.coordinator.consumer_api import (
    JOINS,
    LEAVES,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
)
from coopgroup.simulator.host.application import Application
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.world import World
from coopgroup.simulator.world.brokers import Brokers
from coopgroup.simulator.world.calls import Client
from coopgroup.simulator.world.network import Network
from coopgroup.telemetry import (
    AssignmentReceived,
    EndCause,
    ProcessEnded,
    ProcessStarted,
    Record,
    StateChanged,
)

_REQUEST_TIMEOUT_MS: Final = 10_000
_FENCED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_RETRY_MS: Final = 20


@define(kw_only=True, eq=False)
class Kip848Process:
    """One life of such a process; `state` has the words of a member of coopgroup."""

    world: World
    network: Network
    brokers: Brokers
    run_settings: RunSettings
    name: str
    config: MemberConfig
    topics: tuple[str, ...]
    alive: bool = True
    state: MemberState = MemberState.JOINING
    application: Application = field(init=False)
    on_end: Callable[[], None] = field(default=lambda: None)
    _member_id: str = field(init=False)
    _epoch: int = JOINS
    _revoking: ResourceSet = EMPTY
    _newest_beat: int = 0
    # Commits in order. One request at a time has the newest offsets of the first `_sent` commits:
    # no retry may overtake a later offset.
    _commits: list[CommitRequested] = field(factory=list)
    _sent: int = 0
    _newest_commit: int = 0

    def __attrs_post_init__(self) -> None:
        self._member_id = f"{self.name}-{self.world.number()}"

    @property
    def warm(self) -> ResourceSet:
        """Nothing: warm-ups belong to the policies of coopgroup."""
        return EMPTY

    @property
    def owned(self) -> ResourceSet:
        """Owned partitions."""
        return self.application.owned

    @property
    def is_at_rest(self) -> bool:
        """Whether the process does nothing until an outside event."""
        is_working = self.application.working == self.owned and not self.application.stopping
        return is_working and self.state is MemberState.STABLE

    def start(self) -> None:
        """Start the application, and join."""
        self.write(ProcessStarted(topics=self.topics))
        self.application.start()
        self._beat_again()

    def close(self) -> None:
        """Close the consumer: stop, commit, leave, end."""
        if self.alive and not self.application.closing:
            self.application.close()

    def crash(self) -> None:
        """End without stopping or committing."""
        if self.alive:
            self.application.freeze()
            self._end(EndCause.CRASHED)

    def later(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - any action
        """Schedule an action; it is dropped after the end."""
        self.world.later(delay_ms, self._if_alive, action, arguments)

    def write(self, record: Record) -> None:
        """Write a telemetry record."""
        self.world.write(
            record, client=self.name, member=self._member_id, generation=max(self._epoch, 0)
        )

    def give(self, event: SessionEvent) -> None:
        """Take an event of the application, or the result of a request."""
        match event:
            case Answered(request_id=number) if number == self._newest_beat:
                self._take(cast("ConsumerBeatAnswer", event.answer))
            case Answered(request_id=number) if number == self._newest_commit:
                self._finish_commit(cast("OffsetCommitAnswer", event.answer))
            case RequestFailed(request_id=number) if number == self._newest_commit:
                self.later(_RETRY_MS, self._commit)
            case CommitRequested():
                self._commits.append(event)
                if len(self._commits) == 1:
                    self._commit()
            case RevocationCompleted(resources=resources):
                self._revoking -= resources
                self._beat()
            case LossHandled():
                self._move(MemberState.JOINING)
                self._beat()
            case LeaveRequested():
                self._epoch = LEAVES
                self._beat()
                self._end(EndCause.CLOSED)
            case _:  # a lost heartbeat; the next one says the same
                pass

    def _take(self, answer: ConsumerBeatAnswer) -> None:
        if answer.error_code in _FENCED:
            self._epoch, self._revoking = JOINS, EMPTY
            self._move(MemberState.LOSING)
            self._commits, self._newest_commit = [], 0
            self.application.lose()
        if answer.error_code or self.state is MemberState.LOSING:
            return
        owned, self._epoch = self.owned, answer.epoch
        gained, lacks = answer.assigned - owned, owned - answer.assigned - self._revoking
        if gained or lacks:
            kept = answer.assigned & owned
            self.write(AssignmentReceived(leader=False, gained=gained, kept=kept, revoked=lacks))
        self._revoking |= lacks
        self._move(MemberState.REVOKING if self._revoking else MemberState.STABLE)
        if gained:
            self.application.grant(gained)
        if lacks:
            self.application.revoke(lacks)

    def _finish_commit(self, answer: OffsetCommitAnswer) -> None:
        if any(code == ErrorCode.STALE_MEMBER_EPOCH for *_, code in answer.codes):
            self.later(_RETRY_MS, self._commit)  # a heartbeat has told the new epoch, or will
            return
        finished, self._commits = self._commits[: self._sent], self._commits[self._sent :]
        if self._commits:
            self._commit()
        for event in finished:
            named = {row[:2] for row in event.offsets}
            codes = tuple(row for row in answer.codes if row[:2] in named)
            self.application.finish_commit(FinishCommit(commit_id=event.commit_id, codes=codes))

    def _move(self, state: MemberState) -> None:
        if state is not self.state:
            self.write(StateChanged(before=self.state.value, after=state.value, cause="heartbeat"))
            self.state = state

    # --- requests --------------------------------------------------------------------------------

    def _beat_again(self) -> None:
        self.later(self.config.heartbeat_interval_ms, self._beat_again)
        self._beat()

    def _beat(self) -> None:
        if self.state is MemberState.LOSING:
            return
        self._newest_beat = self._send(
            ConsumerBeatRequest(
                group_id=self.config.group_id,
                member_id=self._member_id,
                epoch=self._epoch,
                topics=self.topics,
                owned=self.owned,
                session_ms=self.config.session_timeout_ms,
                # The application gives up a slow stop before the broker does.
                rebalance_ms=2 * self.config.rebalance_timeout_ms,
            )
        )

    def _commit(self) -> None:
        if not self._commits:  # a loss ended it
            return
        self._sent = len(self._commits)
        newest = {row[:2]: row for event in self._commits for row in event.offsets}
        request = OffsetCommitRequest(
            group_id=self.config.group_id,
            generation=self._epoch,
            member_id=self._member_id,
            group_instance_id=None,
            offsets=tuple(newest[key] for key in sorted(newest)),
        )
        self._newest_commit = self._send(request)

    def _send(self, request: GroupRequest | ConsumerBeatRequest) -> int:
        number = self.world.number()
        node_id = self.brokers.coordinator.node_id
        send = Send(
            request_id=number,
            lane=Lane.COMMIT,
            coordinator=Coordinator(node_id=node_id, host="", port=1),
            request=cast("GroupRequest", request),
            timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        self.network.send(cast("Client", self), send)
        return number

    def _end(self, cause: EndCause) -> None:
        self.alive = False
        self.write(ProcessEnded(cause=cause))
        self.network.forget(cast("Client", self))
        self.on_end()

    def _if_alive(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.alive:
            action(*arguments)
