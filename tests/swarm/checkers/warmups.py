"""Check warm-ups: their limits, and that no working resource moves to a cold member too early.

The records of members show which warm-ups run, and what each member is warm for. A member can only
be warmer than its leader knows, so the leader's limits hold for the members as well. Two cases are
left out. A process that returns in time gets a stored assignment, and its leader does not know yet
that it is cold. A member that missed a round still runs warm-ups of an earlier round. Its leader
may have begun warm-ups before the member received them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.core.policies.warmth import Warmup
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MembershipLost,
    ProcessEnded,
    ProcessStarted,
    RoundDecided,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
    WarmupsChanged,
)
from tests.swarm.checkers.rounds import received_twice

_TOLERANCE_MS: Final = 20  # a decision is recorded a little after it was made
_KNOWN_AFTER: Final = 2  # assignments of a process, until its leader knows its warm set


@define
class _Warmups:
    """The warm-ups of one process.

    Attributes:
        warm: resources that the process is warm for, and does not own.
        begun_ms: when each warm-up began that was not moved or cancelled since.
        running: the cold ones, without those that failed.
        broken: warm ones that failed: the leader may have decided before.
        declined: those that failed and did not begin since; they move without a wait.
        ran_ms: how long the last warm-up ran that was cancelled.
        received: number of its assignments.
        generation: generation of the last one.
        member: member id at that time.
        missed_round: whether it missed a round since it was first in one.
    """

    warm: ResourceSet = EMPTY
    begun_ms: dict[Resource, int] = field(factory=dict)
    running: ResourceSet = EMPTY
    broken: ResourceSet = EMPTY
    declined: ResourceSet = EMPTY
    ran_ms: dict[Resource, int] = field(factory=dict)
    received: int = 0
    generation: int = -1
    member: str = ""
    missed_round: bool = False

    def take(self, at_ms: int, record: WarmupsChanged) -> None:
        self.broken |= record.failed & self.warm
        ended = record.moved | record.cancelled | record.failed
        self.warm = (self.warm | record.warm) - ended
        self.running = (self.running | record.begun) - self.warm - ended
        for resource in record.begun:
            self.begun_ms.setdefault(resource, at_ms)
        self.broken -= record.cancelled | record.warm
        self.declined = (self.declined | record.failed) - record.begun
        for resource in record.cancelled:
            self.ran_ms[resource] = at_ms - self.begun_ms.get(resource, at_ms)
        for resource in record.moved | record.cancelled:
            self.begun_ms.pop(resource, None)


@define
class WarmSets:
    """The warm sets of all living processes, read record by record.

    Attributes:
        ended: what ended memberships were warm for, by member id, with the generation of their last
            assignment. A round can still have them, until a later assignment of the same id.
        nameless: the same of processes that ended before they learned their member id.
        named: all member ids that processes learned.
    """

    warmups: dict[str, _Warmups] = field(factory=dict)
    ended: dict[str, tuple[int, ResourceSet]] = field(factory=dict)
    nameless: ResourceSet = EMPTY
    named: set[str] = field(factory=set)
    decided_ms: dict[int, int] = field(factory=dict)
    leading_ms: dict[str, int] = field(factory=dict)
    first_round: dict[str, int] = field(factory=dict)

    def take(self, envelope: Envelope) -> None:
        """Read the next record."""
        self.named.add(envelope.member)
        match envelope.record:
            case ProcessStarted() | ProcessEnded():
                self._end_membership(envelope)
                self.warmups.pop(envelope.client, None)
            case StateChanged(after="leaving" | "losing"):
                self._end_membership(envelope)
            case WarmupsChanged():
                begun_ms = self.decided_ms.get(envelope.generation, envelope.at_ms)
                self.of(envelope.client).take(begun_ms, envelope.record)
            case StateChanged(after="leading"):
                self.leading_ms[envelope.client] = envelope.at_ms  # its record follows later
            case RoundDecided(members=members):
                begun_ms = self.leading_ms.get(envelope.client, envelope.at_ms)
                self.decided_ms[envelope.generation] = begun_ms
                for member in members:
                    self.first_round.setdefault(member, envelope.generation)
            case AssignmentReceived():
                one = self.of(envelope.client)
                expected = one.generation + 1
                if not one.received:
                    expected = self.first_round.get(envelope.member, envelope.generation)
                one.missed_round |= envelope.generation != expected
                if envelope.generation > self.ended.get(envelope.member, (-1, EMPTY))[0]:
                    self.ended.pop(envelope.member, None)
                one.received += 1
                one.generation, one.member = envelope.generation, envelope.member
            case _:
                pass

    def _end_membership(self, envelope: Envelope) -> None:
        """Keep what the last join of a membership said; then its warm-ups are cancelled."""
        one = self.of(envelope.client)
        # A member that left has no id in its last records.
        member = envelope.member or one.member
        _, before = self.ended.get(member, (-1, EMPTY))
        self.ended[member] = (one.generation, before | one.warm)
        self.nameless |= EMPTY if member else one.warm

    def of(self, client: str) -> _Warmups:
        """Return the warm-ups of a process."""
        found = self.warmups.get(client)
        if found is None:
            found = self.warmups[client] = _Warmups()
        return found

    def everywhere(self, members: Iterable[str] = ()) -> ResourceSet:
        """Return the resources for which a leader may count some process as warm.

        A warm-up that failed after the last join counts: the leader hears of it with the next one.
        """
        sets = [one.warm | one.broken for one in self.warmups.values() if one.warm or one.broken]
        sets += [self.ended[member][1] for member in members if member in self.ended]
        if any(member not in self.named for member in members):
            sets.append(self.nameless)
        return ResourceSet.union_all(sets)


@define
class _Rounds:
    """The last two rounds, as their leaders recorded them.

    Attributes:
        asked: what the round before these two revoked.
        unsound: generations of rounds whose leader did not read or decide everything.
        is_heard: whether the last leader received its own round.
        has_unheard: whether there was a round that its leader did not receive. Warm-ups of such a
            round run for the leader before any member hears of them.
        received: what each member received last, by member id.
        gave_up: what each member was last told to stop, by member id.
        twice: resources that two members of the last round have received; see `check_ration`.
        twice_before: the same of the round before.
    """

    last: Envelope | None = None
    before: Envelope | None = None
    asked: ResourceSet = EMPTY
    unsound: set[int] = field(factory=set)
    is_heard: bool = True
    has_unheard: bool = False
    received: dict[str, ResourceSet] = field(factory=dict)
    gave_up: dict[str, ResourceSet] = field(factory=dict)
    twice: ResourceSet = EMPTY
    twice_before: ResourceSet = EMPTY

    def take(self, envelope: Envelope) -> None:
        if isinstance(envelope.record, RoundDecided):
            self.has_unheard |= not self.is_heard
            self.is_heard = False
            if self.before is not None and isinstance(self.before.record, RoundDecided):
                self.asked = self.before.record.revoked
            self.before, self.last = self.last, envelope
            twice = received_twice(self.received, envelope.record.members)
            self.twice_before, self.twice = self.twice, twice
        elif isinstance(envelope.record, AssignmentReceived):
            self.received[envelope.member] = envelope.record.gained | envelope.record.kept
            self.gave_up[envelope.member] = envelope.record.revoked
            self.is_heard |= envelope.record.leader
        elif isinstance(envelope.record, MembershipLost) and self.last is not None:
            # Lost resources go to any member, in the next round or in the one that is under way.
            self.unsound |= {self.last.generation, self.last.generation + 1}
        elif isinstance(envelope.record, RoundRefused | SubscriptionUnreadable):
            self.unsound.add(envelope.generation)

    def planned(self, generation: int) -> ResourceSet:
        """Return the resources that the last two rounds moved from owners that could keep them.

        Both rounds need the same leader and members, and must have read all of them. Resources that
        an earlier round revoked are left out, because their target may have changed since.
        """
        if self.last is None or self.before is None or self.has_unheard:
            return EMPTY
        if self.last.generation != generation:
            return EMPTY
        first, second = self.before.record, self.last.record
        if not isinstance(first, RoundDecided) or not isinstance(second, RoundDecided):
            return EMPTY
        if (
            first.members != second.members
            or self.before.client != self.last.client
            or self.before.generation != generation - 1
            or self.unsound & {generation, generation - 1}
        ):
            return EMPTY
        moved = first.revoked & first.waiting & second.granted
        return moved - first.contested - self.asked - self.twice_before


def check_warmups(
    telemetry: Sequence[Envelope], option: Warmup, *, with_moves: bool, with_limits: bool = True
) -> Iterator[Violation]:
    """Yield too many running warm-ups, and planned moves to members that are cold too early.

    Args:
        telemetry: records of the run.
        option: options of the policy.
        with_moves: whether all members subscribe to the same topics; only then the records show
            which moves were planned.
        with_limits: whether to check the number of warm-ups. If a claim splits a bundle, the owner
            of a part gets the rest of the bundle as a warm-up, which the leader does not count. So
            does an owner that gives up a bundle to which a new partition was added.
    """
    sets, rounds = WarmSets(), _Rounds()
    left: dict[str, ResourceSet] = {}
    for envelope in telemetry:
        record = envelope.record
        sets.take(envelope)
        if with_limits and isinstance(record, RoundDecided) and rounds.last is not None:
            yield from _too_many(envelope, sets, rounds.last.generation, option)
        if isinstance(record, AssignmentReceived) and with_moves:
            # A resource may return to the member that gave it up, because its new owner leaves.
            back = rounds.gave_up.get(envelope.member, EMPTY)
            planned = record.gained & rounds.planned(envelope.generation) - back
            yield from _too_cold(envelope, sets.of(envelope.client), planned, option)
        if isinstance(record, AssignmentReceived):
            running = sets.of(envelope.client).running
            left[envelope.client] = (left.get(envelope.client, EMPTY) & running) | record.revoked
        rounds.take(envelope)
        if with_limits and isinstance(record, WarmupsChanged):
            one = sets.of(envelope.client)
            count = len(one.running - left.get(envelope.client, EMPTY))
            if one.received >= _KNOWN_AFTER and count > option.per_member:
                yield _violation(
                    envelope, f"{envelope.client} runs {count}, more than {option.per_member}"
                )


def _too_many(
    envelope: Envelope, sets: WarmSets, generation: int, option: Warmup
) -> Iterator[Violation]:
    count = sum(
        len(one.running)
        for one in sets.warmups.values()
        if one.generation == generation and one.received >= _KNOWN_AFTER
    )
    if count > option.max_concurrent:
        yield _violation(
            envelope, f"{count} run in generation {generation}, more than {option.max_concurrent}"
        )


def _too_cold(
    envelope: Envelope, one: _Warmups, planned: ResourceSet, option: Warmup
) -> Iterator[Violation]:
    if one.missed_round or one.received < _KNOWN_AFTER:
        return
    due_ms = option.timeout_ms - option.timeout_ms // 20 - _TOLERANCE_MS
    for resource in planned - one.warm - one.broken:
        ran_ms = envelope.at_ms - one.begun_ms.get(resource, envelope.at_ms)
        ran_ms = max(ran_ms, one.ran_ms.get(resource, 0))
        if ran_ms < due_ms and resource not in one.declined:
            yield _violation(envelope, f"{resource} moves to {envelope.client}, which is cold")


def _violation(envelope: Envelope, message: str) -> Violation:
    return Violation(checker="warmups", at_ms=envelope.at_ms, message=message)
