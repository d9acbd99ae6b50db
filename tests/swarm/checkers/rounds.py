"""Check the decisions of a policy: moves per round, and delays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    ResourcesStarted,
    RoundDecided,
)
from tests.swarm.checkers.bundles import of_bundles


def received_twice(received: Mapping[str, ResourceSet], members: Iterable[str]) -> ResourceSet:
    """Return the resources that two members of a round have received, by member id."""
    parts = [received.get(member, EMPTY) for member in members]
    if len(ResourceSet.union_all(parts)) == sum(map(len, parts)):  # in nearly all rounds
        return EMPTY
    once = twice = EMPTY
    for part in parts:
        twice |= once & part
        once |= part
    return twice


def check_ration(
    telemetry: Sequence[Envelope],
    max_moves_per_round: int,
    co_partition: Sequence[Sequence[str]] = (),
) -> Iterator[Violation]:
    """Yield rounds that begin to take more resources from rightful owners than permitted.

    A resource moves if the leader reports it as waiting for its present owner. Deleted resources
    and contested claims are not moves. Resources that the last round already revoked do not count
    again: their owner did not receive that assignment, or is still stopping them.

    A late join can claim a resource that another member of the round has received meanwhile. The
    leader revokes the older claim, and may postpone the move from the owner. So resources that two
    members of the round have received do not count. A policy that takes too much also does so
    without such a join.
    """
    asked = EMPTY
    received: dict[str, ResourceSet] = {}
    for envelope in telemetry:
        record = envelope.record
        if isinstance(record, AssignmentReceived):
            received[envelope.member] = record.gained | record.kept
        if not isinstance(record, RoundDecided):
            continue
        moves = (record.revoked & record.waiting) - record.contested - asked
        moves -= received_twice(received, record.members)
        moves = of_bundles(moves, co_partition)
        asked = record.revoked
        if len(moves) > max_moves_per_round:
            yield Violation(
                checker="ration",
                at_ms=envelope.at_ms,
                message=f"generation {envelope.generation} moves more than {max_moves_per_round}: "
                f"{moves.to_dict()}",
            )


def check_delays(
    telemetry: Sequence[Envelope], delay_ms: int, slack_ms: int, calm_from_ms: int, end_ms: int
) -> Iterator[Violation]:
    """Yield lost resources that wait longer than the delay plus `slack_ms`."""
    since: dict[Resource, int] = {}
    ended: list[tuple[Resource, int, int]] = []
    for envelope in telemetry:
        record = envelope.record
        over: Iterable[Resource] = ()
        if isinstance(record, RoundDecided):
            waiting = set(record.lost)
            over = [resource for resource in since if resource not in waiting]
            for resource in record.lost:
                since.setdefault(resource, envelope.at_ms)
        elif isinstance(record, ResourcesStarted):
            over = [resource for resource in record.resources if resource in since]
        ended += [(resource, since.pop(resource), envelope.at_ms) for resource in over]
    ended += [(resource, lost_ms, end_ms) for resource, lost_ms in since.items()]
    for resource, lost_ms, until_ms in sorted(ended):
        due_ms = max(lost_ms, calm_from_ms) + delay_ms + slack_ms
        if due_ms < until_ms:
            yield Violation(
                checker="delays",
                at_ms=due_ms,
                message=f"{resource.name}-{resource.index}, lost at {lost_ms}, still waits",
            )
