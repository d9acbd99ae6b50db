"""Stand-ins for members that metrics watch."""

from __future__ import annotations

from attrs import define, field

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.health.value import GroupLoad, Health
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.telemetry import AssignmentReceived, Envelope, Record, RoundDecided

__all__ = ["HEALTH", "ROUND", "GivenProbe", "told"]

HEALTH = Health(
    group_id="g",
    client_id="c",
    generation=1,
    state="stable",
    is_joined=True,
    owned=ResourceSet({"t": [0, 1]}),
    lease_s=30.0,
    lags={("t", 0): 5, ("t", 1): 7},
)
ROUND = RoundDecided(policy="simple", assignor="sticky", members=("a", "b"))


@define(eq=False, weakref_slot=True)
class GivenProbe:
    """A member with the health that a test gives."""

    health: Health = HEALTH
    meter: CommitMeter = field(factory=CommitMeter)
    group_load: GroupLoad | None = None

    def read(self) -> Health:
        return self.health

    def commit_meter(self) -> CommitMeter | None:
        return self.meter

    def load(self) -> GroupLoad | None:
        return self.group_load


def told(record: Record | None = None) -> Envelope:
    record = AssignmentReceived(leader=False) if record is None else record
    return Envelope(at_ms=1_000, group="g", member="m", generation=1, record=record)
