"""The join that gives something up is held back until the commits of it have ended."""

import pytest

from coopgroup.errors import LocalProtocolError
from coopgroup.member import ErrorCode, MemberState, RequestKind, next_deadline_ms
from coopgroup.member.effects import FinishCommit, LoseResources, Send
from coopgroup.member.events import (
    CommitAbandoned,
    CommitRequested,
    LeaveRequested,
    Offset,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.group_api import JoinGroupRequest, OffsetCommitAnswer, OffsetCommitRequest
from coopgroup.protocol import decode_subscription
from tests.support.members import HELD, DrivenMember, revoking, syncing_again

COMMIT = RequestKind.OFFSET_COMMIT
T0, T1 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
STOPPED = RevocationCompleted(resources=T1)


def commit(commit_id: int, *partitions: int) -> CommitRequested:
    """A commit of partitions of T."""
    offsets = tuple(Offset("T", partition, 10 * commit_id) for partition in partitions)
    return CommitRequested(commit_id=commit_id, offsets=offsets)


def answered(driven: DrivenMember, code: int = 0) -> DrivenMember:
    """Answer the commit under way, every partition with one code."""
    codes = tuple(("T", partition, code) for partition in (0, 1))
    return driven.answer(COMMIT, OffsetCommitAnswer(codes=codes))


def holding() -> DrivenMember:
    """Has stopped T-1, and a commit of it is under way."""
    return revoking().give(commit(1, 1)).give(STOPPED)


def claims_of(driven: DrivenMember) -> ResourceSet:
    """Claims of the join that the last step sent."""
    request = driven.request(RequestKind.JOIN_GROUP).request
    assert isinstance(request, JoinGroupRequest)
    return decode_subscription(request.protocols[0][1]).owned


def committed(driven: DrivenMember) -> dict[int, int]:
    """Offsets of the commit that the last step sent."""
    request = driven.request(COMMIT).request
    assert isinstance(request, OffsetCommitRequest)
    return {row[1]: row[2] for row in request.offsets}


def test_revoking_to_joining_when_a_commit_is_under_way_waits_for_its_answer() -> None:
    """Another member may have the partition, and read its offset, once the join is sent."""
    driven = holding()
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    assert (driven.member.owned, driven.member.revoking) == (HELD, EMPTY)
    answered(driven)
    assert [type(effect) for effect in driven.effects if not hasattr(effect, "record")] == [
        FinishCommit,
        Send,
    ]
    assert (driven.member.state, claims_of(driven)) == (MemberState.JOINING, T0)


def test_revoking_to_joining_when_a_commit_is_queued_waits_for_it_as_well() -> None:
    """It stands behind one that concerns retained partitions only."""
    driven = revoking().give(commit(1, 0)).give(commit(2, 0, 1)).give(STOPPED)
    assert driven.sent() == []
    assert answered(driven).sent() == ["OffsetCommitRequest"]
    assert committed(driven) == {0: 20, 1: 20}
    assert answered(driven).sent() == ["JoinGroupRequest"]


def test_revoking_to_joining_when_commits_concern_the_rest_only_is_at_once() -> None:
    """Retained partitions commit right through a round."""
    driven = revoking().give(commit(1, 0)).give(STOPPED)
    assert (driven.sent(), claims_of(driven)) == (["JoinGroupRequest"], T0)


def test_revoking_to_joining_does_not_wait_for_commits_asked_for_later() -> None:
    """An application that goes on to commit what it stopped cannot keep the group waiting."""
    driven = answered(holding().give(commit(2, 1)))
    assert (driven.sent(), claims_of(driven)) == (["JoinGroupRequest"], T0)
    code = int(ErrorCode.ILLEGAL_GENERATION)
    assert driven.found(FinishCommit) == [
        FinishCommit(commit_id=1, codes=(("T", 1, 0),)),
        FinishCommit(commit_id=2, codes=(("T", 1, code),)),
    ]


def given_up_with_a_late_commit() -> DrivenMember:
    """Gave all up, and a commit of T-1 that was asked for late is to be tried again."""
    driven = syncing_again().sync(EMPTY, follow_up=True).give(commit(1, 0))
    driven.give(RevocationCompleted(resources=HELD)).give(commit(2, 1))
    driven.refuse(COMMIT, ErrorCode.NO_ANSWER).find().wait(100)
    assert committed(driven) == {0: 10, 1: 20}
    failed = int(ErrorCode.KAFKA_STORAGE_ERROR)
    driven.answer(COMMIT, OffsetCommitAnswer(codes=(("T", 0, 0), ("T", 1, failed))))
    assert (driven.sent(), driven.found(FinishCommit)) == (
        ["JoinGroupRequest"],
        [FinishCommit(commit_id=1, codes=(("T", 0, 0),))],
    )
    return driven


def test_commit_asked_for_later_is_not_sent_again_once_its_partition_is_given_up() -> None:
    """It was sent with one that was waited for, and failed where that one did not."""
    codes = (("T", 1, int(ErrorCode.ILLEGAL_GENERATION)),)
    driven = given_up_with_a_late_commit().wait(200)
    assert driven.effects == (FinishCommit(commit_id=2, codes=codes),)


def test_commit_asked_for_later_is_not_sent_again_when_its_partition_comes_back() -> None:
    """Another member may have had it, and committed more."""
    codes = (("T", 1, int(ErrorCode.ILLEGAL_GENERATION)),)
    driven = given_up_with_a_late_commit().join(3).sync(HELD)
    assert driven.found(FinishCommit) == [FinishCommit(commit_id=2, codes=codes)]
    assert driven.wait(200).sent() == []


def test_revoking_when_the_commit_is_retried_still_owns_what_it_commits() -> None:
    """Nobody else can have it yet, so the retry is as good as the first try."""
    driven = answered(holding(), ErrorCode.KAFKA_STORAGE_ERROR)
    assert (driven.member.state, driven.found(FinishCommit)) == (MemberState.REVOKING, [])
    assert next_deadline_ms(driven.member) == driven.now_ms + 100
    assert committed(driven.wait(100)) == {1: 10}
    assert answered(driven).sent() == ["JoinGroupRequest"]


def test_revoking_when_no_answer_comes_looks_the_coordinator_up_and_tries_again() -> None:
    """The outcome is not known, and a commit sent twice does no harm."""
    driven = holding().refuse(COMMIT, ErrorCode.NO_ANSWER)
    assert driven.sent() == ["FindCoordinatorRequest"]
    assert committed(driven.find().wait(100)) == {1: 10}


def test_revoking_to_joining_when_the_queued_commit_is_abandoned_goes_on() -> None:
    """Nothing will be sent of it, so there is nothing to wait for."""
    driven = revoking().give(commit(1, 0)).give(commit(2, 1)).give(STOPPED)
    assert driven.give(CommitAbandoned(commit_id=2)).sent() == ["JoinGroupRequest"]
    assert claims_of(driven) == T0


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_revoking_to_joining_when_the_commit_is_refused_goes_on(code: ErrorCode) -> None:
    """The caller has heard, and nothing is left to wait for."""
    driven = answered(holding(), code)
    assert driven.found(FinishCommit) == [FinishCommit(commit_id=1, codes=(("T", 1, int(code)),))]
    assert driven.sent() == ["JoinGroupRequest"]


def test_revoking_to_losing_when_the_commit_never_ends() -> None:
    """The rebalance time-out bounds the wait, as it bounds the callback before it."""
    driven = holding()
    while driven.member.state is MemberState.REVOKING:
        assert driven.now_ms < 10_000 + driven.member.config.rebalance_timeout_ms
        driven.wait(500)
        if RequestKind.HEARTBEAT in driven.member.outstanding:
            driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driven.member.state is MemberState.LOSING
    code = int(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driven.found(FinishCommit) == [FinishCommit(commit_id=1, codes=(("T", 1, code),))]
    assert [lost.resources for lost in driven.found(LoseResources)] == [HELD]
    assert (driven.member.stopped, driven.member.commits.awaited) == (EMPTY, frozenset())


def test_revoking_in_parts_gives_up_each_part_when_its_commits_have_ended() -> None:
    """The join follows when the last part is stopped and settled."""
    driven = syncing_again().sync(EMPTY, follow_up=True).give(commit(1, 0))
    driven.give(RevocationCompleted(resources=T0))
    assert (driven.member.owned, driven.member.stopped) == (HELD, T0)
    answered(driven)
    assert (driven.member.owned, driven.member.stopped, driven.sent()) == (T1, EMPTY, [])
    assert claims_of(driven.give(STOPPED)) == EMPTY


def test_revoking_when_it_waits_for_a_commit_takes_other_events() -> None:
    """A new subscription is carried by the join; leaving ends the wait."""
    driven = holding().give(SubscriptionChanged(topics=("T", "U")))
    assert driven.member.state is MemberState.REVOKING
    assert driven.give(STOPPED).member.state is MemberState.REVOKING
    driven.give(LeaveRequested(reason="closed"))
    assert driven.sent() == ["LeaveGroupRequest"]
    assert (driven.member.stopped, driven.member.commits.awaited) == (EMPTY, frozenset())


def test_revocation_when_it_was_not_asked_for_is_refused() -> None:
    """Neither before it, nor once the join is on its way."""
    with pytest.raises(LocalProtocolError):
        answered(holding()).give(STOPPED)
