"""Replay from the telemetry which process holds which resource. Other checkers build on this.

A process begins to *hold* a resource when its member receives the assignment. It stops holding the
resource when the application has given it up, lost it or died. A paused process holds no
resource. Holding includes more than the work itself: restoring state comes before the work, and
committing offsets comes after it. Two processes that hold one resource can harm each other.

The application reports no stop of work that never began. Such a resource is held until the member
must revoke it, loses its membership or leaves. If its work begins nevertheless, it is still held.

Times are half-open: the start is included, the end is not. A holding that begins and ends in the
same millisecond does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MembershipLost,
    OffsetsCommitted,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    Record,
    ResourcesStarted,
    ResourcesStopped,
    StateChanged,
    StopReason,
)

_FOR_EVER_MS: Final = 1 << 62


def _is_of_others(record: Record) -> bool:
    """Return whether a record tells nothing of holdings, as most do: the checks skip it first."""
    if isinstance(record, StateChanged):
        return record.after not in {"revoking", "leaving"}
    return isinstance(record, OffsetsCommitted)


def _gives_up_all(record: StateChanged) -> bool:
    """Return whether a member revokes its owned resources by itself, without an assignment."""
    return record.after == "revoking" and record.before != "syncing"


class Holding(NamedTuple):
    """The time from start to end of a process's hold on a resource."""

    resource: Resource
    start_ms: int
    end_ms: int
    client: str


def holdings(telemetry: Sequence[Envelope]) -> list[Holding]:
    """Return all periods by resource and start; a period that is still open never ends."""
    hands: dict[str, _Hands] = {}
    found: list[Holding] = []
    for envelope in telemetry:
        if _is_of_others(envelope.record):
            continue
        own = hands.get(envelope.client)
        if own is None:
            own = hands[envelope.client] = _Hands(envelope.client, found)
        own.take(envelope)
    for own in hands.values():
        own.end(tuple(own.since), _FOR_EVER_MS)
    return sorted(found)


@define
class _Hands:
    """The resources that a process holds, with the start of each period.

    Attributes:
        works: the resources whose work has begun.
        told_ms: when the member had to revoke resources, or when they stopped as changed after it.
        kept: resources that the process held when it was paused.
    """

    client: str
    found: list[Holding]
    since: dict[Resource, int] = field(factory=dict)
    works: set[Resource] = field(factory=set)
    told_ms: dict[Resource, int] = field(factory=dict)
    kept: tuple[Resource, ...] = ()

    def take(self, envelope: Envelope) -> None:
        at_ms, record = envelope.at_ms, envelope.record
        match record:
            case AssignmentReceived():
                self._tell(record.revoked, at_ms)
                self.end(self._given_up() & set(record.gained), at_ms)
                self.since.update(dict.fromkeys(record.gained, at_ms))
            case StateChanged() if _gives_up_all(record):
                self._tell(tuple(self.since), at_ms)
            case StateChanged(after="leaving") | MembershipLost():
                self._end_idle(at_ms)
            case ResourcesStarted():
                self.works.update(record.resources)
            case ResourcesStopped():
                self._stop(record, at_ms)
            case ProcessPaused():
                self._pause(at_ms)
            case ProcessResumed():
                self.since = dict.fromkeys(self.kept, at_ms)
            case ProcessStarted() | ProcessEnded():
                self.end(tuple(self.since), at_ms)
                self.works.clear()
                self.told_ms.clear()
                self.kept = ()
            case _:
                pass

    def _stop(self, record: ResourcesStopped, at_ms: int) -> None:
        if record.reason is StopReason.CHANGED:
            # it stays here, and starts with its new definition, unless it is revoked
            self.works.difference_update(record.resources)
            self.told_ms |= {one: at_ms for one in record.resources if one in self.told_ms}
            return
        self.end(record.resources, at_ms)
        if self.kept:  # paused, except for stopping these
            self.kept = tuple(one for one in self.kept if one not in record.resources)

    def _pause(self, at_ms: int) -> None:
        self.end(self._given_up(), at_ms)
        self.kept = tuple(self.since)
        for resource in self.kept:
            self._found(resource, self.since.pop(resource), at_ms)

    def end(self, resources: Iterable[Resource], at_ms: int) -> None:
        for resource in resources:
            told_ms = self.told_ms.pop(resource, at_ms)
            end_ms = at_ms if resource in self.works else told_ms
            self._found(resource, self.since.pop(resource, at_ms), end_ms)
            self.works.discard(resource)

    def _found(self, resource: Resource, start_ms: int, end_ms: int) -> None:
        if start_ms < end_ms:
            self.found.append(Holding(resource, start_ms, end_ms, self.client))

    def _tell(self, resources: Iterable[Resource], at_ms: int) -> None:
        for resource in resources:
            self.told_ms.setdefault(resource, at_ms)

    def _given_up(self) -> set[Resource]:
        """Return the revoked resources without work: no record tells their end."""
        return self.told_ms.keys() - self.works

    def _end_idle(self, at_ms: int) -> None:
        self.end([one for one in self.since if one not in self.works], at_ms)
        self.kept = tuple(one for one in self.kept if one in self.works)


def check_single_owner(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """Yield each instant at which two processes hold the same resource."""
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
    """The assignments and actions in one life of a process.

    Attributes:
        owned: assigned, and not stopped; without what ended before its work began. A revoked
            resource whose work has not begun stays until it is assigned again.
        dropped: ended as lost, although the member has not reported a loss. It must report it,
            leave, or end.
        dropped_at_ms: when the last of them ended.
        paused_until_ms: end of the last pause; infinite while it lasts.
    """

    stop_max_ms: int
    owned: ResourceSet = EMPTY
    working: ResourceSet = EMPTY
    told: ResourceSet = EMPTY
    lost: ResourceSet = EMPTY
    dropped: ResourceSet = EMPTY
    dropped_at_ms: int = 0
    paused_until_ms: float = -1
    objections: list[str] = field(factory=list)

    def take(self, envelope: Envelope) -> None:
        record = envelope.record
        match record:
            case AssignmentReceived():
                if record.gained:
                    self._gain(record.gained)
                self.told |= record.revoked
            case StateChanged() if _gives_up_all(record):
                self.told |= self.owned
            case StateChanged(after="leaving"):
                self.owned &= self.working
                self.dropped = EMPTY
            case MembershipLost():
                self.lost |= record.resources
                self.dropped -= record.resources
                self.owned &= self.working
            case ProcessPaused() | ProcessResumed() | ProcessEnded():
                is_paused = isinstance(record, ProcessPaused)
                self.paused_until_ms = math.inf if is_paused else envelope.at_ms
                if isinstance(record, ProcessEnded):
                    self.dropped = EMPTY
            case ResourcesStarted():
                self._start(record.resources)
            case ResourcesStopped():
                self._stop(record, envelope.at_ms)
            case _:
                pass

    def must_not_go_on(self) -> None:
        """Object if work ended as lost, and the member did not report a loss, leave or end."""
        if self.dropped:
            words = f"goes on without {self.dropped.to_dict()}, which it has not lost"
            self.objections.append(words)
            self.dropped = EMPTY

    def _start(self, started: ResourceSet) -> None:
        self.must_not_go_on()
        self._must_be_empty(started - self.owned, "works on what it does not hold")
        if self.working:
            self._must_be_empty(started & self.working, "begins twice to work on")
        self.working |= started

    def _gain(self, gained: ResourceSet) -> None:
        if self.owned:
            idle = self.told - self.working if self.told else EMPTY
            self._must_be_empty((gained & self.owned) - idle, "is given what it holds")
        self.owned |= gained
        if self.lost:
            self.lost -= gained
        if self.told:
            self.told -= gained

    def _stop(self, record: ResourcesStopped, at_ms: int) -> None:
        if record.reason is StopReason.CHANGED:
            self.working -= record.resources
            return
        self._must_be_empty(record.resources - self.owned, "stops what it does not hold")
        if record.reason is StopReason.REVOKED:
            self.must_not_go_on()
            self._must_be_empty(record.resources - self.told, "stops, and was not told to,")
        if record.reason is StopReason.LOST:
            self._lose(record.resources, at_ms, record.duration_ms)
        self.owned -= record.resources
        self.working -= record.resources
        if self.told:
            self.told -= record.resources

    def _lose(self, resources: ResourceSet, at_ms: int, duration_ms: int) -> None:
        """Judge work that ended as lost.

        A revoked resource that takes too long to stop is lost. A member that closes leaves behind
        what takes too long to stop, and all its work if its lease is over. A member whose lease is
        over is paused, and its work may begin to end before it reports the loss.
        """
        is_late = duration_ms >= self.stop_max_ms
        begins_in_pause = at_ms - duration_ms <= self.paused_until_ms
        unexplained = resources - (self.lost | self.told if is_late else self.lost)
        if unexplained and (is_late or begins_in_pause):
            self.dropped |= unexplained
            self.dropped_at_ms = at_ms
        else:
            self._must_be_empty(unexplained, "loses, and has not lost,")

    def _must_be_empty(self, resources: ResourceSet, words: str) -> None:
        if resources:
            self.objections.append(f"{words} {resources.to_dict()}")


def check_pairs(telemetry: Sequence[Envelope], *, stop_max_ms: int) -> Iterator[Violation]:
    """Yield violations of the order: assigned, consumed, then revoked, lost or closed, each once.

    A member never stops a resource that it need not revoke and did not lose. This proves
    that retained resources are never paused. A member that must revoke a resource stops it and
    commits its offsets. It may report the resource as lost only after the rebalance timeout. So may
    a member that closes. It may also report lost resources while it is paused. In both cases it
    begins no other work until it has reported a loss of its membership, and otherwise it ends.
    """
    lives: dict[str, _Life] = {}
    for envelope in telemetry:
        if _is_of_others(envelope.record):
            continue
        if isinstance(envelope.record, ProcessStarted):
            lives[envelope.client] = _Life(stop_max_ms=stop_max_ms)
        life = lives.get(envelope.client)
        if life is None:
            continue
        life.take(envelope)
        yield from _objections(envelope.client, life, envelope.at_ms)
    end_ms = telemetry[-1].at_ms if telemetry else 0
    for client, life in lives.items():
        if end_ms > life.dropped_at_ms + stop_max_ms:  # a close takes no longer
            life.must_not_go_on()
            yield from _objections(client, life, life.dropped_at_ms)


def _objections(client: str, life: _Life, at_ms: int) -> Iterator[Violation]:
    for objection in life.objections:
        yield Violation(checker="pairs", at_ms=at_ms, message=f"{client} {objection}")
    life.objections.clear()
