"""The table of states of a member of KIP-848: events reach each row; other moves are refused."""

from collections.abc import Callable, Mapping
from itertools import product

import pytest

from coopgroup.core.member import ErrorCode, MemberState, Trigger
from coopgroup.core.member.consumer.transitions import MOVES
from coopgroup.core.member.events import (
    ApplicationStalled,
    Event,
    LossHandled,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.core.member.transitions import AT_WORK
from coopgroup.core.member.turn import Turn
from coopgroup.core.model import EMPTY
from coopgroup.errors import LocalProtocolError
from tests.support.consumer_members import (
    CLOSED,
    EVERY_STATE,
    LEAVE,
    T0,
    T1,
    DrivenConsumer,
    joining,
    revoking,
    stable,
)
from tests.support.members import HELD

Way = Callable[[], DrivenConsumer]
Row = tuple[MemberState, Trigger]
LATE = RevocationCompleted(resources=HELD)
SUBSCRIBED = SubscriptionChanged(topics=("T", "U"))
_S = MemberState
_T = Trigger


def given(reach: Way, event: Event) -> Way:
    return lambda: reach().give(event)


def refused(reach: Way, code: ErrorCode) -> Way:
    return lambda: reach().fail_beat(code)


def common_ways() -> dict[Row, Way]:
    """Return the ways of events with the same effect in many states."""
    events: dict[Trigger, Event] = {_T.SUBSCRIBED: SUBSCRIBED, _T.LEAVE: CLOSED}
    ways: dict[Row, Way] = {
        (state, trigger): given(EVERY_STATE[state], event)
        for state, row in MOVES.items()
        for trigger, event in events.items()
        if trigger in row
    }
    for state in MOVES.keys() & AT_WORK:
        ways[state, _T.LOST] = given(EVERY_STATE[state], ApplicationStalled())
        ways[state, _T.FAIL] = refused(EVERY_STATE[state], ErrorCode.FENCED_INSTANCE_ID)
    return ways


WAYS: Mapping[Row, Way] = {
    **common_ways(),
    (_S.JOINING, _T.ASSIGNED): stable,
    (_S.JOINING, _T.LOST_NOTHING): refused(joining, ErrorCode.UNKNOWN_MEMBER_ID),
    (_S.STABLE, _T.ASSIGNED_WITH_REVOCATION): revoking,
    (_S.STABLE, _T.LOST_NOTHING): refused(lambda: stable(held=EMPTY), ErrorCode.UNKNOWN_MEMBER_ID),
    (_S.REVOKING, _T.ASSIGNED_WITH_REVOCATION): lambda: revoking().beat(EMPTY),
    (_S.REVOKING, _T.REVOKED): lambda: revoking().stop(T1),
    (_S.LOSING, _T.LOSS_HANDLED): given(EVERY_STATE[_S.LOSING], LossHandled()),
    (_S.LEAVING, _T.LEFT): lambda: EVERY_STATE[_S.LEAVING]().refuse(LEAVE, ErrorCode.NONE),
}
ROWS = [(state, trigger) for state, row in MOVES.items() for trigger in row]
HOLES = [(state, trigger) for state in MOVES for trigger in Trigger if (state, trigger) not in ROWS]


def _row_is_reached_by_events(
    state: MemberState, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[tuple[Row, MemberState]] = []
    move = Turn.move

    def recorded(turn: Turn, trigger: Trigger, cause: str) -> None:
        before = turn.member.state
        move(turn, trigger, cause)
        moves.append(((before, trigger), turn.member.state))

    with monkeypatch.context() as patch:
        patch.setattr(Turn, "move", recorded)
        WAYS[state, trigger]()
    assert ((state, trigger), MOVES[state][trigger]) in moves


def test_row_is_reached_by_events(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for state, trigger in ROWS:
        with subtests.test(state=state, trigger=trigger):
            _row_is_reached_by_events(state, trigger, monkeypatch)


def test_hole_is_refused_and_changes_nothing(subtests: pytest.Subtests) -> None:
    for state, trigger in HOLES:
        with subtests.test(state=state, trigger=trigger):
            member = EVERY_STATE[state]().member
            turn = Turn(member=member, now_ms=10_000)
            with pytest.raises(LocalProtocolError, match=f"{state.value} cannot be moved by"):
                turn.move(trigger, "a test")
            assert (turn.member, turn.effects) == (member, [])


def test_table_has_the_seven_states_that_events_reach() -> None:
    assert set(MOVES) == {reach().member.state for reach in EVERY_STATE.values()}
    assert len(MOVES) == 7


def test_application_may_answer_in_every_state(subtests: pytest.Subtests) -> None:
    late: tuple[tuple[MemberState, Event], ...] = ((_S.REVOKING, LATE), (_S.LOSING, LossHandled()))
    for (waiting, answer), state in product(late, MOVES):
        with subtests.test(state=state, answer=answer):
            before = EVERY_STATE[state]().member
            is_ignored = EVERY_STATE[state]().give(answer).member == before
            assert is_ignored == (state is not waiting)


def test_only_stable_and_revoking_members_own_something(subtests: pytest.Subtests) -> None:
    for state in MOVES:
        with subtests.test(state=state):
            owned = {_S.STABLE: HELD, _S.REVOKING: HELD}
            assert EVERY_STATE[state]().member.owned == owned.get(state, EMPTY)
            assert revoking().stop(T1).member.owned == T0
