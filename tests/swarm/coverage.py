"""What exhaustion reached: rows of the core's tables, kinds of claims, and events of the member.

    with covering() as reached:
        ...
    possible() - reached    # what is missing

The safety rules are checked in every round, and a plan that violates one is a failure of its run.
A rule counts as reached if a plan had a case that the rule is about.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import numpy as np
import pytest

from coopgroup.core.leader import answer, decision
from coopgroup.core.member import GroupProtocol, commits, machine, refusals
from coopgroup.core.member.consumer import answers as consumer_answers
from coopgroup.core.member.consumer import machine as consumer_machine
from coopgroup.core.member.consumer.transitions import MOVES
from coopgroup.core.member.error_actions import RequestKind, action_for
from coopgroup.core.member.events import Event
from coopgroup.core.member.transitions import TRANSITIONS, MemberState, Moves, Trigger
from coopgroup.core.member.turn import Turn
from coopgroup.core.policies import tables
from coopgroup.core.policies.safety import violations
from coopgroup.core.policies.tables import DecisionTable
from tests.swarm.faults import codes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coopgroup.core.model import GroupSnapshot, RoundPlan

TABLES: Final = (
    "CAUSES",
    "LOSS_ACTIONS",
    "MOVE_MODES",
    "RECEIVERS",
    "RESOURCE_ACTIONS",
    "LAG_STEPS",
)
CLAIMS: Final = ("alone", "of the newest generation", "stale", "tied", "without a subscription")
_NAMES: Final = {id(getattr(tables, name)): name for name in TABLES}

# Cases that the safety rules are about, in a group and its plan.
SAFETY: Final[Mapping[str, Callable[[GroupSnapshot, RoundPlan], bool]]] = {
    "a claim that its member must stop": lambda group, plan: bool(
        (plan.assigned[group.claim_resources] != group.claim_members).any()
    ),
    "claims that cancel each other": lambda group, _: bool(group.contested.any()),
    "a resource that does not exist": lambda group, _: not group.assignable.all(),
    "a member without a subscription": lambda group, _: (
        not all(
            group.may_hold(np.full(len(group.resources), number, dtype=np.int32)).all()
            for number in range(len(group.members))
        )
    ),
    "an unreadable member": lambda group, _: not all(one.readable for one in group.members),
    "a resource that is lost": lambda _, plan: bool(plan.lost.any()),
    "a resource that is created": lambda _, plan: bool(plan.created.any()),
    "a resource that waits": lambda _, plan: bool(plan.waiting.any()),
    "a resource that waits for members": lambda _, plan: (
        plan.waiting_for_members is not None and bool(plan.waiting_for_members.any())
    ),
    "a scheduled rejoin": lambda _, plan: plan.rejoin_in_ms is not None,
    "an announced end of a loss": lambda _, plan: plan.loss_ends_in_ms is not None,
    "a follow-up": lambda _, plan: plan.follow_up,
    "a claim that is stopped once more": lambda _, plan: (
        plan.stopping is not None and bool(plan.stopping.any())
    ),
    "a warm-up": lambda _, plan: plan.warmup_members.size > 0,
}

_MOVES: Final[Mapping[GroupProtocol, Moves]] = {
    GroupProtocol.CLASSIC: TRANSITIONS,
    GroupProtocol.CONSUMER: MOVES,
}

# Pairs of a state and an event that no history has, also with a fault, and the reason.
_S: Final = MemberState
_ALL: Final = frozenset(MemberState)
_Impossible: TypeAlias = tuple[tuple[frozenset[MemberState], tuple[str, ...], str], ...]
IMPOSSIBLE: Final[_Impossible] = (
    (_ALL, ("CatalogueSeen",), "only groups of named resources have a catalogue"),
    (_ALL, ("BellRang",), "no classic member of a history has a bell"),
    (_ALL, ("SessionTimeoutFound",), "a simulated member has the timeout of its broker"),
    (_ALL, ("WarmupFailed",), "no warm-up fails by itself in a history"),
    (
        _ALL - {_S.UNSUBSCRIBED},
        ("WarmSetDeclared",),
        "an application declares its state before it subscribes",
    ),
    (
        _ALL - {_S.LOSING},
        ("LossHandled",),
        "no application of a history answers a loss late, so its member still waits",
    ),
    (
        frozenset({_S.UNSUBSCRIBED}),
        (
            "Answered",
            "ApplicationStalled",
            "AssignmentsDecided",
            "CommitRequested",
            "LeaveRequested",
            "RejoinRequested",
            "RequestFailed",
            "RevocationCompleted",
            "StartsDeclined",
            "WarmedUp",
            "Woken",
        ),
        "a process subscribes when it starts, and ends when it has left the group",
    ),
    (
        frozenset({_S.RETURNING, _S.FAILED}),
        ("CommitRequested",),
        "an application that has nothing commits nothing",
    ),
    (
        frozenset({_S.RETURNING, _S.STABLE, _S.LEAVING}),
        ("RevocationCompleted",),
        "no stop is reported after a loss was answered or in a close; a stable member has none",
    ),
    (
        frozenset({_S.RETURNING}),
        ("AssignmentsDecided", "WarmedUp"),
        "a decision or a warm-up would have to outlast the loss and the return of its member",
    ),
    (
        frozenset({_S.REVOKING}),
        ("AssignmentsDecided",),
        "a leader that loses needs two rounds to stop something: its decision is there before",
    ),
    (
        frozenset({_S.LEAVING}),
        (
            "CommitRequested",
            "LeaveRequested",
            "RejoinRequested",
            "StartsDeclined",
            "SubscriptionChanged",
            "WarmedUp",
        ),
        (
            "an application that closes does nothing else, and a leave takes a few ms; "
            "a static leader, which looks over its group after a return, leaves silently"
        ),
    ),
    (
        frozenset({_S.FAILED}),
        (
            "ApplicationStalled",
            "AssignmentsDecided",
            "LeaveRequested",
            "RejoinRequested",
            "RevocationCompleted",
            "StartsDeclined",
            "SubscriptionChanged",
            "WarmedUp",
            "Woken",
        ),
        "a process that failed ends a ms later, and no history has the event in that ms",
    ),
)
"""States in which events do not occur in histories, and why."""

IMPOSSIBLE_OF_KIP848: Final[_Impossible] = (
    *(row for row in IMPOSSIBLE if row[1] != ("BellRang",)),
    (
        _ALL,
        (
            "AssignmentsDecided",
            "RejoinRequested",
            "StartsDeclined",
            "WarmSetDeclared",
            "WarmedUp",
        ),
        "the broker assigns: nothing concerns a leader, and nothing warms up",
    ),
    (
        frozenset({_S.JOINING}),
        ("CommitRequested", "RevocationCompleted"),
        "a member of KIP-848 joins with nothing",
    ),
    (frozenset({_S.LOSING}), ("CommitRequested",), "it has nothing to commit"),
    (
        frozenset({_S.UNSUBSCRIBED, _S.FAILED}),
        ("BellRang",),
        "a process subscribes when it starts, ends when it has left, and a ms after it has failed",
    ),
    (
        frozenset({_S.FAILED}),
        ("RequestFailed",),
        "a process that failed ends a ms later, and no history has the event in that ms",
    ),
)
"""States of a member of KIP-848 in which events do not occur in histories, and why."""

_IMPOSSIBLE_OF: Final[Mapping[GroupProtocol, _Impossible]] = {
    GroupProtocol.CLASSIC: IMPOSSIBLE,
    GroupProtocol.CONSUMER: IMPOSSIBLE_OF_KIP848,
}

IMPOSSIBLE_MOVES: Final[Mapping[str, str]] = {
    ": unsubscribed, leave": "a process that has left the group ends at once",
    ": failed, leave": "a process that failed is killed",
    " of KIP-848: unsubscribed, leave": "a process that has left the group ends at once",
    " of KIP-848: revoking, assigned with revocation": (
        "the broker tells a member nothing new until it has given up what it was told to stop"
    ),
    " of KIP-848: failed, leave": "a process that failed is killed",
}
"""Moves that do not occur in histories, and why."""


def pair(state: MemberState, event: str, protocol: GroupProtocol = GroupProtocol.CLASSIC) -> str:
    """Return the name of a pair of a state and an event."""
    return f"event{_of(protocol)}: {state.value}, {event}"


def _transition(state: MemberState, trigger: Trigger, protocol: GroupProtocol) -> str:
    return f"transition{_of(protocol)}: {state.value}, {trigger.value}"


def _of(protocol: GroupProtocol) -> str:
    """Return what tells apart the names of the two machines."""
    return " of KIP-848" if protocol is GroupProtocol.CONSUMER else ""


def _error(kind: RequestKind, code: int) -> str:
    """Return the name of all rows of a request with the same action: a single fault has one."""
    return f"error: {kind.value}, {action_for(kind, code).value}"


def possible() -> set[str]:
    """Return all that can be reached, by name."""
    rows = {
        _transition(state, trigger, protocol)
        for protocol, moves in _MOVES.items()
        for state, row in moves.items()
        for trigger in row
    }
    for kind in RequestKind:
        rows |= {_error(kind, code) for code in codes_of(kind, every=True)}
    for name in TABLES:
        rows |= {f"{name}: {number}" for number in range(len(getattr(tables, name).rows))}
    rows |= {f"claim: {kind}" for kind in CLAIMS} | {f"safety: {case}" for case in SAFETY}
    events = [event.__name__ for event in get_args(Event)]
    rows |= {pair(s, e, of) for of, moves in _MOVES.items() for s in moves for e in events}
    return rows - impossible_pairs()


def impossible_pairs() -> set[str]:
    """Return the pairs of a state and an event, and the moves, that no run can have."""
    pairs = {
        pair(s, event, protocol)
        for protocol, rows in _IMPOSSIBLE_OF.items()
        for states, events, _ in rows
        for event in events
        for s in states
    }
    return pairs | {f"transition{move}" for move in IMPOSSIBLE_MOVES}


@contextmanager
def covering() -> Iterator[set[str]]:
    """Note what is reached meanwhile."""
    reached: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        move = Turn.move
        resolve = vars(answer)["resolve_claims"]
        decide, decide_each = DecisionTable.decide, DecisionTable.decide_each

        def moved(turn: Turn, trigger: Any, cause: str) -> None:  # noqa: ANN401 - passed on
            member = turn.member
            reached.add(_transition(member.state, trigger, member.config.protocol))
            move(turn, trigger, cause)

        def acted(kind: RequestKind, code: int) -> Any:  # noqa: ANN401 - passed on
            if code:
                reached.add(_error(kind, code))
            return action_for(kind, code)

        def resolved(*arguments: Any) -> Any:  # noqa: ANN401 - passed on
            group = resolve(*arguments)
            reached.update(f"claim: {kind}" for kind in _kinds_of_claims(group))
            return group

        def checked(group: GroupSnapshot, plan: RoundPlan, **options: Any) -> Any:  # noqa: ANN401 - passed on
            problems = violations(group, plan, **options)
            names = {case: f"safety: {case}" for case in SAFETY}
            reached.update(
                name
                for case, name in names.items()
                if not problems and name not in reached and SAFETY[case](group, plan)
            )
            return problems

        def decided(table: Any, **facts: bool) -> Any:  # noqa: ANN401 - passed on
            place = next(n for n, row in enumerate(table.rows) if row.fits(facts))
            reached.add(f"{_NAMES[id(table)]}: {place}")
            return decide(table, **facts)

        def decided_each(table: Any, **facts: Any) -> Any:  # noqa: ANN401 - passed on
            reached.update(_rows_of_each(table, facts, reached))
            return decide_each(table, **facts)

        patch.setattr(Turn, "move", moved)
        for one in (machine, consumer_machine):
            patch.setattr(one, "_take", _noting(reached, one._take))  # noqa: SLF001
        patch.setattr(refusals, "action_for", acted)
        patch.setattr(consumer_answers, "action_for", acted)
        patch.setattr(commits, "action_for", acted)
        patch.setattr(answer, "resolve_claims", resolved)
        patch.setattr(decision, "violations", checked)
        patch.setattr(DecisionTable, "decide", decided)
        patch.setattr(DecisionTable, "decide_each", decided_each)
        yield reached


def _noting(
    reached: set[str], take: Callable[[Turn, Event], None]
) -> Callable[[Turn, Event], None]:
    """Return a function that takes an event, and notes it with the state of its member."""

    def taken(turn: Turn, event: Event) -> None:
        member = turn.member
        reached.add(pair(member.state, type(event).__name__, member.config.protocol))
        take(turn, event)

    return taken


def _rows_of_each(table: Any, facts: Any, known: set[str]) -> Iterator[str]:  # noqa: ANN401 - any table
    """Yield the rows that decide some cases; none if all rows of the table are known."""
    name, size = _NAMES[id(table)], next(iter(facts.values())).size
    names = [f"{name}: {number}" for number in range(len(table.rows))]
    if known.issuperset(names):
        return
    open_cases = np.ones(size, dtype=np.bool_)
    for row, row_name in zip(table.rows, names, strict=True):
        fits = open_cases & row.fits_each(facts) if row.when else open_cases
        if fits.any():
            yield row_name
        open_cases = open_cases & ~fits


def _kinds_of_claims(group: Any) -> Iterator[str]:  # noqa: ANN401 - a snapshot
    times = np.bincount(group.claim_resources, minlength=len(group.resources))
    if (times == 1).any():
        yield CLAIMS[0]
    if (times > 1).any():
        rightful = group.owner[group.claim_resources] == group.claim_members
        several = times[group.claim_resources] > 1
        if (several & rightful).any():
            yield CLAIMS[1]
        if (several & ~rightful & ~group.contested[group.claim_resources]).any():
            yield CLAIMS[2]
        if group.contested.any():
            yield CLAIMS[3]
    if not group.subscribes(group.claim_members, group.claim_resources).all():
        yield CLAIMS[4]
