"""Check a history with one fault against the same history without it: no fault is excused.

The swarm excuses a member that a message was lost for. Here the right outcome is known exactly:

- A *harmless* fault (a lost message, a delay or a break shorter than the session, an error after
  which a member keeps its claims, a move of the coordinator) costs no member anything. No lease
  ends, no resource moves, and no member stops a resource, unless it does so without the fault.
- A fault that *ends* a membership costs that member its resources, once, and within the session. A
  process that ends, or one more that joins, costs no lease at all.
- A resource moves away once, and back once if its owner returns. Other members give up no more than
  the share of one member, and nothing if no member comes.
- The group rests within a session, the delay of the policy and its moves after the last fault.
- A harmless fault costs one round, another one four: the loss, the end of the delay, the return of
  the member, and the follow-up. A round that revokes has a follow-up.

A process that started less than a session before the fault is only *coming*. If its messages are
late, the group shares without it first, so resources move once more. A leader that comes to lead
without memory takes the losses of two members for those of one.

The sessions of two processes can end one after the other. A round waits for a member that ended
without a leave, until its session ends. The group coordinator begins the session of a member that
waits for this round when the round ends. Until then the process is coming, too.

A loss counts if the member had begun to work. A join can wait longer than a session, so the member
must then prove itself by a heartbeat. If that fails, it lets go what it has just been assigned, and
gets it back without a round.

Pairs of faults, and groups with members of KIP-848, are judged by the other checkers alone. So are
the moves of groups with false claims, and of groups whose assignor reads lags.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final

from attrs import define, frozen

from coopgroup.core.assignors.registry import create_assignor
from coopgroup.core.member.error_actions import Action, action_for
from coopgroup.simulator.scenario import Identity
from coopgroup.simulator.world import Violation
from coopgroup.simulator.world.network import Mishap
from coopgroup.telemetry import (
    AssigningMoved,
    AssignmentReceived,
    Envelope,
    MembershipLost,
    ProcessEnded,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StopReason,
)
from tests.swarm.consumers import is_of_kip848, of_conversions
from tests.swarm.faults import kind_of
from tests.swarm.runs import Act, ActKind, SwarmRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coopgroup.core.model.resource_set import Resource

QUICK_MS: Final = 450
"""Time without a round after which a history rests: each member has sent heartbeats and commits."""
_SESSION_MS: Final = 600
_SILENT_MS: Final = 300  # a heartbeat interval and the back-offs
_WAIT_MS: Final = _SESSION_MS + _SILENT_MS  # until a round that waits for a session has ended
_SLACK_MS: Final = 700  # three heartbeat intervals and some rounds
_WARM_MS: Final = 1_000  # warm-ups come one after the other, and may time out
_ROUNDS_OF_A_MEMBER: Final = 4  # its loss, the end of the delay, its return, and the follow-up
_MOVES: Final = (AssignmentReceived, MembershipLost, ProcessEnded, ResourcesStarted)
_ENDS: Final = frozenset({Action.LOSE, Action.LOSE_ID, Action.FENCED, Action.FAIL, Action.YIELD})
_OF_ROUNDS: Final = frozenset({"JoinGroup", "SyncGroup"})
_OF_PROCESS: Final = frozenset({ActKind.CRASH, ActKind.CLOSE})
_COMES: Final = frozenset({ActKind.START, ActKind.STALL})  # a stalled member joins as a new one
_LATE: Final = frozenset({Mishap.DELAYED.name, Mishap.ANSWER_DELAYED.name})


@frozen(kw_only=True)
class Usual:
    """The events of a run, in numbers.

    Attributes:
        moved_until_ms: time of the last event of a round.
        rounds: number of decided rounds.
        revoking_rounds: number of those that revoke resources.
        losses: lost memberships of each process that had begun to work.
        gains: how often each resource was assigned to another process.
        stops: number of resources that each process had to stop.
    """

    moved_until_ms: int
    rounds: int
    revoking_rounds: int
    losses: Mapping[str, int]
    gains: Mapping[Resource, int]
    stops: Mapping[str, int]

    @classmethod
    def of(cls, telemetry: Sequence[Envelope]) -> Usual:
        """Count the events of a run."""
        losses: Counter[str] = Counter()
        gains: Counter[Resource] = Counter()
        stops: Counter[str] = Counter()
        owners: dict[Resource, str] = {}
        excused, broker_assigns = of_conversions(telemetry), False
        works: dict[str, set[Resource]] = {}
        rounds = revoking_rounds = moved_until_ms = 0
        for one in telemetry:
            record = one.record
            if isinstance(record, _MOVES) and not (broker_assigns and _is_look(record)):
                moved_until_ms = one.at_ms
            match record:
                case AssignmentReceived(gained=gained):
                    gains.update(each for each in gained if owners.get(each) != one.client)
                    owners.update(dict.fromkeys(gained, one.client))
                case ResourcesStarted(resources=resources):
                    works.setdefault(one.client, set()).update(resources)
                case ProcessEnded():
                    works.pop(one.client, None)
                case MembershipLost(resources=resources):
                    worked = works.pop(one.client, set())
                    is_excused = (one.client, one.at_ms) in excused
                    losses[one.client] += not (is_excused or worked.isdisjoint(resources))
                case AssigningMoved(to_broker=to_broker):
                    broker_assigns = to_broker
                case ResourcesStopped(resources=resources, reason=StopReason.REVOKED):
                    stops[one.client] += len(resources)
                case RoundDecided(revoked=revoked):
                    rounds += 1
                    revoking_rounds += bool(revoked)
                case _:
                    pass
        return cls(
            moved_until_ms=moved_until_ms,
            rounds=rounds,
            revoking_rounds=revoking_rounds,
            losses=losses,
            gains=gains,
            stops=stops,
        )


def _is_look(record: object) -> bool:
    """Return whether a member has asked the broker what it assigns, and nothing has changed."""
    return isinstance(record, AssignmentReceived) and not (record.gained or record.revoked)


def ends_a_membership(fault: Act) -> bool:
    """Return whether a member may lose its resources by a fault."""
    match fault.kind:
        case ActKind.STALL:
            return True
        case ActKind.PAUSE | ActKind.CUT:
            return fault.for_ms >= _SESSION_MS
        case ActKind.UPSET if fault.mishap in _LATE:
            return fault.for_ms >= _SESSION_MS
        case ActKind.UPSET if fault.mishap == Mishap.REFUSED.name:
            return action_for(kind_of(fault.request), fault.number) in _ENDS
        case _:
            return False


def check_faults(run: SwarmRun, telemetry: Sequence[Envelope], usual: Usual) -> Iterator[Violation]:
    """Yield what a run with one fault does that the fault does not explain."""
    faults = [act for act in run.acts if act.is_fault]
    if len(faults) != 1 or (run.theirs and not is_of_kip848(run)):
        return
    now = Usual.of(telemetry)
    for message in _Judge(run=run, fault=faults[0], now=now, usual=usual).objections():
        yield Violation(checker="fault", at_ms=now.moved_until_ms, message=message)


@define(kw_only=True, frozen=True, slots=False)
class _Judge:
    """A run with one fault, and what happens without it."""

    run: SwarmRun
    fault: Act
    now: Usual
    usual: Usual

    def objections(self) -> Iterator[str]:
        yield from self._losses()
        yield from self._moves()
        yield from self._lateness()

    @property
    def _changes(self) -> bool:
        """Whether a member may go or come by the fault."""
        kinds = {ActKind.CRASH, ActKind.CLOSE, ActKind.START}
        return ends_a_membership(self.fault) or self.fault.kind in kinds

    @cached_property
    def _at_ms(self) -> int:
        place = self.run.acts.index(self.fault)
        return sum(act.after_ms for act in self.run.acts[: place + 1])

    @cached_property
    def _waits_until_ms(self) -> int:
        """Time until which the round at the time of the fault waits for a session to end; or 0."""
        has_identity = any(act.identity is not Identity.NONE for act in self.run.acts)
        at_ms = until_ms = 0
        for act in self.run.acts:
            at_ms += act.after_ms
            is_silent = act.kind is ActKind.CRASH or (act.kind is ActKind.CLOSE and has_identity)
            if is_silent and not act.is_fault and at_ms <= self._at_ms <= at_ms + _WAIT_MS:
                until_ms = at_ms + _SESSION_MS
        return until_ms

    @property
    def _ends_later_ms(self) -> int:
        """Time at which the last process of the history ends after the fault; or 0.

        If the fault costs the process its identity, it cannot return under it, and the group waits
        for its session.
        """
        at_ms = ended_ms = 0
        for act in self.run.acts:
            at_ms += act.after_ms
            if act.kind in _OF_PROCESS and not act.is_fault and at_ms > self._at_ms:
                ended_ms = at_ms
        return ended_ms

    @cached_property
    def _coming(self) -> int:
        """Return how often a resource may move because processes are coming.

        It moves for each newcomer. If the owner returns too late, it moves away and back. With
        rounds, that happens once: they gather the processes. No round gathers the members of
        KIP-848. The order of their heartbeats, which a fault changes, decides what a target sees of
        each process that comes.

        A round that the fault begins may count a process that crashes meanwhile twice: the life
        that has joined, and the next one.
        """
        by_heartbeats, is_double = is_of_kip848(self.run), False
        at_ms, coming, known, times = 0, set(), set(), 0
        for act in self.run.acts:
            at_ms += act.after_ms
            starts = act.kind in _COMES or (act.kind in _OF_PROCESS and act.for_ms > 0)
            is_recent = at_ms + act.for_ms > self._at_ms - _SESSION_MS or self._waits_until_ms
            if starts and not act.is_fault and is_recent:
                coming.add(act.process)
                restarts = by_heartbeats and act.process in known
                times += 2 if restarts or act.kind is not ActKind.START else 1
                crashes = act.kind in _OF_PROCESS
                is_double |= crashes and 0 <= at_ms - self._at_ms <= _SILENT_MS
            if act.kind is ActKind.START:
                known.add(act.process)
        all_count = self._changes or self.fault.kind is ActKind.MOVE or by_heartbeats
        if not (all_count or is_double or self.fault.process in coming):
            return 0
        return times if by_heartbeats else min(times, 2)

    @property
    def _adds_up(self) -> bool:
        """Whether the group is without a coordinator, and then for the time of the fault, too."""
        moves = [act for act in self.run.acts if act.kind is ActKind.MOVE and act.for_ms]
        outage_ms = sum(act.for_ms for act in moves if not act.is_fault)
        return bool(outage_ms) and outage_ms + self.fault.for_ms > _SESSION_MS - _SILENT_MS

    @property
    def _joins_late(self) -> bool:
        """Whether the group coordinator may serve a JoinGroup after its connection was given up.

        The requests behind a delayed one are late, too. A process that has returned under its kept
        identity meanwhile loses its membership once more.
        """
        keeps = any(act.identity is Identity.STATE_DIR for act in self.run.acts)
        return keeps and self.fault.mishap == Mishap.DELAYED.name and ends_a_membership(self.fault)

    def _losses(self) -> Iterator[str]:
        fault = self.fault
        # Members that wait for a round longer than the rebalance time-out may be out of the group.
        all_may = fault.request in _OF_ROUNDS and fault.for_ms > self.run.rebalance_timeout_ms
        all_may |= self._adds_up
        for process, count in self.now.losses.items():
            may_lose = int(all_may or (process == fault.process and ends_a_membership(fault)))
            may_lose += process == fault.process and self._joins_late
            if count > self.usual.losses.get(process, 0) + may_lose:
                yield f"{process} loses its membership {count} times"

    def _moves(self) -> Iterator[str]:
        if create_assignor(self.run.assignor).needs_lags:
            return  # a fault changes the lags, and with them the target
        if any(act.kind is ActKind.FORGE for act in self.run.acts):
            return  # a fault decides in which round the false claim is made
        fault = self.fault
        returns = ends_a_membership(fault) or (fault.kind in _OF_PROCESS and fault.for_ms > 0)
        more = int(self._changes) + int(returns) + self._coming
        for resource, count in self.now.gains.items():
            if count > self.usual.gains.get(resource, 0) + more:
                yield f"{resource.name}-{resource.index} moves {count} times"
        comes = returns or self._coming or fault.kind is ActKind.START
        share = (len(self.now.gains) + 1) // 2 + self._coming if comes else 0
        for process, count in self.now.stops.items():
            if process != fault.process and count > self.usual.stops.get(process, 0) + share:
                yield f"{process} stops {count} resources, at most {share} more than without fault"

    def _lateness(self) -> Iterator[str]:
        fault, options = self.fault, self.run.policy.options
        delay_ms, interval_ms = (
            int(str(options.get(name, 0)))
            for name in ("scheduled_rebalance_timeout_ms", "move_interval_ms")
        )
        revoking = max(self.now.revoking_rounds - self.usual.revoking_rounds, 0)
        more = _ROUNDS_OF_A_MEMBER if self._changes else 1 + 2 * self._coming
        rounds_max = self.usual.rounds + 2 * revoking + more
        if self.now.rounds > rounds_max:
            yield f"{self.now.rounds} rounds, at most {rounds_max}"
        leaves_ms = fault.number if fault.kind is ActKind.CRASH else 0
        silent_ms = self._at_ms + fault.for_ms + leaves_ms
        if self._changes:
            silent_ms = max(silent_ms, self._waits_until_ms, self._ends_later_ms)
        ends_ms = silent_ms + _SESSION_MS + delay_ms
        until_ms = max(self.usual.moved_until_ms + fault.for_ms, ends_ms) + _SLACK_MS
        until_ms += self.now.revoking_rounds * interval_ms
        until_ms += _WARM_MS if "warmup" in options else 0
        if self.now.moved_until_ms > until_ms:
            yield f"still moves at {self.now.moved_until_ms}, must rest at {until_ms}"
