"""Who holds what, replayed from the telemetry: what the other checkers stand on.

A process *holds* a resource from the moment in which its member learns that it was given it, until
the application has given it up, lost it or died; a process that stands still holds nothing. That is
more than to work on it: before the work is restored from what the last owner left, and after it the
offsets are committed. Two that hold one resource at one instant can harm each other.

Rules of this file: times are half-open, from the begin up to but not including the end, so what
begins and ends in one millisecond never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from attrs import define, field

from coopgroup.model import EMPTY, ResourceSet
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coopgroup.model.resource_set import Resource
    from coopgroup.telemetry import Envelope

__all__ = ["Holding", "check_pairs", "check_single_owner", "holdings"]

_FOR_EVER_MS: Final = 1 << 62


class Holding(NamedTuple):
    """A stretch of time in which a process held a resource."""

    resource: Resource
    start_ms: int
    end_ms: int
    client: str


def holdings(telemetry: Sequence[Envelope]) -> list[Holding]:
    """Every stretch, ascending by resource and start; those at the end go on for ever."""
    hands: dict[str, _Hands] = {}
    found: list[Holding] = []
    for envelope in telemetry:
        own = hands.get(envelope.client)
        if own is None:
            own = hands[envelope.client] = _Hands(envelope.client, found)
        own.take(envelope)
    for own in hands.values():
        own.end(tuple(own.since), _FOR_EVER_MS)
    return sorted(found)


@define
class _Hands:
    """What a process holds, and since when.

    Attributes:
        client: the process.
        found: stretches that have ended.
        since: begin of those that have not.
        kept: what it held when it came to a stand.
    """

    client: str
    found: list[Holding]
    since: dict[Resource, int] = field(factory=dict)
    kept: tuple[Resource, ...] = ()

    def take(self, envelope: Envelope) -> None:
        """Take one record."""
        at_ms, record = envelope.at_ms, envelope.record
        match record:
            case AssignmentReceived():
                self.since.update(dict.fromkeys(record.gained, at_ms))
            case ResourcesStopped():
                self.end(record.resources, at_ms)
                if self.kept:  # it stands still, but for what it gives up
                    self.kept = tuple(one for one in self.kept if one not in record.resources)
            case ProcessPaused():
                self.kept = tuple(self.since)
                self.end(self.kept, at_ms)
            case ProcessResumed():
                self.since = dict.fromkeys(self.kept, at_ms)
            case ProcessStarted() | ProcessEnded():
                self.end(tuple(self.since), at_ms)
                self.kept = ()
            case _:
                pass

    def end(self, resources: Iterable[Resource], at_ms: int) -> None:
        """End the stretches of some resources."""
        for resource in resources:
            start_ms = self.since.pop(resource, at_ms)
            if start_ms < at_ms:
                self.found.append(Holding(resource, start_ms, at_ms, self.client))


def check_single_owner(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """No two processes hold one resource at the same instant."""
    last: Holding | None = None
    for holding in holdings(telemetry):
        if last is not None and last.resource == holding.resource:
            if holding.start_ms < last.end_ms:
                name, index = holding.resource
                yield Violation(
                    checker="single owner",
                    at_ms=holding.start_ms,
                    message=f"{name}-{index} is with {last.client} and {holding.client}",
                )
            if holding.end_ms < last.end_ms:
                continue
        last = holding


@define
class _Life:
    """What one life of a process was told, and did.

    Attributes:
        stop_max_ms: after which what has not stopped is lost.
        held: given, and not given up.
        working: what it works on.
        told: what it was told to stop.
        lost: with its membership.
        objections: what was wrong with the last record.
    """

    stop_max_ms: int
    held: ResourceSet = EMPTY
    working: ResourceSet = EMPTY
    told: ResourceSet = EMPTY
    lost: ResourceSet = EMPTY
    objections: list[str] = field(factory=list)

    def take(self, envelope: Envelope) -> None:
        """Take one record of the life."""
        record = envelope.record
        match record:
            case AssignmentReceived():
                if record.gained:
                    self._gain(record.gained)
                if record.revoked:
                    self.told |= record.revoked
            case MembershipLost():
                self.lost |= record.resources
            case ResourcesStarted():
                self._must_be_empty(record.resources - self.held, "works on what it does not hold")
                if self.working:
                    twice = record.resources & self.working
                    self._must_be_empty(twice, "begins twice to work on")
                self.working |= record.resources
            case ResourcesStopped():
                self._stop(record)
            case _:
                pass

    def _gain(self, gained: ResourceSet) -> None:
        if self.held:
            self._must_be_empty(gained & self.held, "is given what it holds")
        self.held |= gained
        if self.lost:
            self.lost -= gained
        if self.told:
            self.told -= gained

    def _stop(self, record: ResourcesStopped) -> None:
        self._must_be_empty(record.resources - self.held, "stops what it does not hold")
        if record.reason is StopReason.REVOKED:
            self._must_be_empty(record.resources - self.told, "stops, and was not told to,")
        if record.reason is StopReason.LOST:
            lost = self.lost
            if record.duration_ms >= self.stop_max_ms:
                lost = lost | self.told  # what takes too long to stop is lost, too
            self._must_be_empty(record.resources - lost, "loses, and has not lost,")
        self.held -= record.resources
        self.working -= record.resources
        if self.told:
            self.told -= record.resources

    def _must_be_empty(self, resources: ResourceSet, words: str) -> None:
        if resources:
            self.objections.append(f"{words} {resources.to_dict()}")


def check_pairs(telemetry: Sequence[Envelope], *, stop_max_ms: int) -> Iterator[Violation]:
    """Assigned, worked on, and then revoked or lost or closed: each in its turn, each once.

    What nobody told a member to stop, and what it did not lose, it never stops: that is how a
    retained resource is never paused. And what it was only told to stop it stops and commits; it
    may not call it lost before its time is over.

    Args:
        telemetry: of the run.
        stop_max_ms: after which what has not stopped is lost; the rebalance time-out.
    """
    lives: dict[str, _Life] = {}
    for envelope in telemetry:
        if isinstance(envelope.record, ProcessStarted):
            lives[envelope.client] = _Life(stop_max_ms=stop_max_ms)
        life = lives.get(envelope.client)
        if life is None:
            continue
        life.take(envelope)
        for objection in life.objections:
            yield Violation(
                checker="pairs", at_ms=envelope.at_ms, message=f"{envelope.client} {objection}"
            )
        life.objections.clear()
