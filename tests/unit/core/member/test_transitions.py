"""The table of states: events reach each row, and each missing move is refused."""

from collections.abc import Callable, Mapping
from itertools import product

import pytest

from coopgroup.core.member import TRANSITIONS, ErrorCode, MemberState, RequestKind, Trigger
from coopgroup.core.member.events import (
    ApplicationStalled,
    Event,
    LeaveRequested,
    LossHandled,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.core.member.transitions import AT_WORK
from coopgroup.core.member.turn import Turn
from coopgroup.errors import LocalProtocolError
from tests.support.members import (
    EVERY_STATE,
    HELD,
    OUT_OF_WORK,
    WITH_NOTHING,
    WITH_RESOURCES,
    DrivenMember,
    eager,
    joined_again,
    joining,
    leading,
    rejoining,
    rejoining_while_it_stops,
    returning,
    revoking,
    speaking,
    stable,
    syncing,
    syncing_again,
)

Way = Callable[[], DrivenMember]
Row = tuple[MemberState, Trigger]

LATE = RevocationCompleted(resources=HELD)
SUBSCRIBED = SubscriptionChanged(topics=("T", "U"))
LEAVE = LeaveRequested(reason="closed")

_S = MemberState
_T = Trigger


AT_WORK_WAYS: Mapping[MemberState, Way] = {**WITH_RESOURCES, _S.RETURNING: returning}


def given(reach: Way, event: Event) -> Way:
    return lambda: reach().give(event)


def out_of_a_heartbeat(reach: Way, code: ErrorCode) -> Way:
    """Return the way that ends with a heartbeat's answer."""
    return lambda: reach().heartbeat(code)


def refused(reach: Way, kind: RequestKind, code: ErrorCode) -> Way:
    return lambda: reach().refuse(kind, code)


def common_ways() -> dict[Row, Way]:
    """Return the ways of events with the same effect in many states."""
    ways: dict[Row, Way] = {}
    for state, reach in {**WITH_NOTHING, **OUT_OF_WORK, **WITH_RESOURCES}.items():
        if _T.SUBSCRIBED in TRANSITIONS[state]:
            ways[state, _T.SUBSCRIBED] = given(reach, SUBSCRIBED)
        if _T.LEAVE in TRANSITIONS[state]:
            ways[state, _T.LEAVE] = given(reach, LEAVE)
    for state in AT_WORK:
        ways[state, _T.LOST] = given(AT_WORK_WAYS[state], ApplicationStalled())
        fenced = out_of_a_heartbeat(AT_WORK_WAYS[state], ErrorCode.FENCED_INSTANCE_ID)
        ways[state, _T.FAIL] = fenced
    return ways


def join_refused(code: ErrorCode) -> Way:
    return refused(joining, RequestKind.JOIN_GROUP, code)


WAYS: Mapping[Row, Way] = {
    **common_ways(),
    (_S.UNSUBSCRIBED, _T.RETURN): returning,
    (_S.RETURNING, _T.KNOWN): out_of_a_heartbeat(returning, ErrorCode.NONE),
    (_S.RETURNING, _T.REJOIN): out_of_a_heartbeat(returning, ErrorCode.REBALANCE_IN_PROGRESS),
    (_S.RETURNING, _T.LOST_NOTHING): out_of_a_heartbeat(returning, ErrorCode.ILLEGAL_GENERATION),
    (_S.JOINING, _T.MEMBER_ID_GIVEN): join_refused(ErrorCode.MEMBER_ID_REQUIRED),
    (_S.JOINING, _T.JOINED_AS_LEADER): leading,
    (_S.JOINING, _T.JOINED_AS_FOLLOWER): syncing,
    (_S.JOINING, _T.RETURN): joined_again,
    (_S.JOINING, _T.REJOIN): join_refused(ErrorCode.NO_ANSWER),
    (_S.JOINING, _T.GIVE_UP_ALL): refused(
        lambda: speaking(rejoining(), "coopgroup", "range"),
        RequestKind.JOIN_GROUP,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    (_S.JOINING, _T.LOST_NOTHING): join_refused(ErrorCode.UNKNOWN_MEMBER_ID),
    (_S.LEADING, _T.ROUND_DECIDED): lambda: leading().decide(),
    (_S.LEADING, _T.LOST_NOTHING): out_of_a_heartbeat(leading, ErrorCode.UNKNOWN_MEMBER_ID),
    (_S.SYNCING, _T.ASSIGNED): stable,
    (_S.SYNCING, _T.ASSIGNED_WITH_REVOCATION): revoking,
    (_S.SYNCING, _T.ASSIGNED_WITH_FOLLOW_UP): lambda: syncing_again().sync(HELD, follow_up=True),
    (_S.SYNCING, _T.REJOIN): refused(
        syncing, RequestKind.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS
    ),
    (_S.SYNCING, _T.LOST_NOTHING): out_of_a_heartbeat(syncing, ErrorCode.UNKNOWN_MEMBER_ID),
    (_S.STABLE, _T.REJOIN): out_of_a_heartbeat(stable, ErrorCode.REBALANCE_IN_PROGRESS),
    (_S.STABLE, _T.LOST_NOTHING): out_of_a_heartbeat(
        WITH_NOTHING[_S.STABLE], ErrorCode.UNKNOWN_MEMBER_ID
    ),
    (_S.REVOKING, _T.REVOKED): given(revoking, LATE),
    (_S.REVOKING, _T.REJOIN): rejoining_while_it_stops,
    (_S.STABLE, _T.GIVE_UP_ALL): out_of_a_heartbeat(
        lambda: eager(stable()), ErrorCode.REBALANCE_IN_PROGRESS
    ),
    (_S.LOSING, _T.LOSS_HANDLED): given(OUT_OF_WORK[_S.LOSING], LossHandled()),
    (_S.LEAVING, _T.LEFT): refused(
        OUT_OF_WORK[_S.LEAVING], RequestKind.LEAVE_GROUP, ErrorCode.NONE
    ),
}
ROWS = [(state, trigger) for state, row in TRANSITIONS.items() for trigger in row]
HOLES = [
    (state, trigger) for state in MemberState for trigger in Trigger if (state, trigger) not in ROWS
]


def moved_by(way: Way, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Row, MemberState]]:
    """Return every move on the way: state, trigger and next state."""
    moves: list[tuple[Row, MemberState]] = []
    move = Turn.move

    def recorded(turn: Turn, trigger: Trigger, cause: str) -> None:
        before = turn.member.state
        move(turn, trigger, cause)
        moves.append(((before, trigger), turn.member.state))

    with monkeypatch.context() as patch:
        patch.setattr(Turn, "move", recorded)
        way()
    return moves


def test_every_state_has_a_row_of_its_own() -> None:
    assert list(TRANSITIONS) == list(MemberState)
    assert all(TRANSITIONS[state] for state in MemberState)


def test_row_is_reached_by_events(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for state, trigger in ROWS:
        with subtests.test(state=state, trigger=trigger):
            moves = moved_by(WAYS[state, trigger], monkeypatch)
            assert ((state, trigger), TRANSITIONS[state][trigger]) in moves


def test_hole_is_refused_and_changes_nothing(subtests: pytest.Subtests) -> None:
    for state, trigger in HOLES:
        with subtests.test(state=state, trigger=trigger):
            member = EVERY_STATE[state]().member
            turn = Turn(member=member, now_ms=10_000)
            with pytest.raises(LocalProtocolError, match=f"{state.value} cannot be moved by"):
                turn.move(trigger, "a test")
            assert (turn.member, turn.effects) == (member, [])


ILLEGAL: list[tuple[MemberState, Event]] = [
    *((state, LEAVE) for state in MemberState if _T.LEAVE not in TRANSITIONS[state]),
    *((state, SUBSCRIBED) for state in MemberState if _T.SUBSCRIBED not in TRANSITIONS[state]),
]


def test_illegal_event_is_refused_and_changes_nothing(subtests: pytest.Subtests) -> None:
    for state, event in ILLEGAL:
        with subtests.test(state=state, event=event):
            driven = EVERY_STATE[state]()
            before = driven.member
            with pytest.raises(LocalProtocolError):
                driven.give(event)
            assert driven.member == before
            assert driven.member.state is state


def test_application_may_answer_in_every_state(subtests: pytest.Subtests) -> None:
    """Regressions, named 3700000484 and hosted 3970000508: the application had closed before."""
    late: tuple[tuple[MemberState, Event], ...] = ((_S.REVOKING, LATE), (_S.LOSING, LossHandled()))
    for (waiting, answer), state in product(late, MemberState):
        with subtests.test(state=state, answer=answer):
            before = EVERY_STATE[state]().member
            is_ignored = EVERY_STATE[state]().give(answer).member == before
            assert is_ignored == (state is not waiting)


def test_set_when_there_is_no_such_field_raises() -> None:
    turn = Turn(member=joining().member, now_ms=0)
    with pytest.raises(TypeError, match="Member has no colour, weight"):
        turn.set(weight=1, colour="red", generation=3)
