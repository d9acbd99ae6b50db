"""Answers to joins and syncs: refusals, and how long the leader wants the member to wait."""

import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind, next_deadline_ms
from coopgroup.core.member.events import LossHandled
from coopgroup.core.model import EMPTY
from coopgroup.core.model.group_api import SyncGroupAnswer
from coopgroup.protocol import Assignment, encode_assignment
from coopgroup.telemetry import AssignmentUnreadable, RequestRefused
from tests.support.members import CONFIG, HELD, DrivenMember, stable, syncing_again

JOIN, SYNC = RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP

# After these errors the member joins immediately: another round has begun.
OF_A_ROUND = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION]
OF_THE_BROKER = [
    ErrorCode.UNKNOWN_SERVER_ERROR,  # for an assignment that is too large for the broker's log
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_REQUEST,
    32_000,
]


def refused_again(driven: DrivenMember, code: int, generation: int) -> int:
    """Have the next sync refused. Return how long the member waits before it joins, in ms."""
    driven.join(generation).refuse(SYNC, code)
    wait_ms = max(0, driven.member.back_off.until_ms - driven.now_ms)
    driven.wait(wait_ms)
    assert RequestKind.JOIN_GROUP in driven.member.outstanding
    return wait_ms


@pytest.mark.parametrize("code", OF_THE_BROKER)
def test_sync_when_refused_for_ever_is_no_storm_of_rounds(code: int) -> None:
    """Each back-off is longer than the last, though the joins between the refusals succeed."""
    driven = stable().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    waits = [refused_again(driven, code, generation) for generation in range(2, 8)]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    assert (driven.member.state, driven.member.owned) == (MemberState.JOINING, HELD)


@pytest.mark.parametrize("code", OF_A_ROUND)
def test_sync_when_another_round_began_is_joined_at_once(code: ErrorCode) -> None:
    """Every time: each of these rounds waits for this member."""
    driven = stable().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert [refused_again(driven, code, generation) for generation in range(2, 6)] == [0] * 4


def test_assignment_of_a_newer_version_is_refused_and_reported() -> None:
    """The member keeps what it owns. The record is a warning in the log."""
    content = b"\x00\x02" + encode_assignment(Assignment(assigned=EMPTY))[2:]
    driven = syncing_again()
    driven.answer(SYNC, SyncGroupAnswer(error_code=0, assignment=content))
    (record,) = driven.reported(AssignmentUnreadable)
    assert record.error == "version: got 2, expected 1 at offset 0"
    assert driven.member.owned == HELD


def test_joins_that_fail_at_the_broker_are_tried_until_one_succeeds() -> None:
    """A subscription that the broker cannot read makes each join of the group fail (Kafka 4.3.0).

    The broker has counted a round, so it refuses heartbeats of the earlier one. The member loses
    its lease, and has its partitions again one back-off after the broker has dropped the attacker.
    """
    driven, actions, joins = stable().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), set(), 0
    began_ms = driven.now_ms
    while driven.now_ms < began_ms + 75_000:
        if JOIN in driven.member.outstanding:
            driven.refuse(JOIN, ErrorCode.UNKNOWN_SERVER_ERROR)
            actions |= {one.action for one in driven.reported(RequestRefused)}
            joins += 1
        if RequestKind.HEARTBEAT in driven.member.outstanding:
            driven.refuse(RequestKind.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION)
        deadline_ms = next_deadline_ms(driven.member)
        assert deadline_ms is not None
        driven.wait(max(0, deadline_ms - driven.now_ms))
        if driven.lost():
            assert driven.now_ms - began_ms <= CONFIG.session_timeout_ms
            driven.give(LossHandled())
    assert 75 <= joins <= 80
    assert actions == {"rejoin after a back-off"}  # with warnings: the group makes no progress
    healed_ms = driven.now_ms
    if JOIN not in driven.member.outstanding:
        driven.wait(driven.member.back_off.until_ms - driven.now_ms)
    assert driven.join(90).heartbeat().sync(HELD).granted() == [HELD]
    assert driven.now_ms - healed_ms <= CONFIG.retry_backoff_max_ms


def test_heartbeat_when_settled_ends_the_row_of_failures() -> None:
    """A short outage of the coordinator must not slow down a retry hours later."""
    driven = stable(EMPTY).heartbeat(ErrorCode.NO_ANSWER).find()
    assert driven.member.back_off.attempts == 1
    assert driven.heartbeat().member.back_off.attempts == 0


def test_heartbeat_of_a_refused_round_does_not_end_the_row_of_failures() -> None:
    driven = syncing_again().refuse(SYNC, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert driven.heartbeat().member.back_off.attempts == 1


# --- how long the leader wants to wait ------------------------------------------------------------


def told_delays_ms(driven: DrivenMember) -> tuple[int | None, int | None]:
    """Return the time until the scheduled rejoin, and the remaining wait for lost owners."""
    ours = driven.user_data()
    return ours.rejoin_in_ms, ours.loss_ends_in_ms


def test_scheduled_rebalance_when_due_is_joined_and_told_as_over() -> None:
    driven = syncing_again().sync(HELD, rejoin_in_ms=2_500)
    due = driven.now_ms + 2_500
    driven.heartbeat().heartbeat()
    driven.wait(due - driven.now_ms - 1)
    assert driven.member.state is MemberState.STABLE
    assert next_deadline_ms(driven.member) == due
    driven.wait(1)
    assert told_delays_ms(driven)[0] == 0


@pytest.mark.parametrize("rejoin_in_ms", [None, 4_000])
def test_scheduled_rebalance_when_a_round_is_the_last_word_is_replaced_or_ends(
    rejoin_in_ms: int | None,
) -> None:
    driven = syncing_again().sync(HELD, rejoin_in_ms=2_500)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(3)
    driven.sync(HELD, rejoin_in_ms=rejoin_in_ms)
    assert driven.member.delay.rejoin_in_ms(driven.now_ms) == rejoin_in_ms


def test_pause_between_moves_when_over_is_told_as_no_loss() -> None:
    """Regression: 0 alone means that the wait for a lost owner has ended."""
    driven = syncing_again().sync(HELD, rejoin_in_ms=900).wait(900)
    assert told_delays_ms(driven) == (0, None)


def test_pause_between_moves_when_a_loss_waits_is_told_beside_what_remains_of_it() -> None:
    driven = syncing_again().sync(HELD, rejoin_in_ms=900, loss_ends_in_ms=30_000)
    due_ms = driven.now_ms + 900
    assert driven.member.wants_a_round_at_ms == due_ms
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert told_delays_ms(driven) == (due_ms - driven.now_ms, due_ms - driven.now_ms + 29_100)
    driven = syncing_again().sync(HELD, rejoin_in_ms=900, loss_ends_in_ms=30_000).wait(900)
    assert told_delays_ms(driven) == (0, 29_100)


def test_heartbeats_while_a_scheduled_delay_runs_are_frequent() -> None:
    """The round of a returning member then begins before the next normal heartbeat."""
    driven = syncing_again().sync(HELD, rejoin_in_ms=60_000)
    paces = []
    for _ in range(3):
        paces.append(driven.member.heartbeat_at_ms - driven.now_ms)
        driven.heartbeat()
    assert paces == [CONFIG.window_heartbeat_interval_ms] * 3
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(3).sync(HELD).heartbeat()
    assert driven.member.heartbeat_at_ms == driven.now_ms + CONFIG.heartbeat_interval_ms
