"""The join after a revocation waits for the commits of the revoked partitions."""

from collections.abc import Callable

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind, next_deadline_ms
from coopgroup.core.member.effects import FinishCommit, Send
from coopgroup.core.member.events import (
    CommitRequested,
    Event,
    Offset,
    RejoinRequested,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import OffsetCommitAnswer
from coopgroup.simulator.scenario import Cost, Span
from coopgroup.telemetry import MembershipLost, ResourcesStarted, RoundDecided
from tests.support.members import (
    CONFIG,
    HELD,
    DrivenMember,
    leading_again,
    played_group,
    rejoining,
    rejoining_while_it_stops,
    revoking,
    stable,
    synced,
    syncing_again,
)
from tests.support.reports import reports

COMMIT = RequestKind.OFFSET_COMMIT
T0, T1 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
STOPPED = RevocationCompleted(resources=T1)
GRACE_MS = CONFIG.revocation_grace_ms


def commit(commit_id: int, *partitions: int) -> CommitRequested:
    offsets = tuple(Offset("T", partition, 10 * commit_id) for partition in partitions)
    return CommitRequested(commit_id=commit_id, offsets=offsets)


def answered(driven: DrivenMember, code: int = 0) -> DrivenMember:
    codes = tuple(("T", partition, code) for partition in (0, 1))
    return driven.answer(COMMIT, OffsetCommitAnswer(codes=codes))


def holding() -> DrivenMember:
    """The member has stopped T-1, and a commit of T-1 is pending."""
    return revoking().give(commit(1, 1)).give(STOPPED)


def test_revoking_to_joining_when_a_commit_is_under_way_waits_for_its_answer() -> None:
    """After the join another member may own the partition and read its offset."""
    driven = holding()
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    assert (driven.member.owned, driven.member.revocation.pending) == (HELD, EMPTY)
    answered(driven)
    assert [type(effect) for effect in driven.effects if not hasattr(effect, "record")] == [
        FinishCommit,
        Send,
    ]
    assert (driven.member.state, driven.claims().owned) == (MemberState.JOINING, T0)


def test_revoking_to_joining_when_a_commit_is_queued_waits_for_it_as_well() -> None:
    driven = revoking().give(commit(1, 0)).give(commit(2, 0, 1)).give(STOPPED)
    assert driven.sent() == []
    assert answered(driven).sent() == ["OffsetCommitRequest"]
    assert driven.committed() == {0: 20, 1: 20}
    assert answered(driven).sent() == ["JoinGroupRequest"]


def test_revoking_to_joining_does_not_wait_for_commits_asked_for_later() -> None:
    """An application that keeps committing stopped partitions must not delay the group."""
    driven = answered(holding().give(commit(2, 1)))
    assert (driven.sent(), driven.claims().owned) == (["JoinGroupRequest"], T0)
    code = int(ErrorCode.ILLEGAL_GENERATION)
    assert driven.finished() == [(1, {1: 0}), (2, {1: code})]


def given_up_with_a_late_commit() -> DrivenMember:
    driven = revoking()
    limited = attrs.evolve(commit(1, 1), until_ms=driven.now_ms + 150)
    driven.give(limited).give(STOPPED).give(commit(2, 1))
    driven.refuse(COMMIT, ErrorCode.NO_ANSWER).find().wait(100)
    assert driven.committed() == {1: 20}
    answered(driven, ErrorCode.KAFKA_STORAGE_ERROR)
    driven.wait(50)
    assert (driven.sent(), driven.claims().owned) == (["JoinGroupRequest"], T0)
    assert [commit_id for commit_id, _ in driven.finished()] == [1]
    return driven


@pytest.mark.parametrize("comes_back", [False, True])
def test_commit_asked_for_later_is_not_sent_again_once_its_partition_is_given_up(
    *, comes_back: bool
) -> None:
    """Another member may have owned it and committed a later offset."""
    driven = given_up_with_a_late_commit()
    if comes_back:
        driven.join(3).sync(HELD)
    else:
        driven.wait(200)
    assert driven.finished() == [(2, {1: ErrorCode.ILLEGAL_GENERATION})]
    assert COMMIT not in driven.wait(200).member.outstanding


def test_revoking_when_the_commit_is_retried_still_owns_what_it_commits() -> None:
    """No other member can own it yet, so the retry is safe."""
    driven = answered(holding(), ErrorCode.KAFKA_STORAGE_ERROR)
    assert (driven.member.state, driven.finished()) == (MemberState.REVOKING, [])
    assert next_deadline_ms(driven.member) == driven.now_ms + 100
    assert driven.wait(100).committed() == {1: 10}
    assert answered(driven).sent() == ["JoinGroupRequest"]


def test_revoking_to_joining_when_the_commit_does_not_end_still_claims_what_it_commits() -> None:
    driven = holding().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driven.member.revocation.join_at_ms == driven.now_ms + CONFIG.revocation_grace_ms
    driven.wait(CONFIG.revocation_grace_ms)
    assert (driven.member.state, driven.claims().owned) == (MemberState.JOINING, HELD)
    driven.join(3).sync_again(T0)
    assert (driven.member.state, driven.revoked()) == (MemberState.REVOKING, [])
    answered(driven)
    assert (driven.sent(), driven.claims().owned) == (["JoinGroupRequest"], T0)


@pytest.mark.parametrize("reach", [stable, rejoining, leading_again, syncing_again])
def test_revocation_when_it_was_not_asked_for_means_nothing(
    reach: Callable[[], DrivenMember],
) -> None:
    """The completion comes late: the resource was already lost or given up."""
    driven = reach()
    before = driven.member
    assert driven.give(STOPPED).member == before
    driven = answered(holding())
    before = driven.member
    assert driven.give(STOPPED).member == before


# --- in parts, and through rounds --------------------------------------------------------------


def stopping_all() -> DrivenMember:
    """The member was told to stop T-0 and T-1."""
    return syncing_again().sync(EMPTY, follow_up=True)


def test_revoking_in_parts_joins_soon_after_some_have_stopped_and_claims_the_rest() -> None:
    """Free partitions are granted early. A slow stop delays no other partition."""
    driven = stopping_all().give(RevocationCompleted(resources=T0))
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    assert driven.wait(GRACE_MS - 1).sent() == []
    assert next_deadline_ms(driven.member) == driven.now_ms + 1
    driven.wait(1)
    assert (driven.member.state, driven.claims().owned) == (MemberState.JOINING, T1)


def test_revoking_in_parts_when_one_follows_the_other_moves_them_in_one_round() -> None:
    """Each part postpones the join, but never for longer than four times the grace."""
    nine = ResourceSet({"T": range(9)})
    driven = syncing_again().sync(nine).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driven.join(3).sync(EMPTY, follow_up=True)
    stopped_at_ms = [
        driven.give(RevocationCompleted(resources=ResourceSet({"T": [index]}))).now_ms
        for index in range(5)
        if driven.wait(GRACE_MS - 1).member.state is MemberState.REVOKING
    ]
    assert len(stopped_at_ms) == 5
    assert driven.member.revocation.join_at_ms == stopped_at_ms[0] + 4 * GRACE_MS
    driven.wait(stopped_at_ms[0] + 4 * GRACE_MS - driven.now_ms)
    assert driven.claims().owned == ResourceSet({"T": range(5, 9)})


@pytest.mark.parametrize("told", [T0, HELD])
def test_revoking_when_told_again_or_assigned_again_goes_on_stopping(told: ResourceSet) -> None:
    driven = rejoining_while_it_stops().join(3).sync_again(told)
    assert (driven.revoked(), driven.granted()) == ([], [])
    assert (driven.member.state, driven.member.revocation.pending) == (MemberState.REVOKING, T1)
    assert driven.member.revocation.join_at_ms is None
    assert driven.give(STOPPED).claims().owned == T0
    driven.join(4).sync(HELD)
    assert driven.granted() == [T1]


def test_revoking_when_told_more_tells_the_application_only_that() -> None:
    """Two stops of one resource would count its end twice."""
    driven = rejoining_while_it_stops().join(3).sync(EMPTY, follow_up=True)
    assert driven.revoked() == [T0]
    assert driven.member.revocation.pending == HELD


@pytest.mark.parametrize(
    "event", [RejoinRequested(reason="uneven lag"), SubscriptionChanged(topics=("T", "U"))]
)
def test_revoking_joins_soon_when_a_round_is_wanted(event: Event) -> None:
    """The first of several reasons counts: a stream of reasons cannot postpone the join."""
    driven = revoking().give(event)
    driven.wait(GRACE_MS // 2).give(RejoinRequested(reason="metadata changed"))
    assert driven.wait(GRACE_MS - GRACE_MS // 2).member.state is MemberState.JOINING
    assert driven.claims().owned == HELD


def test_revoking_joins_soon_when_a_follow_up_of_others_is_announced() -> None:
    driven = rejoining_while_it_stops().join(3).sync(HELD, follow_up=True)
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    assert driven.wait(GRACE_MS).claims().owned == HELD


@pytest.mark.parametrize("leads", [False, True])
def test_stop_during_a_round_that_claims_it_takes_one_more(*, leads: bool) -> None:
    """The pending round keeps it from all other members."""
    driven = rejoining_while_it_stops()
    driven.give(STOPPED)
    assert (driven.member.owned, driven.sent()) == (T0, [])
    driven.join(3, leads=leads)
    if leads:
        driven.decide()
    driven.sync(T0)
    assert (driven.member.state, driven.claims().owned) == (MemberState.JOINING, T0)


def test_stop_during_a_round_that_assigns_it_again_gives_it_back_at_once() -> None:
    driven = rejoining_while_it_stops().join(3).give(STOPPED).sync(HELD)
    assert driven.granted() == [T1]


# --- in a group --------------------------------------------------------------------------------


def test_slow_stop_that_outlasts_the_rebalance_timeout_holds_back_no_other() -> None:
    """Light partitions move within a second, the heavy one after its stop. Nothing is lost.

    While only the heavy one is outstanding there are no rounds.
    """
    heavy = Cost(resources=ResourceSet({"T": [3]}), stop_ms=Span(20_000, 20_000))
    group = played_group(heavy)
    group.start("p1", ("T",))
    assert group.run_until_rest(10_000, 500)
    group.start("p2", ("T",))
    begin_ms = group.world.now_ms
    assert group.run_until_rest(30_000, 1_000)
    records = [one for one in group.world.telemetry if one.at_ms >= begin_ms]
    begun = {
        resource.index: one.at_ms - begin_ms
        for one, record in reports(records, ResourcesStarted)
        for resource in record.resources
    }
    heavy_ms = begun.pop(3)
    (light_ms,) = begun.values()
    assert light_ms < 1_500
    assert 2_500 <= heavy_ms < 4_000
    assert reports(records, MembershipLost) == []
    rounds = [one.at_ms - begin_ms for one, _ in reports(records, RoundDecided)]
    assert [at_ms for at_ms in rounds if 1_500 < at_ms < 2_500] == []


@pytest.mark.parametrize("revoked", [None, EMPTY], ids=["the last word", "a round follows"])
def test_stop_that_the_leader_does_not_know_of_is_done_before_the_next_join(
    revoked: ResourceSet | None,
) -> None:
    """The leader cannot read the claims, and takes the next join for one without claims."""
    driven = syncing_again()
    driven.answer(RequestKind.SYNC_GROUP, synced(EMPTY, revoked=revoked))
    assert driven.revoked() == [HELD]
    driven.give(RevocationCompleted(resources=T0)).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driven.wait(10 * GRACE_MS)
    before = driven.member.state
    driven.give(STOPPED)
    assert (before, driven.member.state) == (MemberState.REVOKING, MemberState.JOINING)
    assert driven.claims().owned == EMPTY
