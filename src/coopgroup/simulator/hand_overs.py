"""`HandOvers`: whether work is committed before another process may begin with it.

Positions stand in no record, so this looks while the run goes on: it takes the place of the
transcript, through which the world tells everything, and passes it on to one.

A member commits what it revoked before it sends the join that gives the resources up. It cannot do
so when the group coordinator drops it first, because it was paused for longer than its session. It
learns of the loss only when it goes on, and so its telemetry names the loss too late. The
coordinator therefore decides here: no commit is expected of a member that it dropped while the
member still claimed the resource. A member that gave up its claim has to have committed, dropped or
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from attrs import define, field

from coopgroup.model import EMPTY
from coopgroup.model.group_api import JoinGroupRequest, LeaveGroupRequest
from coopgroup.protocol import decode_subscription
from coopgroup.telemetry import (
    AssignmentReceived,
    CommitFailed,
    MembershipLost,
    OffsetsCommitted,
    ProcessEnded,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopgroup.model import ResourceSet
    from coopgroup.model.group_api import Answer
    from coopgroup.model.resource_set import Resource
    from coopgroup.simulator.calls import Call
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.transcript import Transcript
    from coopgroup.telemetry import Envelope

__all__ = ["HandOvers"]

_Hold: TypeAlias = tuple[str, int]  # a process, and how often it had lost all before


@define(eq=False)
class HandOvers:
    """Watches what is given up in an orderly way, and what becomes of it.

    Attributes:
        simulation: which has the positions.
        transcript: to pass everything on to; None for nobody.
    """

    simulation: Simulation
    transcript: Transcript | None = None
    _orderly: dict[Resource, _Hold] = field(factory=dict)
    _failed: set[Resource] = field(factory=set)
    _works: dict[Resource, _Hold] = field(factory=dict)
    # Part of what was stopped in an orderly way that its last owner no longer claims.
    _unclaimed: set[Resource] = field(factory=set)
    # The member id of each process at its last orderly stop.
    _member_ids: dict[str, str] = field(factory=dict)
    # How often a process lost all or ended: what it had before that means nothing any more.
    _ends: dict[str, int] = field(factory=dict)

    def recorded(self, envelope: Envelope) -> None:
        """Something was written down."""
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
            case MembershipLost() | ProcessEnded():  # before its join could give anything up
                self._ends[envelope.client] = self._ends.get(envelope.client, 0) + 1
            case OffsetsCommitted(resources=resources) if self._failed:
                self._failed.difference_update(resources)
            case CommitFailed():
                self._fail(envelope.record)
            case _:
                pass

    def sent(self, call: Call) -> None:
        """A request was sent."""
        if self.transcript is not None:
            self.transcript.sent(call)
        if not self._orderly:
            return
        match call.send.request:
            case JoinGroupRequest(protocols=((_, metadata), *_)):
                index_min = self.simulation.brokers.index_min
                said = decode_subscription(metadata, index_min=index_min)
                self._release(call.process.name, said.owned)
            case LeaveGroupRequest():
                self._release(call.process.name, EMPTY)
            case _:
                pass

    def answered(self, call: Call, answer: Answer) -> None:
        """An answer arrived."""
        if self.transcript is not None:
            self.transcript.answered(call, answer)

    def failed(self, call: Call) -> None:
        """No answer will come."""
        if self.transcript is not None:
            self.transcript.failed(call)

    def _stop(self, client: str, record: ResourcesStopped) -> None:
        """What it had worked on is to be committed, unless that was said to have failed."""
        hold = self._hold(client)
        done = {one for one in record.resources if self._works.get(one) == hold} - self._failed
        self._forget(record.resources)
        if record.reason is StopReason.REVOKED:
            self._orderly |= dict.fromkeys(sorted(done), hold)

    def _release(self, client: str, claimed: ResourceSet) -> None:
        """Note what a request gives up."""
        hold = self._hold(client)
        self._unclaimed |= {
            one for one, of in self._orderly.items() if of == hold and one not in claimed
        }

    def _fail(self, record: CommitFailed) -> None:
        self._failed |= set(record.resources)
        if record.error != "ILLEGAL_GENERATION":  # which is said of what is not owned any more
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
