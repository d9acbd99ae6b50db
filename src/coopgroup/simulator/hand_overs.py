"""`HandOvers`: whether work is committed before another process may begin with it.

Positions stand in no record, so this looks while the run goes on: it takes the place of the
transcript, through which the world tells everything, and passes it on to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field

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
    from coopgroup.simulator.network import Call
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.transcript import Transcript
    from coopgroup.telemetry import Envelope

__all__ = ["HandOvers"]


@define(eq=False)
class HandOvers:
    """Watches what is given up in an orderly way, and what becomes of it.

    Attributes:
        simulation: which has the positions.
        transcript: to pass everything on to; None for nobody.
    """

    simulation: Simulation
    transcript: Transcript | None = None
    _orderly: dict[Resource, str] = field(factory=dict)
    _failed: set[Resource] = field(factory=set)

    def recorded(self, envelope: Envelope) -> None:
        """Something was written down."""
        if self.transcript is not None:
            self.transcript.recorded(envelope)
        match envelope.record:
            case AssignmentReceived(gained=gained) if self._orderly:
                self._check(envelope.client, gained)
            case ResourcesStopped(resources=resources, reason=StopReason.REVOKED):
                done = set(resources) - self._failed
                self._orderly |= dict.fromkeys(sorted(done), envelope.client)
            case ResourcesStopped(resources=resources) | ResourcesStarted(resources=resources):
                self._forget(resources)
                self._failed.difference_update(resources)
            case MembershipLost() | ProcessEnded():  # before its join could give anything up
                mine = [one for one, client in self._orderly.items() if client == envelope.client]
                self._forget(mine)
            case OffsetsCommitted(resources=resources):
                self._failed.difference_update(resources)
            case CommitFailed(resources=resources, error=error):
                self._failed |= set(resources)
                if error != "ILLEGAL_GENERATION":  # which is said of what is not owned any more
                    self._forget(resources)
            case _:
                pass

    def sent(self, call: Call) -> None:
        """A request was sent."""
        if self.transcript is not None:
            self.transcript.sent(call)

    def answered(self, call: Call, answer: Answer) -> None:
        """An answer arrived."""
        if self.transcript is not None:
            self.transcript.answered(call, answer)

    def failed(self, call: Call) -> None:
        """No answer will come."""
        if self.transcript is not None:
            self.transcript.failed(call)

    def _forget(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            self._orderly.pop(resource, None)

    def _check(self, client: str, gained: ResourceSet) -> None:
        load = self.simulation.load
        handed = gained & load.resources
        numbers = load.numbers(handed)
        behind = np.floor(load.positions[numbers]) > load.committed[numbers]
        late = [resource for resource in handed.take(behind) if resource in self._orderly]
        if late:
            names = ", ".join(f"{name}-{index}" for name, index in late)
            message = f"{client} gets {names}, of which work is not committed"
            self.simulation.world.object_to("hand-over", message)
