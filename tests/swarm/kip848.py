"""`Kip848Process`: a simple member of KIP-848, which the broker gives its partitions.

As a real one, it sends only ConsumerGroupHeartbeat: to join, to live, to tell what it still owns,
and to leave. It has no lease, and joins again as a new member when it is fenced. A broker that
refuses to convert the group ends a real client. Here a supervisor starts it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field

from coopgroup.member import ErrorCode
from coopgroup.member.effects import Lane, Send
from coopgroup.member.events import Answered, RequestFailed
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.group_api import Coordinator
from coopgroup.simulator.coordinator.consumer_api import (
    JOINS,
    LEAVES,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
)
from coopgroup.telemetry import (
    AssignmentReceived,
    EndCause,
    ProcessEnded,
    ProcessStarted,
    ResourcesStopped,
    StopReason,
)

if TYPE_CHECKING:
    import random

    from coopgroup.member import MemberConfig
    from coopgroup.model.group_api import GroupRequest
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import World

__all__ = ["KIP_848", "Kip848Process"]

KIP_848: Final = "kip-848"
"""Stands for members of KIP-848 in place of the protocols of other clients."""

_BEAT_MS: Final = 40
_STOP_MS_MAX: Final = 10
_REQUEST_TIMEOUT_MS: Final = 10_000


@define(eq=False)
class Kip848Process:
    """A process with one consumer, with the attributes of a `ForeignProcess`."""

    simulation: Simulation
    name: str
    topics: tuple[str, ...]
    alive: bool = True
    refused: bool = False
    owned: ResourceSet = EMPTY
    state: str = "joining"
    _epoch: int = JOINS
    _stopping: ResourceSet = EMPTY
    _requests: int = 0
    _dice: random.Random = field(init=False)

    def start(self) -> None:
        """Join the group."""
        self._dice = self.simulation.world.dice(f"kip-848 {self.name}")
        self._write(ProcessStarted(topics=self.topics))
        self._beat()
        self._later(_BEAT_MS, self._beat_again)

    def close(self) -> None:
        """Stop all partitions, leave the group and end."""
        if self.alive:
            self._stop(self.owned, StopReason.CLOSED)
            self._epoch = LEAVES
            self._beat()
            self._end(EndCause.CLOSED)

    def crash(self) -> None:
        """End without leaving the group."""
        if self.alive:
            self._end(EndCause.CRASHED)

    def give(self, event: Answered | RequestFailed) -> None:
        """Take the answer to its last heartbeat."""
        if not self.alive or event.request_id != self._requests or isinstance(event, RequestFailed):
            return
        answer = cast("ConsumerBeatAnswer", event.answer)
        match answer.error_code:
            case ErrorCode.NONE:
                self._take(answer)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH:
                self._stop(self.owned, StopReason.LOST)
                self._epoch, self._stopping, self.state = JOINS, EMPTY, "joining"
            case _:
                self.state = "joining"

    def _take(self, answer: ConsumerBeatAnswer) -> None:
        self._epoch = answer.epoch
        gained, lacks = answer.assigned - self.owned, self.owned - answer.assigned - self._stopping
        if gained or lacks:
            kept = answer.assigned & self.owned
            record = AssignmentReceived(leader=False, gained=gained, kept=kept, revoked=lacks)
            self._write(record)
        self.owned |= gained
        self._stopping |= lacks
        self.state = "stopping" if self._stopping else "stable"
        if lacks:
            self._later(self._dice.randint(1, _STOP_MS_MAX), self._stop_and_tell, lacks)

    def _stop_and_tell(self, resources: ResourceSet) -> None:
        self._stop(resources & self.owned, StopReason.REVOKED)
        self._stopping -= resources
        self._beat()

    def _beat_again(self) -> None:
        self._later(_BEAT_MS, self._beat_again)
        self._beat()

    def _beat(self) -> None:
        config = self.simulation.config
        request = ConsumerBeatRequest(
            group_id=config.group_id,
            member_id=self.name,
            epoch=self._epoch,
            topics=self.topics,
            owned=self.owned,
            session_ms=config.session_timeout_ms,
            rebalance_ms=config.rebalance_timeout_ms,
        )
        self._requests += 1
        send = Send(
            request_id=self._requests,
            lane=Lane.COMMIT,
            coordinator=Coordinator(
                node_id=self.simulation.brokers.coordinator.node_id, host="", port=1
            ),
            request=cast("GroupRequest", request),
            timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        self.simulation.network.send(cast("Process", self), send)

    # --- the rest ---------------------------------------------------------------------------------

    @property
    def config(self) -> MemberConfig:
        """Settings that the network needs."""
        return self.simulation.config

    @property
    def world(self) -> World:
        """The world of the simulation."""
        return self.simulation.world

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        if resources:
            self.owned -= resources
            self._write(ResourcesStopped(resources=resources, reason=reason, duration_ms=0))

    def _end(self, cause: EndCause) -> None:
        self.alive = False
        self._write(ProcessEnded(cause=cause))
        self.simulation.network.forget(cast("Process", self))

    def _later(self, delay_ms: int, action: Any, *arguments: Any) -> None:  # noqa: ANN401
        self.simulation.world.later(delay_ms, self._if_alive, action, arguments)

    def _if_alive(self, action: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
        if self.alive:
            action(*arguments)

    def _write(self, record: Any) -> None:  # noqa: ANN401  (any record)
        self.simulation.world.write(
            record, client=self.name, member=self.name, generation=self._epoch
        )
