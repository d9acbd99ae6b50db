"""`Witness`: check what the honest members of a group keep beside hostile members.

It reads what each round was decided from, and what was decided, between the network and the
brokers. Its rules are:

- **floor**: while hostile members stay, and an honest member leads, honest members soon own every
  partition that they subscribe to, except those that the leader cannot take from a hostile member.
  These are the partitions that a leader has assigned to it, and those that it got by a claim that
  Kafka's rule (the highest generation wins, a tie has no owner) does not give to an honest member.
  An assignment counts even if the group coordinator refused its round: the leader does not know
  whether the member has received it.
  The rule counts only where it must: for a leader without memory of the last round, and a topic
  that the member subscribes to, or any if it hands over. A claim of a generation that has not been
  loses against all others. In both cases the hostile member must have claimed the partition in each
  readable subscription since.
- **contested**: a leader that led the last round contests no claim of the member that it gave the
  partition to.
- **fair**: a leader assigns no partition to a hostile member beyond its fair share, unless a member
  declines partitions, which go to the others.
- **single owner**: no two members own a partition. After a round that a hostile member led they
  may, until an honest member has led the next one and its revocations are done.
- **subscribed**: no honest member gets a partition of a topic that it never subscribed to.
- **exists**: no honest member gets a partition that never existed.
- **in time**: an honest leader answers each round within its time.

Honest members with memory do better than Kafka's rule, so the floor is never below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from attrs import define, field, frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import JoinGroupAnswer, SyncGroupRequest
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.errors import DecodeError
from coopgroup.protocol import decode_assignment, decode_subscription, decode_user_data
from coopgroup.simulator.checkers.holdings import holdings
from coopgroup.simulator.coordinator import GroupState
from coopgroup.simulator.coordinator.state import ClassicGroup
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import AssignmentReceived, RoundDecided

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from coopgroup.core.model.group_api import Answer
    from coopgroup.protocol import Subscription, UserData
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import Watcher
    from coopgroup.simulator.world.brokers import Brokers
    from coopgroup.simulator.world.calls import Call
    from coopgroup.telemetry import Envelope

_HEAL_MS: Final = 700  # a session, and a round
_OF_TWO: Final = frozenset({"commits", "hand-over"})
_OF_ROUNDS: Final = frozenset({"members", "retained"})
_EVEN: Final = frozenset({"sticky", "cooperative-sticky"})


@frozen(kw_only=True)
class _Round:
    """A round with its assignments.

    Attributes:
        at_ms: when its assignments reached the coordinator.
        leader: process that led it; None for a hostile one.
        said: subscription of each member; None for an unreadable one.
        given: assignment of each member.
    """

    at_ms: int
    generation: int
    leader: Process | None
    leader_id: str
    said: dict[str, Subscription | None]
    given: dict[str, ResourceSet]


@define(eq=False)
class Witness:
    """Brokers behind a wire that looks at the rounds.

    Attributes:
        simulation: the group.
        brokers: the real brokers.
        hostile: names of the hostile processes.
        disturbed: processes that may not reach the group coordinator; "" for all processes.
        held: by member id, the partitions that no leader can take from a hostile member.
        offered: the partitions that an honest leader has assigned to a hostile member since the
            last completed round, by the member ids of both.
        rounds: all rounds with assignments, in order.
        violations: what is already known to be wrong.
    """

    simulation: Simulation
    brokers: Brokers
    hostile: Collection[str]
    disturbed: AbstractSet[str]
    held: dict[str, ResourceSet] = field(factory=dict)
    offered: dict[tuple[str, str], ResourceSet] = field(factory=dict)
    rounds: list[_Round] = field(factory=list)
    violations: list[Violation] = field(factory=list)
    _ever: ResourceSet = EMPTY
    _subscribed: dict[str, set[str]] = field(factory=dict)
    # The process that must answer a round, the join that asks it, and until when.
    _asked: tuple[Process, JoinGroupAnswer, int] | None = None
    _watcher: Watcher | None = None

    def __attrs_post_init__(self) -> None:
        """See the answers of the brokers, too, and the requests that never reach them."""
        world = self.simulation.world
        self._watcher, world.transcript = world.transcript, self
        reply = self.simulation.brokers.reply

        def seen(call: Call, answer: Answer) -> None:
            if isinstance(answer, JoinGroupAnswer) and answer.members:
                # The process itself: an earlier life of the same name may still be the leader.
                process = cast("Process", call.process)
                network, settings = self.simulation.network, self.simulation.run_settings
                # A connection serves one request after the other.
                limit_ms = settings.lead_ms.high + 3 * network.delay_ms.high
                asked = (process, answer, self._now_ms + limit_ms)
                self._asked = None if self.is_hostile(answer.leader_id) else asked
            reply(call, answer)

        self.simulation.brokers.reply = seen

    def serve(self, call: Call) -> None:
        """Serve a request that has arrived."""
        self._ever |= self.simulation.brokers.existing()
        for process in self.simulation.alive:
            self._subscribed.setdefault(process.name, set()).update(process.topics)
        group = self.simulation.brokers.coordinator.group
        is_open = group.state is GroupState.COMPLETING
        if is_open:
            self._judge_time(group.generation)
        self.brokers.serve(call)
        group = self.simulation.brokers.coordinator.group
        if is_open and isinstance(call.send.request, SyncGroupRequest):
            assert isinstance(group, ClassicGroup)
            if group.state is GroupState.STABLE:
                self._take(group)

    # --- what a `Watcher` receives ----------------------------------------------------------------

    def sent(self, call: Call) -> None:
        """Remember what an honest leader assigns to hostile members."""
        if self._watcher is not None:
            self._watcher.sent(call)
        request = call.send.request
        if not isinstance(request, SyncGroupRequest) or self.is_hostile(request.member_id):
            return
        for member_id, assignment in request.assignments:
            if self.is_hostile(member_id):
                pair = request.member_id, member_id
                self.offered[pair] = self.offered.get(pair, EMPTY) | _given(assignment)

    def recorded(self, envelope: Envelope) -> None:
        """Handle a new telemetry record."""
        if self._watcher is not None:
            self._watcher.recorded(envelope)

    def answered(self, call: Call, answer: Answer) -> None:
        """Handle an answer that has arrived."""
        if self._watcher is not None:
            self._watcher.answered(call, answer)

    def failed(self, call: Call) -> None:
        """Handle a call without an answer."""
        if self._watcher is not None:
            self._watcher.failed(call)

    # --- what honest members must own -------------------------------------------------------------

    @property
    def wanted(self) -> ResourceSet:
        """Partitions to which honest members subscribe."""
        topics = {topic for process in self.simulation.alive for topic in process.topics}
        return self.simulation.brokers.existing().restrict_names(topics)

    @property
    def lacking(self) -> ResourceSet:
        """Partitions that honest members should own and do not; none beside a hostile leader."""
        alive = self.simulation.alive
        group = self.simulation.brokers.coordinator.group
        if not alive or self.is_hostile(group.leader_id):
            return EMPTY
        owned = [process.application.working for process in alive]
        held = [self.held.get(member_id, EMPTY) for member_id in group.seats]
        return self.wanted - ResourceSet.union_all([*owned, *held])

    def is_hostile(self, member_id: str) -> bool:
        """Return whether a member id is that of a hostile process."""
        return member_id.partition("-")[0] in self.hostile

    # --- rounds -----------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self.simulation.world.now_ms

    def _leader(self, member_id: str) -> Process | None:
        """Return the honest process of a member id."""
        if self.is_hostile(member_id):
            return None
        return self.simulation.process(member_id.partition("-")[0])

    def _take(self, group: ClassicGroup) -> None:
        leader = self._leader(group.leader_id)
        seats = group.seats.values()
        said = {one.member_id: _said(one.metadata(group.protocol_name)) for one in seats}
        given = {one.member_id: _given(one.assignment) for one in seats}
        made = _Round(
            at_ms=self._now_ms,
            generation=group.generation,
            leader=leader,
            leader_id=group.leader_id,
            said=said,
            given=given,
        )
        before = self.rounds[-1] if self.rounds else None
        remembers = (
            before is not None
            and leader is not None
            and (before.leader, before.leader_id) == (leader, made.leader_id)
            and self._knows_last_round(leader, made)
        )
        if leader is not None:
            self._check_contested(made, before if remembers else None)
            self._check_fair(made)
        self.held = {
            one: self._held(one, made, remembers=remembers) for one in said if self.is_hostile(one)
        }
        self.offered.clear()
        self.rounds.append(made)

    def _knows_last_round(self, leader: Process, made: _Round) -> bool:
        """Return whether a leader has decided the round before, and was in a generation since."""
        said = made.said[made.leader_id]
        decided = (
            one.generation
            for one in reversed(self.simulation.world.telemetry)
            if one.client == leader.name and isinstance(one.record, RoundDecided)
        )
        next(decided)  # the present round
        is_next = next(decided, NO_GENERATION) >= made.generation - 1
        return is_next and said is not None and said.generation != NO_GENERATION

    def _held(self, member_id: str, made: _Round, *, remembers: bool) -> ResourceSet:
        """Return what no leader can take from a hostile member after a round."""
        before, said = self.held.get(member_id, EMPTY), made.said[member_id]
        if remembers:
            before |= self.offered.get((made.leader_id, member_id), EMPTY)
        given = made.given[member_id]
        existing = self.simulation.brokers.existing()
        if said is None:  # a leader without memory must fear that it owns anything
            return before | given if remembers else existing
        kept = (before & said.owned) | given
        if remembers or made.leader is None:
            return kept
        loses = said.generation >= made.generation  # against every other claim
        better = [
            one.owned
            for other, one in made.said.items()
            if one is not None
            and not self.is_hostile(other)
            and (loses or one.generation > said.generation)
        ]
        won = said.owned & existing
        if not _hands_over(said):
            won = won.restrict_names(said.topics)
        return kept | (won - ResourceSet.union_all([EMPTY, *better]))

    # --- what is checked at each round ------------------------------------------------------------

    def _object(self, checker: str, message: str) -> None:
        self.violations.append(Violation(checker=checker, at_ms=self._now_ms, message=message))

    def _check_contested(self, made: _Round, before: _Round | None) -> None:
        record = next(
            one.record
            for one in reversed(self.simulation.world.telemetry)
            if isinstance(one.record, RoundDecided) and one.generation == made.generation
        )
        assert isinstance(record, RoundDecided)
        if before is None:
            return
        for member_id, given in before.given.items():
            said = made.said.get(member_id)
            if said is None or self.is_hostile(member_id) or said.generation != before.generation:
                continue
            others = [one for other, one in before.given.items() if other != member_id]
            mine = (given & said.owned) - ResourceSet.union_all([EMPTY, *others])
            if contested := record.contested & mine:
                self._object("contested", f"{member_id} owns {contested.to_dict()}")

    def _check_fair(self, made: _Round) -> None:
        """Check the share of a hostile member where shares are even."""
        settings = self.simulation.run_settings
        honest = {
            one.topics for other, one in made.said.items() if one and not self.is_hostile(other)
        }
        is_even = settings.assignor.name in _EVEN and settings.policy.name == "simple"
        if not is_even or warmup_of(settings.policy) is not None or len(honest) != 1:
            return
        wanted = self.simulation.brokers.existing().restrict_names(*honest)
        sharers = [one for one in made.said.values() if one and wanted.restrict_names(one.topics)]
        if not sharers:  # the topics of all members are gone
            return
        if any(map(_declines, sharers)):
            return
        topics = {topic for one in sharers for topic in one.topics}
        shared = self.simulation.brokers.existing().restrict_names(topics)
        fair = -(-len(shared) // len(sharers))
        for member_id, given in made.given.items():
            share = given & wanted
            is_more = share - self.held.get(member_id, EMPTY)
            if self.is_hostile(member_id) and is_more and len(share) > fair:
                self._object("fair", f"{member_id} gets {share.to_dict()} instead of {fair}")

    def _judge_time(self, generation: int) -> None:
        """Check the time for which the present round has waited for its leader."""
        if self._asked is None or self._asked[1].generation != generation:
            return
        process, answer, until_ms = self._asked
        is_late = self._now_ms > until_ms and process.alive
        # A member that gave the join up, and joins anew, does not read the answer.
        is_late = is_late and process.session.member.member_id == answer.leader_id
        if is_late and not self.disturbed & {"", process.name}:
            self._asked = None
            self._object("in time", f"{process.name} has not answered by {until_ms}")

    # --- what is checked at the end ---------------------------------------------------------------

    def fair_view(self, found: Sequence[Violation]) -> list[Violation]:
        """Return all violations; those of two owners only if no hostile leader has made them."""
        damage = list(self._damage())
        telemetry = self.simulation.world.telemetry
        # A coordinator that moved repeats generations. If a hostile member led one of them, no
        # record tells of its round, and only the honest round of this generation is known.
        led = {one.generation for one in self.rounds if one.leader is None}
        told_ms = {
            one.at_ms
            for one in telemetry
            if one.generation in led and isinstance(one.record, AssignmentReceived)
        }
        left = [
            one
            for one in found
            # Where two members own a partition, both commit, and one gives it up after the other
            # has begun. A hostile leader orders warm-ups without limits.
            if one.checker != "single owner"
            and not (one.checker in _OF_TWO and _is_within(one.at_ms, one.at_ms, damage))
            and not (one.checker == "warmups" and damage)
            and not (one.checker in _OF_ROUNDS and one.at_ms in told_ms)
        ]
        left += self.violations
        left += self._check_owners(telemetry, damage)
        left += self._check_gains(telemetry)
        return left

    def _check_gains(self, telemetry: Sequence[Envelope]) -> Iterator[Violation]:
        for one in telemetry:
            if isinstance(one.record, AssignmentReceived):
                gained = one.record.gained
                subscribed = gained.restrict_names(self._subscribed.get(one.client, set()))
                for checker, bad in (
                    ("subscribed", gained - subscribed),
                    ("exists", subscribed - self._ever),
                ):
                    if bad:
                        message = f"{one.client} gets {bad.to_dict()}"
                        yield Violation(checker=checker, at_ms=one.at_ms, message=message)

    def _check_owners(
        self, telemetry: Sequence[Envelope], damage: Sequence[tuple[int, int]]
    ) -> Iterator[Violation]:
        last = None
        for holding in holdings(telemetry):
            if last is not None and last.resource == holding.resource:
                end_ms = min(last.end_ms, holding.end_ms)
                if holding.start_ms < end_ms and not _is_within(holding.start_ms, end_ms, damage):
                    name, index = holding.resource
                    message = f"{name}-{index} is with {last.client} and {holding.client}"
                    message += f" until {end_ms}"
                    yield Violation(checker="single owner", at_ms=holding.start_ms, message=message)
                if holding.end_ms < last.end_ms:
                    continue
            last = holding

    def _damage(self) -> Iterator[tuple[int, int]]:
        """Yield the times in which a hostile leader's assignments may have two owners."""
        stop_max_ms = self.simulation.costs.slow_ms.high
        since_ms: int | None = None
        for one in self.rounds:
            if one.leader is None:
                since_ms = one.at_ms if since_ms is None else since_ms
            elif since_ms is not None:
                yield since_ms, one.at_ms + stop_max_ms + _HEAL_MS
                since_ms = None
        if since_ms is not None:
            yield since_ms, self._now_ms + stop_max_ms


def _is_within(start_ms: int, end_ms: int, times: Sequence[tuple[int, int]]) -> bool:
    return any(first_ms <= start_ms and end_ms <= until_ms for first_ms, until_ms in times)


def _said(metadata: bytes) -> Subscription | None:
    try:
        return decode_subscription(metadata, skips_rest=True)
    except DecodeError:
        return None


def _hands_over(said: Subscription) -> bool:
    ours = _user_data(said)
    return ours is not None and ours.hands_over


def _declines(said: Subscription) -> bool:
    ours = _user_data(said)
    return ours is not None and bool(ours.declined)


def _user_data(said: Subscription) -> UserData | None:
    try:
        return decode_user_data(said.user_data)
    except DecodeError:
        return None


def _given(assignment: bytes) -> ResourceSet:
    try:
        return decode_assignment(assignment, skips_rest=True).assigned
    except DecodeError:
        return EMPTY
