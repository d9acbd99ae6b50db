"""`HandOvers`: check that work is committed before another process can begin with the resource.

Positions are not in any record, so the check runs during the simulation. `HandOvers` replaces the
transcript, which receives all events of the world, and forwards them to a real transcript.

A member commits revoked resources before it sends the join that gives them up. It cannot commit if
it was paused for longer than its session timeout and the group coordinator removed it. The member
notices this only after the pause, so its telemetry names the loss too late. The group coordinator
therefore decides: a member that was removed while it still claimed a resource need not commit it. A
member that gave up its claim must have committed, removed or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    Answer,
    ConsumerBeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
)
from coopgroup.core.model.resource_set import Resource
from coopgroup.errors import DecodeError
from coopgroup.protocol import decode_subscription
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.world import Watcher
from coopgroup.simulator.world.calls import Call
from coopgroup.telemetry import (
    AssignmentReceived,
    CommitFailed,
    Envelope,
    MembershipLost,
    OffsetsCommitted,
    ProcessEnded,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
)

_Hold: TypeAlias = tuple[str, int]  # a process, and its number of losses and ends before


@define(eq=False)
class HandOvers:
    """Watches orderly stops and the commits that follow them."""

    simulation: Simulation
    transcript: Watcher | None = None
    _orderly: dict[Resource, _Hold] = field(factory=dict)
    _failed: set[Resource] = field(factory=set)
    _works: dict[Resource, _Hold] = field(factory=dict)
    # Resources from orderly stops that their last owner no longer claims.
    _unclaimed: set[Resource] = field(factory=set)
    # The member id of each process at its last orderly stop.
    _member_ids: dict[str, str] = field(factory=dict)
    # Number of losses and ends of each process. Earlier holds do not count after such an event.
    _ends: dict[str, int] = field(factory=dict)

    def recorded(self, envelope: Envelope) -> None:
        """Handle a new telemetry record."""
        if self.transcript is not None:
            self.transcript.recorded(envelope)
        match envelope.record:
            case AssignmentReceived(gained=gained) if self._orderly:
                self._check(envelope.client, gained)
            case ResourcesStarted(resources=resources):
                self._works |= dict.fromkeys(resources, self._hold(envelope.client))
                self._forget(resources)
            case ResourcesStopped():
                self._member_ids[envelope.client] = envelope.member
                self._stop(envelope.client, envelope.record)
            case MembershipLost() | ProcessEnded():  # before its next join could give anything up
                self._ends[envelope.client] = self._ends.get(envelope.client, 0) + 1
            case OffsetsCommitted(resources=resources) if self._failed:
                self._failed.difference_update(resources)
            case CommitFailed():
                self._fail(envelope.record)
            case _:
                pass

    def sent(self, call: Call) -> None:
        """Handle a sent request."""
        if self.transcript is not None:
            self.transcript.sent(call)
        if not self._orderly:
            return
        match call.send.request:
            case JoinGroupRequest(protocols=((_, metadata), *_)):
                index_min = self.simulation.brokers.index_min
                try:
                    said = decode_subscription(metadata, index_min=index_min)
                except DecodeError:  # a hostile process, which never works
                    return
                self._release(call.process.name, said.owned)
            case ConsumerBeatRequest(epoch=epoch, owned=owned) if epoch < 0 or owned is not None:
                names = self.simulation.brokers.names
                told = ResourceSet({names[topic_id]: on for topic_id, on in owned or ()})
                self._release(call.process.name, told)
            case LeaveGroupRequest():
                self._release(call.process.name, EMPTY)
            case _:
                pass

    def answered(self, call: Call, answer: Answer) -> None:
        """Handle an answer that has arrived."""
        if self.transcript is not None:
            self.transcript.answered(call, answer)

    def failed(self, call: Call) -> None:
        """Handle a call without an answer."""
        if self.transcript is not None:
            self.transcript.failed(call)

    def _stop(self, client: str, record: ResourcesStopped) -> None:
        """Expect a commit of the consumed resources, unless the member reported a failed commit."""
        hold = self._hold(client)
        worked = {one for one in record.resources if self._works.pop(one, None) == hold}
        done = worked - self._failed
        self._forget(record.resources)
        if record.reason is StopReason.REVOKED:
            self._orderly |= dict.fromkeys(sorted(done), hold)

    def _release(self, client: str, claimed: ResourceSet) -> None:
        hold = self._hold(client)
        self._unclaimed |= {
            one for one, of in self._orderly.items() if of == hold and one not in claimed
        }

    def _fail(self, record: CommitFailed) -> None:
        self._failed |= set(record.resources)
        # this error means that the member no longer owns them
        if record.error != "ILLEGAL_GENERATION":
            for resource in record.resources:
                self._orderly.pop(resource, None)

    def _forget(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            self._orderly.pop(resource, None)
            self._unclaimed.discard(resource)
            self._failed.discard(resource)

    def _hold(self, client: str) -> _Hold:
        return client, self._ends.get(client, 0)

    def _is_orderly(self, resource: Resource) -> bool:
        hold = self._orderly.get(resource)
        if hold is None or hold != self._hold(hold[0]):
            return False
        members = self.simulation.brokers.coordinator.group.seats
        return resource in self._unclaimed or self._member_ids[hold[0]] in members

    def _check(self, client: str, gained: ResourceSet) -> None:
        load = self.simulation.load
        handed = gained & load.resources
        numbers = load.numbers(handed)
        behind = np.floor(load.positions[numbers]) > load.committed[numbers]
        late = [resource for resource in handed.take(behind) if self._is_orderly(resource)]
        if late:
            names = ", ".join(f"{name}-{index}" for name, index in late)
            message = f"{client} gets {names}, of which work is not committed"
            self.simulation.world.object_to("hand-over", message)
