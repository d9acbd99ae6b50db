"""What a refused sync means: the next round is joined, sooner or later, and nothing is given up."""

import pytest

from coopgroup.member import ErrorCode, MemberState, RequestKind
from coopgroup.member.effects import Report
from coopgroup.model import EMPTY
from coopgroup.telemetry import RequestRefused
from tests.support.members import HELD, DrivenMember, stable, syncing, syncing_again

SYNC = RequestKind.SYNC_GROUP

# A round that the coordinator ended or another member began is joined at once.
OF_A_ROUND = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION]
OF_THE_BROKER = [
    ErrorCode.UNKNOWN_SERVER_ERROR,  # of an assignment that is too large for the broker's log
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_REQUEST,
    32_000,
]


def refused_again(driven: DrivenMember, code: int, generation: int) -> int:
    """Have the next sync refused; how long the member waits before it joins, in ms."""
    driven.join(generation).refuse(SYNC, code)
    wait_ms = max(0, driven.member.retry_at_ms - driven.now_ms)
    driven.wait(wait_ms)
    assert RequestKind.JOIN_GROUP in driven.member.outstanding
    return wait_ms


@pytest.mark.parametrize("code", OF_THE_BROKER)
def test_sync_when_refused_for_ever_is_no_storm_of_rounds(code: int) -> None:
    """Each refusal waits longer than the one before, though the joins between them succeed."""
    driven = stable().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    waits = [refused_again(driven, code, generation) for generation in range(2, 8)]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    assert (driven.member.state, driven.member.owned) == (MemberState.JOINING, HELD)


@pytest.mark.parametrize("code", OF_THE_BROKER)
def test_sync_when_refused_by_the_broker_says_that_it_waits(code: int) -> None:
    """Telemetry tells a refusal that will be tried again from a round that has begun."""
    driven = syncing().refuse(SYNC, code)
    assert driven.sent() == []
    records = [report.record for report in driven.found(Report)]
    refusals = [record for record in records if isinstance(record, RequestRefused)]
    assert [(one.request, one.action) for one in refusals] == [
        ("SyncGroup", "rejoin after a back-off")
    ]


@pytest.mark.parametrize("code", OF_A_ROUND)
def test_sync_when_another_round_began_is_joined_at_once(code: ErrorCode) -> None:
    """However often: each of them is a round of its own, which waits for this member."""
    driven = stable().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert [refused_again(driven, code, generation) for generation in range(2, 6)] == [0] * 4


def test_sync_when_it_succeeds_ends_the_row_of_failures() -> None:
    """The next trouble is met with short waits again."""
    driven = syncing_again().refuse(SYNC, ErrorCode.UNKNOWN_SERVER_ERROR).wait(100).join(3)
    assert driven.member.attempts == 1
    assert driven.sync(HELD).member.attempts == 0


def test_heartbeat_when_settled_ends_the_row_of_failures() -> None:
    """A coordinator that was not heard for a moment is no reason to be slow hours later."""
    driven = stable(EMPTY).heartbeat(ErrorCode.NO_ANSWER).find()
    assert driven.member.attempts == 1
    assert driven.heartbeat().member.attempts == 0


def test_heartbeat_of_a_refused_round_does_not_end_the_row_of_failures() -> None:
    """The coordinator is well, and the syncs are refused all the same."""
    driven = syncing_again().refuse(SYNC, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert driven.heartbeat().member.attempts == 1
