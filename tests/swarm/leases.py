"""`Leases`: check at each event that a member stops working before the coordinator may drop it.

This is the reason why no resource has two owners. Two owners need a lease that is too long, and a
round that gives the resource away in just that time. The lease alone is too long far more often.

The check compares two numbers that only the simulator knows both, in virtual time:

- until when the member may work, by its lease (`hold_until_ms`) and the speed of its clock
- the earliest time at which the coordinator may drop the member: the end of its session, of the
  time to join, or of the time to sync

A static member is not dropped at the end of the time to join. It must stop all the same, because
the leader then reads its last join, which claims nothing that the member got later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import HeartbeatRequest
from coopgroup.simulator.coordinator import GroupState
from coopgroup.simulator.coordinator.consumer_group import ConsumerSeat
from coopgroup.simulator.coordinator.state import ClassicGroup

if TYPE_CHECKING:
    from coopgroup.core.member import Member
    from coopgroup.core.model.group_api import Answer
    from coopgroup.simulator.coordinator.consumer_group import ConsumerGroup
    from coopgroup.simulator.coordinator.state import Seat
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import Watcher
    from coopgroup.simulator.world.calls import Call
    from coopgroup.telemetry import Envelope


@define(eq=False)
class Leases:
    """Compares the lease of each member with the coordinator's timers.

    Attributes:
        simulation: the group.
        transcript: receives all events, too; None for no transcript.
        too_long: names of processes with a reported lease. Each is reported once.
        misled_until_ms: end of the leases that count from a false answer, by process. The swarm can
            refuse a heartbeat because of a round. A broker that gives this answer has renewed the
            session, but the swarm keeps the heartbeat from the broker.
    """

    simulation: Simulation
    transcript: Watcher | None = None
    too_long: set[str] = field(factory=set)
    misled_until_ms: dict[str, int] = field(factory=dict)
    # Until when each process may work, with the member that this was computed for.
    _works: dict[str, tuple[Member, int]] = field(factory=dict)

    def recorded(self, envelope: Envelope) -> None:
        """Handle a new telemetry record."""
        if self.transcript is not None:
            self.transcript.recorded(envelope)

    def sent(self, call: Call) -> None:
        """Handle a sent request."""
        if self.transcript is not None:
            self.transcript.sent(call)
        self._compare()

    def answered(self, call: Call, answer: Answer) -> None:
        """Handle an answer that has arrived; its process has not read it yet."""
        if self.transcript is not None:
            self.transcript.answered(call, answer)
        self._compare()
        is_heartbeat = isinstance(call.send.request, HeartbeatRequest)
        if is_heartbeat and call.refused_with == ErrorCode.REBALANCE_IN_PROGRESS:
            until_ms = self.simulation.world.now_ms + call.process.config.session_timeout_ms
            self.misled_until_ms[call.process.name] = until_ms

    def failed(self, call: Call) -> None:
        """Handle a call without an answer."""
        if self.transcript is not None:
            self.transcript.failed(call)
        self._compare()

    def _compare(self) -> None:
        now_ms, group = self.simulation.world.now_ms, self.simulation.brokers.coordinator.group
        for process in self.simulation.alive:
            member, name = process.session.member, process.name
            known, works_ms = self._works.get(name, (None, 0))
            if known is not member:
                works_ms = process.world_ms(member.hold_until_ms) if member.owned else 0
                self._works[name] = member, works_ms
            if works_ms <= now_ms or name in self.too_long:
                continue
            if now_ms < self.misled_until_ms.get(name, 0):
                continue
            # A late join of an earlier process can replace a static member, and its seat remains.
            holder = group.static_ids.get(member.config.instance_id or "", member.member_id)
            seat = group.seats.get(holder)
            dropped_ms = now_ms if seat is None else _dropped_ms(group, seat)
            if dropped_ms is not None and works_ms > dropped_ms:
                self._report(process, works_ms, dropped_ms)

    def _report(self, process: Process, works_ms: int, dropped_ms: int) -> None:
        self.too_long.add(process.name)
        message = f"{process.name} works until {works_ms}, the coordinator may drop it {dropped_ms}"
        self.simulation.world.object_to("lease", message)


def _dropped_ms(group: ClassicGroup | ConsumerGroup, seat: Seat | ConsumerSeat) -> int | None:
    """Return when the coordinator drops a member that is silent from now on, None for never."""
    if isinstance(seat, ConsumerSeat):
        return seat.dropped_at_ms
    assert isinstance(group, ClassicGroup)
    end_ms = seat.expires_at_ms if seat.can_expire else None
    if group.state is GroupState.PREPARING and seat.join is None:
        end_ms = _earlier_ms(end_ms, group.round_ends_at_ms)
    if seat.member_id in group.unsynced and seat.sync is None:
        end_ms = _earlier_ms(end_ms, group.sync_ends_at_ms)
    return end_ms


def _earlier_ms(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return other_ms if one_ms is None else one_ms
    return min(one_ms, other_ms)
