"""What exhaustion reached: rows of the core's tables, kinds of claims, and events of the member.

    with covering() as reached:
        ...
    missing(reached)    # by table

The safety rules are checked in every round. A plan that violates one is a failure of its run, so
they need no count.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np
import pytest

from coopgroup.core.leader import answer
from coopgroup.core.member import commits, machine, refusals
from coopgroup.core.member.error_actions import RequestKind, action_for
from coopgroup.core.member.events import Event
from coopgroup.core.member.transitions import TRANSITIONS, MemberState
from coopgroup.core.member.turn import Turn
from coopgroup.core.policies import tables
from coopgroup.core.policies.tables import DecisionTable
from tests.swarm.faults import codes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TABLES: Final = ("CAUSES", "LOSS_ACTIONS", "MOVE_MODES", "RECEIVERS", "RESOURCE_ACTIONS")
CLAIMS: Final = ("alone", "of the newest generation", "stale", "tied", "without a subscription")
_NAMES: Final = {id(getattr(tables, name)): name for name in (*TABLES, "LAG_STEPS")}

# Pairs of a state and an event that no run can have, with the reason.
_ALL: Final = frozenset(MemberState)
IMPOSSIBLE: Final[Mapping[str, tuple[frozenset[MemberState], str]]] = {
    "CatalogueSeen": (_ALL, "only groups of named resources have a catalogue"),
    "BellRang": (_ALL, "histories have no bell"),
    "WarmupFailed": (_ALL, "no warm-up fails by itself in a history"),
    "WarmSetDeclared": (
        _ALL - {MemberState.UNSUBSCRIBED},
        "an application declares its state before it subscribes",
    ),
    "LossHandled": (
        _ALL - {MemberState.LOSING, MemberState.FAILED},
        "an application answers each loss once, and the member waits for it",
    ),
    "RoundDecided": (
        frozenset({MemberState.UNSUBSCRIBED}),
        "a process that has left the group ends at once",
    ),
}
"""States in which an event never occurs, and why."""


def pair(state: MemberState, event: str) -> str:
    """Return the name of a pair of a state and an event."""
    return f"event: {state.value}, {event}"


def _error(kind: RequestKind, code: int) -> str:
    """Return the name of all rows of a request with the same action: a single fault has one."""
    return f"error: {kind.value}, {action_for(kind, code).value}"


def possible() -> set[str]:
    """Return all that can be reached, by name."""
    rows = {f"transition: {s.value}, {t.value}" for s, row in TRANSITIONS.items() for t in row}
    for kind in set(RequestKind) - {RequestKind.CONSUMER_BEAT}:  # all histories are classic
        rows |= {_error(kind, code) for code in codes_of(kind, every=True)}
    for name in TABLES:
        rows |= {f"{name}: {number}" for number in range(len(getattr(tables, name).rows))}
    rows |= {f"claim: {kind}" for kind in CLAIMS}
    events = [event.__name__ for event in get_args(Event)]
    impossible = impossible_pairs()
    return rows | {pair(s, e) for s in MemberState for e in events} - impossible


def impossible_pairs() -> set[str]:
    """Return the pairs of a state and an event that no run can have."""
    return {pair(state, event) for event, (states, _) in IMPOSSIBLE.items() for state in states}


@contextmanager
def covering() -> Iterator[set[str]]:
    """Note what is reached meanwhile."""
    reached: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        move, take = Turn.move, machine._take  # noqa: SLF001
        resolve = vars(answer)["resolve_claims"]
        decide, decide_each = DecisionTable.decide, DecisionTable.decide_each

        def moved(turn: Turn, trigger: Any, cause: str) -> None:  # noqa: ANN401 - passed on
            reached.add(f"transition: {turn.member.state.value}, {trigger.value}")
            move(turn, trigger, cause)

        def taken(turn: Turn, event: Any) -> None:  # noqa: ANN401 - passed on
            reached.add(pair(turn.member.state, type(event).__name__))
            take(turn, event)

        def acted(kind: RequestKind, code: int) -> Any:  # noqa: ANN401 - passed on
            if code:
                reached.add(_error(kind, code))
            return action_for(kind, code)

        def resolved(*arguments: Any) -> Any:  # noqa: ANN401 - passed on
            group = resolve(*arguments)
            reached.update(f"claim: {kind}" for kind in _kinds_of_claims(group))
            return group

        def decided(table: Any, **facts: bool) -> Any:  # noqa: ANN401 - passed on
            place = next(n for n, row in enumerate(table.rows) if row.fits(facts))
            reached.add(f"{_NAMES[id(table)]}: {place}")
            return decide(table, **facts)

        def decided_each(table: Any, **facts: Any) -> Any:  # noqa: ANN401 - passed on
            size = next(iter(facts.values())).size
            open_cases = np.ones(size, dtype=np.bool_)
            for place, row in enumerate(table.rows):
                fits = open_cases & row.fits_each(facts) if row.when else open_cases
                if fits.any():
                    reached.add(f"{_NAMES[id(table)]}: {place}")
                open_cases = open_cases & ~fits
            return decide_each(table, **facts)

        patch.setattr(Turn, "move", moved)
        patch.setattr(machine, "_take", taken)
        patch.setattr(refusals, "action_for", acted)
        patch.setattr(commits, "action_for", acted)
        patch.setattr(answer, "resolve_claims", resolved)
        patch.setattr(DecisionTable, "decide", decided)
        patch.setattr(DecisionTable, "decide_each", decided_each)
        yield reached


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
