"""Requests that a member tries again without end, and when it tells so.

A member never gives up on a coordinator: a fault of the cluster ends, and the member must be there
then. The application hears of such a fault after a bounded time (`Retries`), and once more when
the request succeeds. It is told when a failure arrives. So it needs no deadline of its own.

`REJOIN` does not count as a failure: a round has begun, and another follows. `TAKE_ID` and
`AFTER_SYNC` leave the request open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.core.member.effects import Report
from coopgroup.core.member.error_actions import (
    OF_A_ROUND,
    TRIED_AGAIN,
    Action,
    RequestKind,
    action_for,
    error_name,
    usual_cause,
)
from coopgroup.core.member.events import RequestFailed
from coopgroup.core.member.transitions import AT_WORK
from coopgroup.core.model.group_api import OffsetCommitAnswer
from coopgroup.core.model.retries import Retries
from coopgroup.core.telemetry.records import RequestRetried

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from coopgroup.core.member.events import Answered
    from coopgroup.core.member.member import Member, Outstanding
    from coopgroup.core.member.turn import Turn

_FAILURES: Final = TRIED_AGAIN | {Action.REJOIN_LATER}
# The next round may end in the same way. A heartbeat learns of each loss only once.
_FAILURES_OF_A_ROUND: Final = _FAILURES | {Action.LOSE, Action.LOSE_ID}
_JOINING: Final = OF_A_ROUND | {RequestKind.CONSUMER_BEAT}
_OPEN: Final = frozenset({Action.REJOIN, Action.TAKE_ID, Action.AFTER_SYNC})


def take_outstanding(
    turn: Turn, event: Answered | RequestFailed
) -> tuple[RequestKind, Outstanding] | None:
    """Return the request that an outcome belongs to, and count it as on its way no longer.

    Returns:
        The request; None if the member gave it up before its answer came.
    """
    outstanding = turn.member.outstanding
    found = [pair for pair in outstanding.items() if pair[1].request_id == event.request_id]
    if not found:
        return None
    kind, sent = found[0]
    turn.set(outstanding={other: one for other, one in outstanding.items() if other is not kind})
    note_outcome(turn, kind, sent, event)
    if not isinstance(event, RequestFailed) and kind is not RequestKind.FIND_COORDINATOR:
        turn.set(heard_at_ms=turn.now_ms)  # any broker answers a look-up
    return kind, sent


def note_outcome(
    turn: Turn, kind: RequestKind, sent: Outstanding, event: Answered | RequestFailed
) -> None:
    """Note whether a request must be tried again, and tell it if that is due."""
    if turn.member.state not in AT_WORK:
        return
    codes = _codes(event)
    actions = {code: action_for(kind, code) for code in codes}
    failures = _FAILURES_OF_A_ROUND if kind in _JOINING else _FAILURES
    failed = [code for code, action in actions.items() if action in failures]
    if failed:
        _note_failure(turn, kind, sent, failed[0])
    elif kind is RequestKind.HEARTBEAT or _OPEN.isdisjoint(actions.values()):
        _note_success(turn, kind)


def told_retries(member: Member, now_ms: int) -> tuple[str, ...]:
    """Return the requests that the member has told of as retried, one sentence each."""
    return tuple(
        f"{kind.value} fails for {(now_ms - one.since_ms) / 1000:.1f} s: "
        f"{one.error}{usual_cause(one.code, ': ')}"
        for kind, one in member.retries.items()
        if one.told_at_ms is not None
    )


def _codes(event: Answered | RequestFailed) -> AbstractSet[int]:
    if isinstance(event, RequestFailed):
        return {event.code}
    answer = event.answer
    if isinstance(answer, OffsetCommitAnswer):
        return {code for _, _, code in answer.codes}
    return {answer.error_code}


def _note_failure(turn: Turn, kind: RequestKind, sent: Outstanding, code: int) -> None:
    before = turn.member.retries.get(kind)
    # Requests of a round wait for other members. This wait is not part of the failure.
    began_ms = turn.now_ms if kind in OF_A_ROUND else sent.sent_at_ms
    failed = Retries(since_ms=began_ms) if before is None else before
    failed = attrs.evolve(failed, error=error_name(code), code=code)
    told = failed.told(turn.now_ms)
    turn.set(retries={**turn.member.retries, kind: told})
    if told is not failed:
        _tell(turn, kind, told, is_over=False)


def _note_success(turn: Turn, kind: RequestKind) -> None:
    ended = turn.member.retries.get(kind)
    if ended is None:
        return
    turn.set(
        retries={other: one for other, one in turn.member.retries.items() if other is not kind}
    )
    if ended.told_at_ms is not None:
        _tell(turn, kind, ended, is_over=True)


def _tell(turn: Turn, kind: RequestKind, retries: Retries, *, is_over: bool) -> None:
    record = RequestRetried(
        request=kind.value,
        error=retries.error,
        code=retries.code,
        for_ms=turn.now_ms - retries.since_ms,
        cause=usual_cause(retries.code),
        is_over=is_over,
    )
    turn.emit(Report(record=record))
