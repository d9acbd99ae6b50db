"""The meaning of the answers to heartbeats of KIP-848: assignments, epochs, topic ids, errors."""

from itertools import pairwise

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind
from coopgroup.core.member.effects import FailMember, NameTopics
from coopgroup.core.member.events import (
    Answered,
    ApplicationStalled,
    CommitRequested,
    LossHandled,
    Offset,
    SubscriptionChanged,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JOINS, LEAVES, LEAVES_FOR_NOW, OffsetCommitAnswer
from coopgroup.telemetry import AssignmentReceived
from tests.support.consumer_members import (
    BEAT,
    CONFIG,
    INTERVAL_MS,
    KEEPING,
    LEAVE,
    STATIC,
    T0,
    T1,
    DrivenConsumer,
    beaten,
    by_id,
    joining,
    losing,
    new,
    revoking,
    stable,
)
from tests.support.members import HELD, OTHER_NODE

COMMIT = RequestKind.OFFSET_COMMIT
STALE = ErrorCode.STALE_MEMBER_EPOCH


def commit(number: int, *partitions: int) -> CommitRequested:
    offsets = tuple(Offset("T", one, 42) for one in partitions)
    return CommitRequested(commit_id=number, offsets=offsets)


def committed(driven: DrivenConsumer, *codes: int) -> DrivenConsumer:
    rows = tuple(("T", partition, code) for partition, code in enumerate(codes))
    return driven.answer(COMMIT, OffsetCommitAnswer(codes=rows))


# --- assignments -------------------------------------------------------------------------------


def test_join_is_granted_its_assignment() -> None:
    driven = joining().beat(HELD, epoch=3)
    assert (driven.member.state, driven.member.generation) == (MemberState.STABLE, 3)
    assert (driven.granted(), driven.member.owned) == ([HELD], HELD)
    assert driven.member.round.by_broker
    assert [one.gained for one in driven.reported(AssignmentReceived)] == [HELD]


def test_answer_without_an_assignment_changes_nothing_but_the_epoch() -> None:
    driven = stable().beat(None, epoch=4)
    assert (driven.member.generation, driven.member.owned) == (4, HELD)
    assert (driven.granted(), driven.revoked(), driven.lost()) == ([], [], [])


def test_retained_partitions_are_neither_revoked_nor_granted_again() -> None:
    driven = stable().beat(T0, epoch=1)
    assert (driven.revoked(), driven.granted()) == ([T1], [])
    assert driven.member.owned == HELD


def test_revocation_is_acknowledged_as_a_whole() -> None:
    """A broker releases nothing before all revoked partitions are gone from the heartbeat."""
    driven = stable().beat(EMPTY)
    assert driven.stop(T0).beats() == []
    assert (driven.member.state, driven.member.owned) == (MemberState.REVOKING, T1)
    driven.stop(T1)
    assert driven.the_beat().owned == ()
    assert driven.member.state is MemberState.STABLE


def test_revocation_is_acknowledged_after_its_commits_have_ended() -> None:
    """A commit after the acknowledgement would overwrite the next owner's; the broker takes it."""
    driven = revoking().give(commit(1, 0, 1)).stop(T1)
    assert driven.beats() == []
    committed(driven, 0, 0)
    assert driven.the_beat().owned == by_id(T0)
    assert driven.give(commit(2, 1)).finished() == [(2, {1: ErrorCode.ILLEGAL_GENERATION})]


def test_partition_revoked_and_assigned_again_before_it_has_stopped_is_granted_anew() -> None:
    """The end of the stop must not remove the new grant, and the grant must not be lost."""
    driven = revoking().beat(HELD)
    assert driven.granted() == []
    driven.stop(T1)
    assert driven.the_beat().owned == by_id(T0)
    driven.beat(HELD)
    assert (driven.granted(), driven.member.owned) == ([T1], HELD)


def test_partition_given_up_since_the_heartbeat_is_granted_again_by_its_answer() -> None:
    """The coordinator has not heard that it was given up, and never will."""
    driven = revoking().due().stop(T1)
    assert driven.member.owned == T0
    driven.beat(HELD)
    assert (driven.granted(), driven.member.owned) == ([T1], HELD)
    assert driven.the_beat().owned is None


def test_partition_assigned_and_revoked_at_once_is_granted_and_stopped_in_order() -> None:
    driven = joining().beat(HELD).beat(EMPTY)
    assert (driven.revoked(), driven.granted()) == ([HELD], [])
    assert driven.stop(HELD).the_beat().owned == ()


def test_missing_topic_gives_an_empty_assignment_and_later_its_partitions() -> None:
    driven = joining().beat(EMPTY)
    assert (driven.member.state, driven.granted()) == (MemberState.STABLE, [])
    assert driven.beat(HELD).granted() == [HELD]


# --- topic ids ---------------------------------------------------------------------------------


def test_assignment_waits_for_the_names_of_topic_ids() -> None:
    """No heartbeat follows meanwhile: it would not claim what this answer grants."""
    driven = attrs.evolve(joining(), names=None).beat(HELD)
    (asked,) = driven.found(NameTopics)
    assert (asked.topics, driven.granted()) == (("T",), [])
    assert driven.wait(INTERVAL_MS).sent() == []
    driven.names = {}
    driven.give(attrs.evolve(asked.answered, topic_names={"id-T": "T"}))
    assert driven.granted() == [HELD]


def test_unresolved_topic_id_is_neither_granted_nor_revoked() -> None:
    """A half-resolved assignment is not the whole one (KAFKA-16198)."""
    driven = stable()
    assigned = (*by_id(HELD), ("id-U", (0,)))
    driven.names = {}
    driven.due().answer(BEAT, beaten(2, assigned))
    assert (driven.granted(), driven.revoked(), driven.member.owned) == ([], [], HELD)
    driven.names = {"id-U": "U"}
    driven.wait(CONFIG.retry_backoff_ms)
    assert driven.the_beat().owned == by_id(HELD)
    driven.answer(BEAT, beaten(2, assigned))
    assert driven.granted() == [ResourceSet({"U": [0]})]


def test_topic_ids_that_stay_unknown_are_asked_for_less_and_less_often() -> None:
    """The process may not be allowed to see a topic."""
    driven, times = stable(), list[int]()
    driven.names = {}
    while len(times) < 8:
        driven.due().answer(BEAT, beaten(2, (*by_id(HELD), ("id-U", (0,)))))
        times.append(driven.now_ms)
        driven.wait(driven.member.back_off.until_ms - driven.now_ms)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == [100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert driven.member.owned == HELD


def test_known_topic_ids_are_not_looked_up_again() -> None:
    assert stable().beat(HELD).found(NameTopics) == []


def test_topic_made_again_under_its_name_is_stopped_and_granted_anew() -> None:
    """The partitions of the new id are other ones, though they have the same names."""
    driven = stable()
    driven.names = {"id-T2": "T"}
    driven.due().answer(BEAT, beaten(2, by_id(HELD, "2")))
    assert (driven.revoked(), driven.granted()) == ([HELD], [])
    driven.stop(HELD)
    assert driven.the_beat().owned == ()
    driven.answer(BEAT, beaten(3, by_id(HELD, "2")))
    assert driven.granted() == [HELD]
    assert driven.due().the_beat().owned == by_id(HELD, "2")


# --- the lease ---------------------------------------------------------------------------------


def test_lease_counts_from_the_sending_of_an_answered_heartbeat() -> None:
    driven = stable().due()
    sent_ms = driven.now_ms
    driven.now_ms += 1_000
    driven.beat()
    assert driven.member.lease.until_ms == sent_ms + CONFIG.session_timeout_ms


def test_member_stops_by_itself_before_the_broker_may_give_its_partitions_away() -> None:
    driven = stable()
    until_ms = driven.member.lease.until_ms
    assert driven.wait(until_ms - 1 - driven.now_ms).lost() == []
    assert driven.wait(1).lost() == [HELD]
    assert driven.member.state is MemberState.LOSING
    driven.give(LossHandled())
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (JOINS, "p")


def test_revocation_that_is_not_acknowledged_ends_by_the_rebalance_timeout() -> None:
    """The broker removes the member: a heartbeat that left something to stop proves nothing."""
    driven = revoking()
    settled_ms = driven.member.lease.settled_at_ms
    while not driven.lost():
        driven.beat(T0) if driven.now_ms >= driven.member.heartbeat_at_ms else driven.wait(100)
    assert driven.lost() == [HELD]
    assert driven.now_ms < settled_ms + CONFIG.rebalance_timeout_ms
    assert settled_ms == driven.member.lease.settled_at_ms


def test_member_whose_callback_outlasted_its_time_joins_again_by_itself() -> None:
    driven = revoking()
    while not driven.lost():
        driven.beat(T0) if driven.now_ms >= driven.member.heartbeat_at_ms else driven.wait(100)
    driven.give(LossHandled())
    assert (driven.the_beat().epoch, driven.the_beat().owned) == (JOINS, ())
    assert driven.beat(HELD, epoch=7).granted() == [HELD]


def test_revocation_answered_while_its_acknowledgement_is_on_its_way_proves_no_rest() -> None:
    driven = revoking().due().stop(T1)
    settled_ms = driven.member.lease.settled_at_ms
    driven.beat(T0)
    assert driven.member.lease.settled_at_ms == settled_ms
    driven.beat(T0)
    assert driven.member.lease.settled_at_ms > settled_ms


# --- epochs of commits -------------------------------------------------------------------------


def test_commit_refused_for_its_epoch_is_sent_again_with_the_next_one() -> None:
    """All partitions of the request get the code; the caller hears of nothing."""
    driven = committed(stable().give(commit(1, 0, 1)), STALE, STALE)
    assert (driven.finished(), driven.sent()) == ([], ["ConsumerBeatRequest"])
    driven.beat(None, epoch=2)
    request = driven.request(COMMIT).request
    assert (getattr(request, "generation", 0), driven.committed()) == (2, {0: 42, 1: 42})
    assert committed(driven, 0, 0).finished() == [(1, {0: 0, 1: 0})]


def test_commit_refused_for_an_epoch_that_has_changed_since_is_sent_again_immediately() -> None:
    driven = stable().give(commit(1, 0, 1)).beat(None, epoch=2)
    committed(driven, STALE, STALE)
    assert driven.sent() == ["OffsetCommitRequest"]


def test_commit_refused_again_in_the_same_epoch_waits_for_the_back_off() -> None:
    driven = committed(stable().give(commit(1, 0, 1)), STALE, STALE).beat(None)
    assert driven.sent() == []
    assert driven.wait(CONFIG.retry_backoff_ms).sent() == ["OffsetCommitRequest"]


def test_commit_of_an_unknown_member_loses_all_and_joins_under_a_new_id() -> None:
    driven = committed(stable().give(commit(1, 0, 1)), *[ErrorCode.UNKNOWN_MEMBER_ID] * 2)
    assert (driven.lost(), driven.beats()) == ([HELD], [])
    assert driven.give(LossHandled()).the_beat().member_id == "p-1"


def test_commit_of_a_fenced_epoch_leaves_under_the_old_id_before_the_next_join() -> None:
    """The coordinator may still know the old id, which would hold its partitions."""
    driven = committed(stable().give(commit(1, 0, 1)), *[ErrorCode.FENCED_MEMBER_EPOCH] * 2)
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (LEAVES, "p")
    assert driven.give(LossHandled()).the_beat().member_id == "p-1"


def test_waiting_commit_of_a_partition_that_was_given_up_and_returns_lapses() -> None:
    """Another member may have committed a later offset meanwhile."""
    driven = revoking().give(commit(1, 0)).stop(T1).give(commit(2, 1))
    driven.beat(T0)
    driven.beat(HELD)
    assert (driven.granted(), driven.finished()) == ([T1], [(2, {1: ErrorCode.ILLEGAL_GENERATION})])


# --- fences and new ids ------------------------------------------------------------------------


def test_member_that_the_coordinator_has_forgotten_joins_under_a_new_id() -> None:
    driven = losing().give(LossHandled())
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (JOINS, "p-1")
    driven.beat(HELD, epoch=7)
    assert driven.granted() == [HELD]


def test_fenced_member_leaves_under_its_old_id_before_it_joins_under_a_new_one() -> None:
    """The coordinator knows the old id, which would hold partitions for a session."""
    driven = stable().fail_beat(ErrorCode.FENCED_MEMBER_EPOCH)
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (LEAVES, "p")
    driven.give(LossHandled())
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (JOINS, "p-1")


def test_fenced_member_with_a_stored_identity_does_not_leave_for_its_successor() -> None:
    """Another process may have the id: the one whose heartbeat moved the epoch on."""
    driven = stable(KEEPING).fail_beat(ErrorCode.FENCED_MEMBER_EPOCH)
    assert (driven.beats(), driven.kept()) == ([], [None])


def test_lost_lease_with_a_commit_without_an_answer_takes_a_new_id() -> None:
    """The commit may arrive late: under the same id and epoch it would be taken."""
    driven = stable().give(commit(1, 0))
    driven.wait(driven.member.lease.until_ms - driven.now_ms)
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (LEAVES, "p")
    assert driven.give(LossHandled()).the_beat().member_id == "p-1"


def test_leave_of_an_old_id_without_an_answer_is_sent_again() -> None:
    driven = stable().fail_beat(ErrorCode.FENCED_MEMBER_EPOCH).refuse(LEAVE, ErrorCode.NO_ANSWER)
    driven.give(LossHandled()).find()
    old, fresh = driven.beats()
    assert [(one.epoch, one.member_id) for one in (old, fresh)] == [(LEAVES, "p"), (JOINS, "p-1")]
    driven.refuse(LEAVE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert driven.member.beat.left_behind == ()


def test_static_member_that_lost_all_leaves_for_now_before_it_joins() -> None:
    """The coordinator refuses its static id with 111, under the same member id too."""
    driven = stable(STATIC)
    driven.wait(driven.member.lease.until_ms - driven.now_ms)
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (LEAVES_FOR_NOW, "p")
    join = driven.give(LossHandled()).the_beat()
    assert (join.epoch, join.member_id, join.group_instance_id) == (JOINS, "p-1", "i")


def test_static_id_that_is_not_released_is_retried_until_it_is() -> None:
    driven = joining(STATIC)
    for _ in range(5):
        driven.refuse(BEAT, ErrorCode.UNRELEASED_INSTANCE_ID)
        assert (driven.member.state, driven.beats()) == (MemberState.JOINING, [])
        driven.wait(driven.member.back_off.until_ms - driven.now_ms)
    assert driven.beat(HELD).granted() == [HELD]


def test_static_member_whose_id_another_process_took_fails() -> None:
    driven = stable(STATIC).fail_beat(ErrorCode.FENCED_INSTANCE_ID)
    assert [one.code for one in driven.found(FailMember)] == [ErrorCode.FENCED_INSTANCE_ID]
    assert driven.lost() == [HELD]


def test_application_that_does_not_poll_leaves_and_joins_again_when_it_does() -> None:
    driven = stable().give(ApplicationStalled())
    assert (driven.the_beat().epoch, driven.lost()) == (LEAVES, [HELD])
    assert driven.wait(60_000).beats() == []
    assert driven.give(LossHandled()).the_beat().member_id == "p-1"


def test_application_that_stalls_during_its_join_leaves_behind_it() -> None:
    """The join may have been served: without a leave the coordinator would keep the member."""
    driven = joining().give(ApplicationStalled())
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (LEAVES, "p")


# --- errors that end ---------------------------------------------------------------------------


def test_coordinator_that_loads_for_long_keeps_the_member_within_its_lease() -> None:
    driven = stable()
    until_ms = driven.member.lease.until_ms
    while driven.now_ms < until_ms - 1_100:
        driven.fail_beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert driven.member.owned == HELD
        driven.wait(driven.member.back_off.until_ms - driven.now_ms)
    assert driven.beat(HELD).member.back_off.attempts == 0
    assert driven.member.lease.until_ms > until_ms


def test_coordinator_that_moved_is_looked_up_immediately_and_told_all() -> None:
    driven = stable().fail_beat(ErrorCode.NOT_COORDINATOR)
    assert driven.sent() == ["FindCoordinatorRequest"]
    beat = driven.find(OTHER_NODE).the_beat()
    assert (beat.epoch, beat.owned, beat.topics) == (1, by_id(HELD), ("T",))


def test_heartbeat_to_the_old_coordinator_is_given_up_when_another_is_found() -> None:
    driven = stable().due().give(commit(1, 0)).refuse(COMMIT, ErrorCode.NOT_COORDINATOR)
    beat = driven.find(OTHER_NODE).the_beat()
    assert beat.owned == by_id(HELD)


def test_classic_group_that_is_not_converted_fails_the_member_after_two_rebalance_timeouts() -> (
    None
):
    driven = joining()
    begun_ms = driven.now_ms
    while driven.member.state is MemberState.JOINING:
        driven.refuse(BEAT, ErrorCode.GROUP_ID_NOT_FOUND)
        driven.wait(max(0, driven.member.back_off.until_ms - driven.now_ms))
    assert driven.now_ms - begun_ms >= 2 * CONFIG.rebalance_timeout_ms
    assert driven.member.state is MemberState.FAILED


def test_member_of_a_group_that_is_classic_again_joins_under_a_new_id() -> None:
    """It was removed, and only classic members were left. Its join converts the group again."""
    driven = stable().fail_beat(ErrorCode.GROUP_ID_NOT_FOUND)
    assert (driven.lost(), driven.beats()) == ([HELD], [])
    assert driven.give(LossHandled()).the_beat().member_id == "p-1"
    assert driven.beat(HELD).granted() == [HELD]


def test_assignor_that_the_broker_does_not_have_fails_with_its_message() -> None:
    driven = new(attrs.evolve(CONFIG, remote_assignor="sticky")).subscribe()
    assert driven.the_beat().assignor == "sticky"
    refused = attrs.evolve(beaten(-1), error_code=112, error_message="uniform, range")
    driven.answer(BEAT, refused)
    (failed,) = driven.found(FailMember)
    assert (failed.code, "uniform, range" in failed.message) == (112, True)


def test_member_with_a_short_rebalance_timeout_beats_more_often() -> None:
    """Between heartbeats of the broker's interval, it lost everything though it was alive."""
    timeout_ms = INTERVAL_MS // 2
    driven = stable(attrs.evolve(CONFIG, rebalance_timeout_ms=timeout_ms))
    end_ms = driven.now_ms + 10 * INTERVAL_MS
    while driven.now_ms < end_ms:
        driven = driven.due().beat()
        assert driven.lost() == []
    assert driven.member.owned == HELD


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_BY_BROKER])
def test_broker_without_the_protocol_fails_the_member_and_is_told(code: ErrorCode) -> None:
    """The bare name of the code does not tell which brokers have the protocol."""
    driven = joining().refuse(BEAT, code)
    (failed,) = driven.found(FailMember)
    assert (failed.code, "needs Kafka 4.0 or newer" in failed.message) == (code, True)


def test_answer_to_a_heartbeat_of_an_ended_membership_is_stale() -> None:
    driven = stable().due()
    request_id = driven.member.outstanding[BEAT].request_id
    driven.give(ApplicationStalled()).give(LossHandled())
    before = driven.member
    driven.give(Answered(request_id=request_id, answer=beaten(9, by_id(HELD))))
    assert driven.member == before


@pytest.mark.parametrize("code", [ErrorCode.NO_ANSWER, ErrorCode.REQUEST_TIMED_OUT])
def test_heartbeat_without_an_answer_is_followed_by_a_full_one(code: ErrorCode) -> None:
    driven = stable().beat()
    assert driven.due().the_beat().owned is None
    driven.refuse(BEAT, code)
    if code is ErrorCode.NO_ANSWER:
        driven.find()
    else:
        driven.wait(CONFIG.retry_backoff_ms)
    assert driven.the_beat().owned == by_id(HELD)


def test_subscription_changed_in_a_revocation_is_told_now_and_revokes_nothing_twice() -> None:
    driven = revoking().give(SubscriptionChanged(topics=("T", "U")))
    assert (driven.the_beat().topics, driven.the_beat().owned) == (("T", "U"), by_id(HELD))
    assert driven.beat(T0).revoked() == []
