"""Supervisors of processes: they leave the group for a process that has crashed.

The leave comes right after the crash, late, or never. A late leave may come after the session, and
after the next life of the process has joined. As in `coopgroup.supervisor`, nobody leaves for an
identity that returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define, field

from coopgroup.core.member import ErrorCode, GroupProtocol, MemberConfig
from coopgroup.core.member.effects import Lane, Send
from coopgroup.core.member.events import Answered
from coopgroup.core.model.group_api import (
    LEAVES,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
)
from coopgroup.simulator.coordinator.answers import find_coordinator
from coopgroup.simulator.scenario import Identity
from coopgroup.simulator.world.drawing import between

if TYPE_CHECKING:
    import random

    from coopgroup.core.model.group_api import GroupRequest
    from coopgroup.core.session import Session, SessionEvent
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import World

_TIMEOUT_MS: Final = 300
_PAUSE_MS: Final = 20
_TRIES: Final = 20
_LEFT: Final = {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}


@define(kw_only=True, eq=False)
class Supervisors:
    """The supervisors of all processes.

    Attributes:
        simulation: the group.
        delay_ms_max: longest time from a crash to the leave; 0 for no supervisors.
        loss: fraction of the crashes after which no leave is sent.
    """

    simulation: Simulation
    delay_ms_max: int
    loss: float
    _dice: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._dice = self.simulation.world.dice("supervisor")

    def crash(self, process: Process, leave_ms: int = 0) -> None:
        """Kill a process, and leave for it later: after `leave_ms`, or a drawn time if it is 0."""
        member_id = process.session.member.member_id
        process.crash()
        if not member_id or process.identity is not Identity.NONE:
            return
        if not leave_ms:
            if not self.delay_ms_max or self._dice.random() < self.loss:
                return
            leave_ms = between(self._dice, 1, self.delay_ms_max)
        supervisor = _Supervisor(simulation=self.simulation, of=process, member_id=member_id)
        self.simulation.world.later(leave_ms, supervisor.leave)


@define(kw_only=True, eq=False)
class _Supervisor:
    """The supervisor of one dead process, as a client of the network."""

    simulation: Simulation
    of: Process
    member_id: str
    alive: bool = True
    _tries: int = _TRIES

    @property
    def name(self) -> str:
        """A name of its own: its leave gives up nothing that the next life works on."""
        return f"supervisor of {self.of.name}"

    @property
    def world(self) -> World:
        return self.simulation.world

    @property
    def config(self) -> MemberConfig:
        return self.of.config

    @property
    def session(self) -> Session:
        return self.of.session

    def leave(self) -> None:
        brokers = self.simulation.brokers
        found = find_coordinator(brokers.coordinator.node_id, is_up=brokers.is_up)
        if found.coordinator is None:
            self._try_again()
            return
        group_id, member_id = self.config.group_id, self.member_id
        request: GroupRequest = ConsumerBeatRequest(
            group_id=group_id, member_id=member_id, epoch=LEAVES
        )
        if self.config.protocol is GroupProtocol.CLASSIC:
            request = LeaveGroupRequest(
                group_id=group_id,
                member_id=member_id,
                group_instance_id=None,
                reason="its process crashed",
            )
        send = Send(
            request_id=self._tries,
            lane=Lane.COMMIT,
            coordinator=found.coordinator,
            request=request,
            timeout_ms=_TIMEOUT_MS,
        )
        self.simulation.network.send(self, send)

    def give(self, event: SessionEvent) -> None:
        """Take the result of the leave."""
        answer = event.answer if isinstance(event, Answered) else None
        if isinstance(answer, LeaveGroupAnswer | ConsumerBeatAnswer) and answer.error_code in _LEFT:
            self.alive = False
            if answer.error_code == ErrorCode.NONE and self.simulation.bell is not None:
                self.simulation.bell.ring()
        else:
            self._try_again()

    def _try_again(self) -> None:
        self._tries -= 1
        self.alive = self._tries > 0
        if self.alive:
            self.world.later(_PAUSE_MS, self.leave)
