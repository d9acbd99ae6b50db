"""Check how a leader treats lost resources from round to round.

Two rounds are compared only if the same process led both and could read all members. Such a leader
knew everything that the telemetry shows, so an error is the fault of its policy. If the leader
changes, `check_heard_delays` compares the new leader with the delays that members had heard.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen

from coopgroup.model import EMPTY, ResourceSet
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    ProcessEnded,
    ProcessStarted,
    RoundLed,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.model.resource_set import Resource
    from coopgroup.telemetry import Envelope

__all__ = ["Waits", "check_heard_delays", "check_losses"]

_UNKNOWN: Final = "?"
_UNSOUND: Final = (RoundRefused, SubscriptionUnreadable)


@frozen(kw_only=True)
class Waits:
    """How long a policy waits.

    Attributes:
        delay_ms: for the owner of a lost resource.
        interval_ms: from one round with moves to the next, 0 for no pause.
        tolerance_ms: permitted deviation of a time.
    """

    delay_ms: int
    interval_ms: int = 0
    tolerance_ms: int = 5


@frozen(kw_only=True)
class _Round:
    """A round as its leader recorded it.

    Attributes:
        at_ms: time of the decision; the record follows a little later.
        client: process of the leader, and the number of its membership.
        generation: of the round.
        led: the decision.
        held: resources after the round by member id, for members that reported them.
        kept: the part of `held` that the member had claimed in the round.
        sound: whether the leader could read all members, and decided the round.
        leader_heard: whether the leader received its own decision.
    """

    at_ms: int
    client: str
    generation: int
    led: RoundLed
    sound: bool
    held: dict[str, ResourceSet] = field(factory=dict)
    kept: dict[str, ResourceSet] = field(factory=dict)
    leader_heard: bool = False


def check_losses(telemetry: Sequence[Envelope], waits: Waits) -> Iterator[Violation]:
    """Yield losses that wait too short, too long, or for the wrong member.

    Args:
        telemetry: of the run.
        waits: of the policy.
    """
    identities, topics = _identities(telemetry)
    since: dict[Resource, tuple[int, str]] = {}
    moved_ms: int | None = None
    before: _Round | None = None
    for after in _rounds(telemetry):
        follows = before is not None and _follows(before, after)
        if before is not None and follows and before.sound and after.sound:
            step = _Step(
                before=before,
                after=after,
                identities=identities,
                topics=topics,
                since=since,
                waits=waits,
            )
            for message in step.objections():
                yield Violation(checker="losses", at_ms=after.at_ms, message=message)
            since = step.since_now()
        else:
            lost = after.led.lost if after.sound else EMPTY
            since = dict.fromkeys(lost, (after.at_ms, _UNKNOWN))
        # An unreadable member hides losses, but no moves. A resource that the last round revoked
        # and that is still being stopped is not a second move. The interval since that round
        # continues.
        last = before.led if before is not None and follows else None
        moved_ms = moved_ms if follows else None
        if _moves(last, after.led):
            for message in _hasty(after, moved_ms, waits):
                yield Violation(checker="losses", at_ms=after.at_ms, message=message)
            moved_ms = after.at_ms
        before = after


def check_heard_delays(telemetry: Sequence[Envelope], waits: Waits) -> Iterator[Violation]:
    """Yield waits that a new leader extends beyond the end that members had been told.

    A new leader only knows the delays that members report when they join. The wait may therefore
    grow each time by the time from the join to the decision. The last join before the decision
    counts, because members may join the next round while the leader decides.

    A leader that revokes resources cannot announce a delay. It keeps the deadline that its members
    reported. The rounds that it leads right after may therefore extend the wait by the same time.
    """
    ears: dict[str, _Ear] = {}
    client_of: dict[str, str] = {}
    took: dict[str, _Taken] = {}
    last, leader = EMPTY, ""
    for envelope in telemetry:
        record = envelope.record
        ear = ears.get(envelope.client)
        if ear is None:
            ear = ears[envelope.client] = _Ear()
        ear.take(envelope, last, leader)
        if isinstance(record, AssignmentReceived):
            client_of[envelope.member] = envelope.client
        if not isinstance(record, RoundLed):
            continue
        last, leader = EMPTY if _may_be_a_pause(record, waits) else record.lost, envelope.client
        before = took.pop(envelope.client, None)
        if not record.lost:
            continue
        follows = before is not None and before.generation == envelope.generation - 1
        late = dict(before.late_ms) if before is not None and follows else {}
        until_ms = ear.decided_ms + record.scheduled_rebalance_timeout_ms
        for name in sorted({client_of.get(member, "") for member in record.members}):
            told = ears.get(name)
            if told is None or told.ends_ms is None or not record.lost & told.lost:
                continue
            if told.leader == envelope.client:
                continue  # the leader knows of each loss more than its members
            late[name] = max(late.get(name, 0), ear.decided_ms - told.joined_by(ear.decided_ms))
            on_top_ms = late[name] + waits.tolerance_ms + waits.delay_ms // 20
            if record.scheduled_rebalance_timeout_ms and until_ms > told.ends_ms + on_top_ms:
                message = f"{name} had been told that the wait ends at {told.ends_ms}"
                yield Violation(checker="losses", at_ms=envelope.at_ms, message=message)
        took[envelope.client] = _Taken(generation=envelope.generation, late_ms=late)


def _may_be_a_pause(record: RoundLed, waits: Waits) -> bool:
    """Return whether the announced delay may be the pause between moves."""
    return waits.interval_ms > 0 and bool(record.waiting)


@frozen(kw_only=True)
class _Taken:
    """The delays that a leader learned from its members in a round with lost resources.

    Attributes:
        generation: of the round.
        late_ms: time from the join of each process to the decision.
    """

    generation: int
    late_ms: dict[str, int]


@define
class _Ear:
    """The delays that a process was told.

    Attributes:
        ends_ms: end of the current delay, or None.
        lost: resources lost in the round that announced the delay.
        leader: process that led this round.
        joins_ms: times of its joins, ascending.
        decided_ms: time of the last round that this process decided.
    """

    ends_ms: int | None = None
    lost: ResourceSet = EMPTY
    leader: str = ""
    joins_ms: list[int] = field(factory=list)
    decided_ms: int = 0

    def joined_by(self, at_ms: int) -> int:
        """Return the time of the last join up to `at_ms`, or 0."""
        joins = bisect_right(self.joins_ms, at_ms)
        return self.joins_ms[joins - 1] if joins else 0

    def take(self, envelope: Envelope, lost: ResourceSet, leader: str) -> None:
        """Apply a record of the process; `lost` and `leader` belong to the last round."""
        record, at_ms = envelope.record, envelope.at_ms
        match record:
            case ProcessStarted() | ProcessEnded() | StateChanged(after="losing"):
                self.ends_ms = None
            case StateChanged(after="joining"):
                self.joins_ms.append(at_ms)
            case StateChanged(after="leading"):
                self.decided_ms = at_ms
            case AssignmentReceived() if record.scheduled_rebalance_timeout_ms:
                self.ends_ms = at_ms + record.scheduled_rebalance_timeout_ms
                self.lost, self.leader = lost, leader
            case AssignmentReceived() if not record.follow_up:
                self.ends_ms = None
            case _:
                pass


def _rounds(telemetry: Sequence[Envelope]) -> Iterator[_Round]:
    """Yield the rounds in order; a refused round or an unreadable member makes a round unsound."""
    received: dict[int, list[Envelope]] = {}
    unsound: set[tuple[str, int]] = set()
    for one in telemetry:
        if isinstance(one.record, AssignmentReceived):
            received.setdefault(one.generation, []).append(one)
        if isinstance(one.record, _UNSOUND):
            unsound.add((one.client, one.generation))
    decided_ms: dict[str, int] = {}
    membership: dict[str, int] = {}
    for one in telemetry:
        match one.record:
            case ProcessStarted() | StateChanged(after="losing"):
                membership[one.client] = membership.get(one.client, 0) + 1
            case StateChanged(after="leading"):
                decided_ms[one.client] = one.at_ms
            case RoundLed():
                yield _round(
                    one,
                    decided_ms.get(one.client, one.at_ms),
                    f"{one.client}/{membership.get(one.client, 0)}",
                    received.get(one.generation, []),
                    sound=(one.client, one.generation) not in unsound,
                )
            case _:
                pass


def _round(
    led: Envelope, at_ms: int, client: str, received: list[Envelope], *, sound: bool
) -> _Round:
    held, kept, leader_heard = {}, {}, False
    for one in received:
        if isinstance(one.record, AssignmentReceived):
            held[one.member] = one.record.gained | one.record.kept
            kept[one.member] = one.record.kept
            leader_heard |= one.record.leader and one.client == led.client
    assert isinstance(led.record, RoundLed)
    return _Round(
        at_ms=at_ms,
        client=client,
        generation=led.generation,
        led=led.record,
        sound=sound,
        held=held,
        kept=kept,
        leader_heard=leader_heard,
    )


def _follows(before: _Round, after: _Round) -> bool:
    """Return whether the same leader led both rounds in a row and received the first decision."""
    return (
        after.client == before.client
        and after.generation == before.generation + 1
        and before.leader_heard
    )


@define(kw_only=True)
class _Step:
    """Two consecutive rounds of one leader, and the losses known between them."""

    before: _Round
    after: _Round
    identities: dict[str, str]
    topics: dict[str, set[str]]
    since: dict[Resource, tuple[int, str]]
    waits: Waits

    @property
    def fresh(self) -> tuple[str, ...]:
        """Members of this round that were not in the last round."""
        known = set(self.before.led.members)
        return tuple(member for member in self.after.led.members if member not in known)

    @property
    def departed(self) -> tuple[str, ...]:
        """Members of the last round that are not in this round."""
        there = set(self.after.led.members)
        return tuple(member for member in self.before.led.members if member not in there)

    @property
    def _bereft(self) -> set[str]:
        """Departed members that may have held resources: all that did not report an empty set.

        If two such members departed, a newcomer gets the share of one. The second share waits.
        """
        held = self.before.held
        return {member for member in self.departed if held.get(member) != EMPTY}

    def since_now(self) -> dict[Resource, tuple[int, str]]:
        """Return the time of loss and the former owner of each resource that is lost now."""
        owner = {r: member for member in self.departed for r in self._had(member)}
        return {
            resource: self.since.get(resource, (self.after.at_ms, owner.get(resource, _UNKNOWN)))
            for resource in self.after.led.lost
        }

    def objections(self) -> Iterator[str]:
        """Yield everything that is wrong with this step."""
        before, after, now_ms = self.before.led, self.after.led, self.after.at_ms
        if not self.departed and (new := after.lost - before.lost):
            yield f"{new.to_dict()} is called lost though nobody departed"
        if given_up := before.revoked & after.lost:
            yield f"{given_up.to_dict()} was given up and is called lost"
        if after.lost and not self.fresh and not before.revoked and after.policy == "deferred":
            moves = (after.revoked & after.waiting) - after.contested
            if moves:
                yield f"moves {moves.to_dict()} while {after.lost.to_dict()} waits"
        if _only_told_again(before, after):
            yield f"only {after.revoked.to_dict()} is still being stopped, and all have to rejoin"
        until_ms = now_ms + after.scheduled_rebalance_timeout_ms
        grace_ms = self.waits.tolerance_ms + self.waits.delay_ms // 20
        for resource, (lost_ms, owner) in self.since_now().items():
            if until_ms > lost_ms + self.waits.delay_ms + grace_ms:
                yield f"{resource}, lost at {lost_ms}, is to wait until {until_ms}"
            if self._is_back(owner):
                yield f"{resource} is kept from {owner}, which is back"
        yield from self._given_early()
        yield from self._kept_from_newcomers()

    def _is_back(self, owner: str) -> bool:
        instance = self.identities.get(owner, "")
        return bool(instance) and any(self.identities.get(m) == instance for m in self.fresh)

    def _kept_from_newcomers(self) -> Iterator[str]:
        """Yield resources that a newcomer did not get though it must pass for the departed member.

        This applies if exactly one dynamic member departed: a dynamic newcomer replaces it.
        """
        waiting = (*self.since.values(), *self.since_now().values())
        owners = {owner for _, owner in waiting} | self._bereft
        if not self.after.led.lost:
            return
        if len(owners) != 1 or _UNKNOWN in owners or any(self.identities.get(o) for o in owners):
            return
        names = {resource.name for resource in self.after.led.lost}
        for member in self.fresh:
            if not self.identities.get(member) and names <= self.topics.get(member, set()):
                yield f"{self.after.led.lost.to_dict()} is kept from {member}, which is new"

    def _given_early(self) -> Iterator[str]:
        """Yield resources that other members got before the wait for their owner was over."""
        early_ms = self.after.at_ms + self.waits.tolerance_ms + self.waits.delay_ms // 20
        owner_of = {r: (self.after.at_ms, m) for m in self.departed for r in self._had(m)}
        owner_of |= self.since
        given: dict[str, Resource] = {}
        for resource, (lost_ms, owner) in owner_of.items():
            if owner == _UNKNOWN:
                continue  # the wait began under an earlier leader
            if resource in self.after.led.granted and early_ms < lost_ms + self.waits.delay_ms:
                given.setdefault(owner, resource)
        returned = {o for o in given if o and (self._is_back(o) or o in self.after.led.members)}
        dynamic = [member for member in self.fresh if not self.identities.get(member)]
        others = [owner for owner in given if owner not in returned]
        for owner in others:
            if self.identities.get(owner):
                yield f"{given[owner]} of {owner} is given away, and not to its owner"
        if len(others) > len(dynamic):
            yield f"{list(given.values())} are given away before their time"

    def _had(self, member: str) -> ResourceSet:
        """Return the resources that a departed member had claimed and was not told to revoke."""
        return self.before.kept.get(member, EMPTY) - self.before.led.revoked


def _only_told_again(before: RoundLed, after: RoundLed) -> bool:
    return bool(
        after.follow_up
        and after.revoked
        and not after.revoked - before.revoked
        and not after.waiting - after.revoked
        and not after.granted
        and not after.contested
        and after.members == before.members
    )


def _moves(before: RoundLed | None, after: RoundLed) -> bool:
    asked = EMPTY if before is None else before.revoked
    return bool((after.revoked & after.waiting) - after.contested - asked)


def _hasty(after: _Round, moved_ms: int | None, waits: Waits) -> Iterator[str]:
    """Yield a complaint if resources move before the interval is over."""
    if not waits.interval_ms or moved_ms is None:
        return
    passed_ms = after.at_ms - moved_ms
    if passed_ms + waits.tolerance_ms + waits.interval_ms // 20 < waits.interval_ms:
        yield f"moves {passed_ms} ms after the last moves"


def _identities(telemetry: Sequence[Envelope]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the static id of each static member, and the topics of each member, by member id."""
    process: dict[str, ProcessStarted] = {}
    identities: dict[str, str] = {}
    topics: dict[str, set[str]] = {}
    for one in telemetry:
        if isinstance(one.record, ProcessStarted):
            process[one.client] = one.record
        elif one.member and one.client in process:
            topics[one.member] = set(process[one.client].topics)
            if process[one.client].instance_id:
                identities[one.member] = process[one.client].instance_id
    return identities, topics
