"""The lease of a member, and the settings that make it safe."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind, lease_is_over, new_member
from coopgroup.core.member.effects import Lane, LoseResources, Report, Send
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import HeartbeatAnswer, HeartbeatRequest, SyncGroupAnswer
from coopgroup.core.protocol.digests import names_digest
from coopgroup.errors import ConfigurationError
from coopgroup.protocol import Assignment, encode_assignment
from coopgroup.telemetry import MembershipLost
from tests.support.members import (
    CONFIG,
    HELD,
    OTHER_NODE,
    DrivenMember,
    configured,
    eager,
    joined_again,
    joining,
    leading_again,
    rejoining,
    revoking,
    stable,
    static,
    syncing,
    syncing_again,
)

SESSION_MS = CONFIG.session_timeout_ms
REJOIN_MS = CONFIG.rebalance_timeout_ms - CONFIG.heartbeat_interval_ms
"""What is left of the rebalance time-out when the time that a join needs to arrive is off."""
IN_A_ROUND = ErrorCode.REBALANCE_IN_PROGRESS
EXPIRED = [(HELD, "lease expired")]
TIMED_OUT = [(HELD, "rebalance time-out")]
LEFT_BEHIND = [(HELD, "a round ended without its join")]


def lost(driven: DrivenMember) -> list[tuple[ResourceSet, str]]:
    return [(loss.resources, loss.cause) for loss in driven.found(LoseResources)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"session_timeout_ms": 0}, "session_timeout_ms"),
        ({"retry_backoff_ms": -1}, "retry_backoff_ms"),
        ({"revocation_grace_ms": -1}, "revocation_grace_ms"),
        ({"heartbeat_interval_ms": 6_000}, "heartbeat.interval.ms"),
        ({"rebalance_timeout_ms": 5_999}, "max.poll.interval.ms"),
    ],
)
def test_settings_when_unsafe_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        new_member(attrs.evolve(CONFIG, **change))
    assert caught.value.field == field


def test_lease_counts_from_the_sending_of_a_heartbeat() -> None:
    """The coordinator's clock began after the sending, however late the answer comes."""
    driven = stable().wait(1_000)
    sent_at = driven.now_ms
    driven.now_ms += 2_000
    driven.answer(RequestKind.HEARTBEAT, HeartbeatAnswer(error_code=0))
    assert driven.member.lease.until_ms == sent_at + SESSION_MS


def test_lease_of_a_leader_counts_from_the_sending_of_its_sync() -> None:
    """This sync settles the generation and starts the sessions of all waiting members."""
    driven = leading_again()
    driven.now_ms += 500
    sent_at = driven.decide().now_ms
    driven.now_ms += 3_000
    assert driven.sync().member.lease.until_ms == sent_at + SESSION_MS


def test_lease_of_a_follower_does_not_count_from_its_sync() -> None:
    """The generation may already be settled. Then the answer does not restart the session.

    The session began at the latest at the end of the round, which was after the join was sent.
    """
    driven = joining()
    sent_at = driven.now_ms
    driven.now_ms += 900
    driven.join()
    driven.now_ms += 50
    assert driven.sync().member.lease.until_ms == sent_at + SESSION_MS


def test_lease_of_a_follower_that_joined_for_long_is_proved_before_its_sync_is_answered() -> None:
    """No heartbeat was sent so far. One is sent before the sync, on the same connection."""
    driven = joining()
    driven.now_ms += 2 * SESSION_MS
    driven.join()
    assert driven.sent() == ["HeartbeatRequest", "SyncGroupRequest"]
    assert {send.lane for send in driven.found(Send)} == {Lane.JOIN}
    driven.heartbeat().sync()
    assert driven.member.state is MemberState.STABLE
    assert driven.member.lease.until_ms == driven.now_ms + SESSION_MS


def test_lease_when_rounds_follow_each_other_counts_from_each_join() -> None:
    """Regression: syncs were refused and each heartbeat met a new generation, for a whole session.

    The end of the joins restarts the sessions of all members that have joined.
    """
    driven = rejoining()
    for generation in range(2, 20):
        sent_at_ms = driven.now_ms
        driven.now_ms += 300
        driven.join(generation)
        assert driven.member.lease.until_ms == sent_at_ms + SESSION_MS
        driven.now_ms += 200
        driven.refuse(RequestKind.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
        if RequestKind.HEARTBEAT in driven.member.outstanding:
            driven.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert driven.now_ms > 10_000 + SESSION_MS
    assert (driven.member.state, driven.member.owned) == (MemberState.JOINING, HELD)


def test_heartbeat_that_met_the_end_of_its_round_is_sent_again_at_once() -> None:
    """Regression: it proved nothing, so a pause of half a session ended the lease."""
    driven = rejoining().wait(1_000)
    driven.join(2).sync_again().heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert heartbeat_generation(driven) == 2
    assert driven.heartbeat().member.lease.until_ms == driven.now_ms + SESSION_MS


def test_answer_of_a_repeated_generation_takes_back_no_proof() -> None:
    """Regression: the answer to a join ended a lease that heartbeats had proved until then."""
    driven = rejoining()
    began_ms = open_at_ms = driven.now_ms
    while open_at_ms < began_ms + 2 * CONFIG.rebalance_timeout_ms - SESSION_MS:
        open_at_ms = driven.now_ms
        driven.wait(CONFIG.heartbeat_interval_ms).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driven.join(1)
    assert driven.member.state is MemberState.SYNCING
    assert driven.member.lease.settled_at_ms >= open_at_ms


def moved_before_its_generation_was_stored(driven: DrivenMember) -> DrivenMember:
    """Let another broker take the group over while the sync of generation 2 waits."""
    driven.refuse(RequestKind.SYNC_GROUP, ErrorCode.NOT_COORDINATOR)
    driven.wait(CONFIG.retry_backoff_max_ms).find(OTHER_NODE)
    assert driven.sent() == ["HeartbeatRequest", "JoinGroupRequest"]
    assert heartbeat_generation(driven) == 2
    return driven.wait(10).heartbeat(ErrorCode.ILLEGAL_GENERATION)


def heartbeat_generation(driven: DrivenMember) -> int:
    request = driven.request(RequestKind.HEARTBEAT).request
    assert isinstance(request, HeartbeatRequest)
    return request.generation


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_lease_when_the_group_moves_back_a_generation_is_renewed_in_it(code: ErrorCode) -> None:
    """Regression: the new coordinator refused all heartbeats while the join waited."""
    driven = moved_before_its_generation_was_stored(syncing_again())
    assert (driven.sent(), heartbeat_generation(driven)) == (["HeartbeatRequest"], 1)
    sent_at_ms = driven.now_ms
    driven.now_ms += 50
    driven.heartbeat(code)
    assert driven.member.lease.until_ms == sent_at_ms + SESSION_MS
    driven.wait(1_000)
    assert heartbeat_generation(driven) == 1
    driven.join(2).heartbeat(code).wait(1_000)
    assert heartbeat_generation(driven) == 2


def test_lease_when_no_heartbeat_is_answered_ends_all() -> None:
    driven = stable().wait(1_000)
    until = driven.member.lease.until_ms
    driven.wait(until - driven.now_ms - 1)
    assert driven.member.owned == HELD
    driven.wait(1)
    assert lost(driven) == EXPIRED
    record = MembershipLost(resources=HELD, cause="lease expired")
    assert Report(record=record, member_id="m") in driven.effects
    assert (driven.member.state, driven.member.member_id) == (MemberState.LOSING, "m")
    assert driven.sent() == []


def test_lease_when_the_process_was_frozen_tells_when_it_ended() -> None:
    driven = stable().wait(1_000)
    driven.wait(driven.member.lease.until_ms - driven.now_ms + 7_000)
    record = MembershipLost(resources=HELD, cause="lease expired", since_lease_ms=7_000)
    assert Report(record=record, member_id="m") in driven.effects


def test_loss_when_the_id_is_forgotten_names_the_old_id() -> None:
    """A reader could not tell whose work had ended."""
    driven = stable().wait(1_000).heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driven.member.member_id == ""
    (report,) = (one for one in driven.effects if isinstance(one, Report) and one.member_id)
    assert (report.member_id, type(report.record)) == ("m", MembershipLost)


def test_lease_when_a_join_begins_no_round_counts_from_a_heartbeat() -> None:
    """Regression: the session of the lost membership ended while the member worked again.

    A follower that joins with the same bytes as before gets its generation again, and its sync
    the stored assignment. Neither restarts the session.
    """
    driven = joined_again()
    assert (driven.member.state, driven.sent()) == (MemberState.RETURNING, ["HeartbeatRequest"])
    asked_at_ms = driven.now_ms
    driven.now_ms += 300
    driven.heartbeat()
    driven.now_ms += 300
    driven.sync()
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)
    assert driven.member.lease.until_ms == asked_at_ms + SESSION_MS


def test_lease_is_over_although_a_late_answer_comes() -> None:
    """A process that was frozen must not continue because of an old answer."""
    driven = stable().wait(1_000)
    driven.now_ms += SESSION_MS
    driven.answer(RequestKind.HEARTBEAT, HeartbeatAnswer(error_code=0))
    assert lost(driven) == EXPIRED


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_lease_when_a_join_waits_is_renewed_over_the_other_lane(code: ErrorCode) -> None:
    """A broker does not answer behind a waiting join, so heartbeats use the other connection."""
    driven = rejoining().wait(1_000)
    assert driven.request(RequestKind.HEARTBEAT).lane is Lane.COMMIT
    sent_at = driven.now_ms
    driven.heartbeat(code)
    assert driven.member.lease.until_ms == sent_at + SESSION_MS
    assert driven.member.state is MemberState.JOINING


def test_lease_when_nothing_is_held_has_no_end() -> None:
    driven = stable(EMPTY)
    assert not lease_is_over(driven.member, driven.now_ms + 10 * SESSION_MS)
    assert driven.wait(1_000).wait(10 * SESSION_MS).lost() == []


def beats(driven: DrivenMember, until_ms: int, code: int = 0) -> DrivenMember:
    """Let every heartbeat be answered with a code until a time."""
    while driven.now_ms + 1_000 < until_ms:
        driven.heartbeat(code)
        driven.wait(1_000)
    return driven


def test_revocation_when_it_outlasts_the_rebalance_timeout_ends_nothing() -> None:
    driven = revoking()
    began_ms, generation = driven.now_ms, 2
    while driven.now_ms < began_ms + 3 * CONFIG.rebalance_timeout_ms:
        assert (driven.member.state, driven.member.owned) == (MemberState.REVOKING, HELD)
        driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).wait(CONFIG.revocation_grace_ms)
        generation += 1
        driven.join(generation).sync_again(HELD - driven.member.revocation.pending)
    assert driven.member.revocation.pending == HELD - ResourceSet({"T": [0]})


@pytest.mark.parametrize(
    ("reach", "code", "state"),
    [
        (lambda: eager(stable()), IN_A_ROUND, MemberState.REVOKING),
        (leading_again, ErrorCode.NONE, MemberState.LEADING),
    ],
    ids=["eager and slow to stop", "a leader that decides"],
)
def test_member_when_the_group_stops_waiting_for_it_loses_all(
    reach: Callable[[], DrivenMember], code: int, state: MemberState
) -> None:
    """The coordinator drops a member without a join or sync within the rebalance timeout."""
    driven = reach()
    settled_at = driven.member.lease.settled_at_ms
    beats(driven, settled_at + REJOIN_MS, code)
    assert driven.member.state is state
    driven.wait(settled_at + REJOIN_MS - driven.now_ms)
    assert lost(driven) == TIMED_OUT


@pytest.mark.parametrize(
    ("reach", "code"), [(rejoining, IN_A_ROUND), (syncing_again, ErrorCode.NONE)]
)
def test_request_when_it_is_stuck_makes_the_member_stand_still_before_the_round_can_end(
    reach: Callable[[], DrivenMember], code: int
) -> None:
    """Heartbeats prove neither a join in the round nor a sync that has arrived."""
    driven = reach()
    before = driven.member
    end_ms = before.lease.settled_at_ms + CONFIG.rebalance_timeout_ms
    beats(driven, end_ms + 5_000, code)
    assert driven.now_ms > end_ms
    assert (driven.member.state, driven.member.owned) == (before.state, HELD)
    assert driven.member.hold_until_ms == end_ms


@pytest.mark.parametrize(
    ("instance_id", "generation", "is_lost"),
    [("s", 3, True), ("s", 2, False), (None, 3, False)],
    ids=["a round went by", "its own round", "dynamic"],
)
def test_join_of_a_static_member_when_a_round_ended_without_it_loses_all(
    instance_id: str | None, generation: int, *, is_lost: bool
) -> None:
    """It keeps its place (KIP-345), but the leader read claims of long before."""
    driven = configured(rejoining(), instance_id=instance_id)
    beats(driven, driven.now_ms + CONFIG.rebalance_timeout_ms, IN_A_ROUND)
    driven.heartbeat(IN_A_ROUND).wait(500)
    assert driven.member.hold_until_ms < driven.now_ms
    driven.join(generation)
    assert lost(driven) == (LEFT_BEHIND if is_lost else [])
    assert driven.member.state is (MemberState.LOSING if is_lost else MemberState.SYNCING)


@pytest.mark.parametrize(
    ("code", "is_lost"),
    [(ErrorCode.NOT_COORDINATOR, True), (ErrorCode.REBALANCE_IN_PROGRESS, False)],
    ids=["another coordinator", "the same coordinator"],
)
def test_join_of_a_static_member_counts_from_the_last_completed_round(
    code: int, *, is_lost: bool
) -> None:
    """Regression: a coordinator that never heard of round 2 counted another round 2 without it."""
    driven = static(syncing_again())
    driven.refuse(RequestKind.SYNC_GROUP, code).wait(1_000)
    if is_lost:
        driven.find()
    beats(driven, driven.now_ms + CONFIG.rebalance_timeout_ms, IN_A_ROUND)
    driven.heartbeat(IN_A_ROUND).wait(500)
    assert driven.member.hold_until_ms < driven.now_ms
    driven.join(3)
    assert lost(driven) == (LEFT_BEHIND if is_lost else [])


@pytest.mark.parametrize(
    ("instance_id", "later_ms", "is_renewed"),
    [("s", 0, False), ("s", -1, True), (None, 0, True)],
    ids=["a round can be over", "too early for that", "dynamic"],
)
def test_lease_of_a_static_member_when_its_round_can_have_ended_before_its_join(
    instance_id: str | None, later_ms: int, *, is_renewed: bool
) -> None:
    """Regression: the lease counted from the join, and the session from the end of the round."""
    driven = configured(syncing(), instance_id=instance_id)
    until_ms = driven.member.lease.until_ms
    driven.now_ms += CONFIG.rebalance_timeout_ms + later_ms
    driven.refuse(RequestKind.SYNC_GROUP, ErrorCode.ILLEGAL_GENERATION).join(2)
    state = MemberState.SYNCING if is_renewed else MemberState.RETURNING
    assert driven.member.state is state
    assert driven.member.lease.until_ms == (driven.now_ms + SESSION_MS if is_renewed else until_ms)


@pytest.mark.parametrize("make", [syncing, syncing_again])
def test_sync_when_answered_after_a_slow_leader_loses_nothing(
    make: Callable[[], DrivenMember],
) -> None:
    """The next round cannot have begun before the last heartbeat that was answered with 0."""
    driven = beats(make(), CONFIG.rebalance_timeout_ms + 20_000)
    beat_at = driven.now_ms - 1_000
    assert driven.sync().lost() == []
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)
    assert driven.member.lease.settled_at_ms == beat_at


@pytest.mark.parametrize(
    ("reach", "kind", "was_longer"),
    [
        (lambda: rejoining().heartbeat(IN_A_ROUND), RequestKind.JOIN_GROUP, True),
        (lambda: leading_again().wait(1_000).decide(), RequestKind.SYNC_GROUP, False),
    ],
)
def test_request_when_it_fails_leaves_only_the_time_since_the_last_peace(
    reach: Callable[[], DrivenMember], kind: RequestKind, *, was_longer: bool
) -> None:
    """It may not have arrived, so the coordinator may have waited without success since then."""
    driven = reach()
    by_ms = driven.member.lease.settled_at_ms + REJOIN_MS
    assert (driven.member.rejoin_by_ms > by_ms) is was_longer
    driven.refuse(kind, ErrorCode.NO_ANSWER)
    assert driven.member.rejoin_by_ms == by_ms


@pytest.mark.parametrize(
    ("topics", "state"), [(("T",), MemberState.STABLE), (("T", "U"), MemberState.JOINING)]
)
def test_assignment_when_made_from_another_subscription_is_followed_by_a_round(
    topics: tuple[str, ...], state: MemberState
) -> None:
    """A static member came back with other topics, and the group began no round for it."""
    noted = Assignment(assigned=HELD, topics_digest=names_digest(topics), shared_digest=7)
    driven = syncing()
    answer = SyncGroupAnswer(error_code=0, assignment=encode_assignment(noted))
    driven.answer(RequestKind.SYNC_GROUP, answer)
    assert (driven.member.state, driven.member.owned) == (state, HELD)
    assert driven.member.last_assignment.shared_digest == 7
    assert driven.sent() == (["JoinGroupRequest"] if state is MemberState.JOINING else [])
