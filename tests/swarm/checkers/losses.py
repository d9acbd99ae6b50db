"""Check how a leader treats lost resources from round to round.

Two rounds are compared if the same process led both and could read all members. Such a leader knew
everything that the telemetry shows, so an error is the fault of its policy. A new leader knows only
the claims: if every member brought some, it must let the rest wait. `heard_delays` compares a new
leader with the delays that members had heard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Final

from attrs import define, field, frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    ProcessStarted,
    RoundDecided,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
)
from tests.swarm.checkers.bundles import of_bundles
from tests.swarm.checkers.rounds import received_twice
from tests.swarm.checkers.warmups import WarmSets

_UNKNOWN: Final = "?"
_UNSOUND: Final = (RoundRefused, SubscriptionUnreadable)


@frozen(kw_only=True)
class Waits:
    """How long a policy waits.

    Attributes:
        delay_ms: for the owner of a lost resource.
        interval_ms: from one round with moves to the next, 0 for no pause.
        tolerance_ms: permitted deviation of a time.
        has_warmups: whether the policy warms up resources, which puts moves off.
        has_hand_overs: whether members hand over while warm-ups are on. What they give up goes to
            warm members, whatever waits.
        co_partition: topics whose partitions belong together. A new partition waits with the lost
            rest of its bundle.
    """

    delay_ms: int
    interval_ms: int = 0
    tolerance_ms: int = 5
    has_warmups: bool = False
    has_hand_overs: bool = False
    co_partition: Sequence[Sequence[str]] = ()


@frozen(kw_only=True)
class _Round:
    """A round as its leader recorded it.

    Attributes:
        at_ms: time of the decision; the record follows a little later.
        client: process of the leader with a mark for each life, and the number of its membership.
        owned: resources after the round by member id, for members that reported them.
        kept: the part of `owned` that the member had claimed in the round.
        sound: whether the leader could read all members, and decided the round.
        warm: resources that some member was warm for, and may take over without a wait.
        twice: resources that two of its members have received; see `check_ration`.
    """

    at_ms: int
    client: str
    generation: int
    led: RoundDecided
    sound: bool
    owned: dict[str, ResourceSet] = field(factory=dict)
    kept: dict[str, ResourceSet] = field(factory=dict)
    leader_heard: bool = False
    warm: ResourceSet = EMPTY
    twice: ResourceSet = EMPTY


def check_losses(telemetry: Sequence[Envelope], waits: Waits) -> Iterator[Violation]:
    """Yield losses that wait too short, too long, or for the wrong member."""
    identities, topics = _identities(telemetry)
    since: dict[Resource, tuple[int, str]] = {}
    moved_ms: int | None = None
    before: _Round | None = None
    calm, leaders = False, set[str]()
    rounds = list(_rounds(telemetry))
    for message, at_ms in _given_by_new_leaders(rounds, waits):
        yield Violation(checker="losses", at_ms=at_ms, message=message)
    for after in rounds:
        follows = before is not None and _follows(before, after)
        if before is not None and follows and before.sound and after.sound:
            step = _Step(
                before=before,
                after=after,
                identities=identities,
                topics=topics,
                since=since,
                waits=waits,
                calm=calm,
            )
            for message in step.objections():
                yield Violation(checker="losses", at_ms=after.at_ms, message=message)
            since = step.since_now()
            calm = calm and not step.departed and not after.led.lost
        else:
            only_new = not after.led.lost and not after.led.granted - after.led.created
            calm = after.sound and only_new and after.client not in leaders
            lost = after.led.lost if after.sound else EMPTY
            since = dict.fromkeys(lost, (after.at_ms, _UNKNOWN))
        # An unreadable member hides losses, but no moves. A resource that the last round revoked
        # and that is still being stopped is not a second move. The interval since that round
        # continues.
        last = before.led if before is not None and follows else None
        moved_ms = moved_ms if follows else None
        if _moves(last, after):
            for message in _hasty(after, moved_ms, waits):
                yield Violation(checker="losses", at_ms=after.at_ms, message=message)
            moved_ms = after.at_ms
        leaders.add(after.client)
        before = after


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
    lives: dict[str, str] = {}
    membership: dict[str, int] = {}
    sets, warm = WarmSets(), EMPTY
    has: dict[str, ResourceSet] = {}
    for one in telemetry:
        sets.take(one)
        match one.record:
            case AssignmentReceived():
                has[one.member] = one.record.gained | one.record.kept
            case ProcessStarted():
                lives[one.client] = f"{lives.get(one.client, one.client)}'"
            case StateChanged(after="losing"):
                membership[one.client] = membership.get(one.client, 0) + 1
            case StateChanged(after="leading"):
                decided_ms[one.client] = one.at_ms
                warm = sets.everywhere()  # a warm member may die before the decision
            case RoundDecided():
                warm |= sets.everywhere(one.record.members)
                yield _round(
                    one,
                    decided_ms.get(one.client, one.at_ms),
                    f"{lives.get(one.client, one.client)}/{membership.get(one.client, 0)}",
                    received.get(one.generation, []),
                    sound=(one.client, one.generation) not in unsound,
                    warm=warm,
                    twice=received_twice(has, one.record.members),
                )
            case _:
                pass


def _round(
    led: Envelope,
    at_ms: int,
    client: str,
    received: list[Envelope],
    *,
    sound: bool,
    warm: ResourceSet,
    twice: ResourceSet,
) -> _Round:
    owned, kept, leader_heard = {}, {}, False
    for one in received:
        if isinstance(one.record, AssignmentReceived):
            owned[one.member] = one.record.gained | one.record.kept
            kept[one.member] = one.record.kept
            leader_heard |= one.record.leader and one.client == led.client
    assert isinstance(led.record, RoundDecided)
    return _Round(
        at_ms=at_ms,
        client=client,
        generation=led.generation,
        led=led.record,
        sound=sound,
        owned=owned,
        kept=kept,
        leader_heard=leader_heard,
        warm=warm,
        twice=twice,
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
    calm: bool = False
    """Whether nothing was lost while this leader led, up to the last round."""

    @property
    def fresh(self) -> tuple[str, ...]:
        known = set(self.before.led.members)
        return tuple(member for member in self.after.led.members if member not in known)

    @property
    def departed(self) -> tuple[str, ...]:
        there = set(self.after.led.members)
        return tuple(member for member in self.before.led.members if member not in there)

    @property
    def _bereft(self) -> set[str]:
        """Departed members that may have owned resources: all that did not report an empty set.

        If two such members departed, a newcomer gets the share of one. The second share waits.
        """
        owned = self.before.owned
        return {member for member in self.departed if owned.get(member) != EMPTY}

    def since_now(self) -> dict[Resource, tuple[int, str]]:
        """Return the time of loss and the former owner of each resource that is lost now."""
        owner = {r: member for member in self.departed for r in self._had(member)}
        return {
            resource: self.since.get(resource, (self.after.at_ms, owner.get(resource, _UNKNOWN)))
            for resource in self.after.led.lost
        }

    def objections(self) -> Iterator[str]:
        before, after, now_ms = self.before.led, self.after.led, self.after.at_ms
        new = of_bundles(after.lost, self.waits.co_partition)
        new -= of_bundles(before.lost, self.waits.co_partition)
        if not self.departed and new:
            yield f"{new.to_dict()} is called lost though nobody departed"
        if given_up := before.revoked & after.lost:
            yield f"{given_up.to_dict()} was given up and is called lost"
        yield from self._moves_while_lost()
        if _only_told_again(before, after):
            yield f"only {after.revoked.to_dict()} is still being stopped, and all have to rejoin"
        until_ms = now_ms + (after.rejoin_in_ms or 0)
        grace_ms = self.waits.tolerance_ms + self.waits.delay_ms // 20
        for resource, (lost_ms, owner) in self.since_now().items():
            if until_ms > lost_ms + self.waits.delay_ms + grace_ms:
                yield f"{resource}, lost at {lost_ms}, is to wait until {until_ms}"
            if self._is_back(owner):
                yield f"{resource} is kept from {owner}, which is back"
        yield from self._given_early()
        yield from self._kept_from_newcomers()

    def _moves_while_lost(self) -> Iterator[str]:
        """Yield moves while a lost resource waits, except moves that the last round had put off."""
        before, after = self.before.led, self.after.led
        if not after.lost or self.fresh or self.waits.has_hand_overs:
            return
        moves = (after.revoked & after.waiting) - after.contested - self.after.twice
        begun = moves - before.waiting - before.revoked
        if after.policy == "deferred" and not before.revoked and not self.waits.has_warmups:
            begun = moves
        if begun:
            yield f"moves {begun.to_dict()} while {after.lost.to_dict()} waits"

    def _is_back(self, owner: str) -> bool:
        instance = self.identities.get(owner, "")
        return bool(instance) and any(self.identities.get(m) == instance for m in self.fresh)

    def _kept_from_newcomers(self) -> Iterator[str]:
        """Yield resources that a newcomer did not get though it must pass for the departed member.

        This applies if exactly one dynamic member departed: a dynamic newcomer replaces it.
        """
        if self.waits.has_hand_overs:
            return  # what is new may leave at once
        waiting = (*self.since.values(), *self.since_now().values())
        owners = {owner for _, owner in waiting} | self._bereft
        if not self.after.led.lost:
            return
        if len(owners) != 1 or _UNKNOWN in owners or any(self.identities.get(o) for o in owners):
            return
        # A warm member may have taken a part. The newcomer must subscribe to all of the share.
        whole = (self.before.owned.get(owner, EMPTY) for owner in owners)
        names = {one.name for part in (self.after.led.lost, *whole) for one in part}
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
            if owner == _UNKNOWN or resource in self.after.warm:
                continue  # the wait began under an earlier leader, or a warm member took over
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
        """Return the resources that a departed member had, and that must therefore wait.

        It had claimed them, and need not revoke them. A resource from the last round counts
        if it cannot have been lost before: its first deadline would still hold. It also counts if
        the member kept it for as long as a loss may wait.
        """
        passed_ms = self.after.at_ms - self.before.at_ms
        for_long = passed_ms > self.waits.delay_ms * 21 // 20 + self.waits.tolerance_ms
        had = self.before.owned if self.calm or for_long else self.before.kept
        return had.get(member, EMPTY) - self.before.led.revoked


def _given_by_new_leaders(rounds: Sequence[_Round], waits: Waits) -> Iterator[tuple[str, int]]:
    """Yield resources that a new leader gave away though they had to wait, and the time.

    Every member brought resources of its own and had heard of no delay, so no member could pass for
    a departed one, and no wait could be nearly over. A topic that no member claims is new to such a
    leader, and so are the bundles with its partitions.
    """
    generations = Counter(one.generation for one in rounds)
    for before, after in pairwise(rounds):
        if (
            waits.delay_ms
            # A process that has lost its membership may lead again with its memory.
            and after.client.partition("/")[0] != before.client.partition("/")[0]
            and after.generation == before.generation + 1
            and generations[before.generation] == generations[after.generation] == 1
            and before.sound
            and after.sound
            and not before.led.follow_up
            and before.led.rejoin_in_ms is None
            and all(one in before.owned and after.kept.get(one) for one in after.led.members)
        ):
            claimed = {one.name for member in after.led.members for one in after.kept[member]}
            claimed -= {
                name for names in waits.co_partition if not claimed >= set(names) for name in names
            }
            for member in set(before.led.members).difference(after.led.members):
                had = before.owned.get(member, EMPTY) - before.led.revoked
                given = _whole_bundles(had, waits.co_partition) & (after.led.granted - after.warm)
                if early := given.restrict_names(claimed):
                    message = f"{early.to_dict()} of {member} does not wait under a new leader"
                    yield message, after.at_ms


def _whole_bundles(had: ResourceSet, co_partition: Sequence[Sequence[str]]) -> ResourceSet:
    """Remove the bundles that lack a topic.

    If one topic has more partitions than another, its last ones form bundles without the other. To
    a new leader these bundles are a topic that no member claims.
    """
    return had - ResourceSet.from_pairs(
        (name, index)
        for name, index in had
        for names in co_partition
        if name in names and any((other, index) not in had for other in names)
    )


def _only_told_again(before: RoundDecided, after: RoundDecided) -> bool:
    return bool(
        after.follow_up
        and after.revoked
        and not after.revoked - before.revoked
        and not after.waiting - after.revoked
        and not after.granted
        and not after.contested
        and after.members == before.members
    )


def _moves(before: RoundDecided | None, after: _Round) -> bool:
    asked = EMPTY if before is None else before.revoked
    moves = (after.led.revoked & after.led.waiting) - after.led.contested
    return bool(moves - asked - after.twice)


def _hasty(after: _Round, moved_ms: int | None, waits: Waits) -> Iterator[str]:
    if not waits.interval_ms or moved_ms is None or waits.has_hand_overs:
        return  # what members give up moves without a pause
    passed_ms = after.at_ms - moved_ms
    if passed_ms + waits.tolerance_ms + waits.interval_ms // 20 < waits.interval_ms:
        yield f"moves {passed_ms} ms after the last moves"


def _identities(telemetry: Sequence[Envelope]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the static id of each static member, and the topics of each member, by member id.

    A process can crash before it learns its member id. A coordinator begins the member id of a
    static member with its static id, so the id shows which process joined.
    """
    process: dict[str, ProcessStarted] = {}
    identities: dict[str, str] = {}
    topics: dict[str, set[str]] = {}
    member_of: dict[str, str] = {}
    for one in telemetry:
        if isinstance(one.record, ProcessStarted):
            process[one.client], member_of[one.client] = one.record, ""
        elif one.member and one.member != member_of.get(one.client, one.member):
            member_of[one.client] = one.member
            topics[one.member] = set(process[one.client].topics)
            if process[one.client].instance_id:
                identities[one.member] = process[one.client].instance_id
    instances = set(identities.values())
    led = [one.record.members for one in telemetry if isinstance(one.record, RoundDecided)]
    for member in set(chain.from_iterable(led)) - topics.keys():
        identities.update((member, one) for one in instances if member.startswith(f"{one}-"))
    return identities, topics
