"""The requests of a member of KIP-848: their content, their order, their connections."""

import attrs
import pytest

from coopgroup.core.member import (
    ErrorCode,
    MemberConfig,
    MemberState,
    RequestKind,
    next_deadline_ms,
)
from coopgroup.core.member.effects import Lane, Send
from coopgroup.core.member.events import (
    ApplicationStalled,
    CommitRequested,
    Event,
    Offset,
    RejoinRequested,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JOINS, LEAVES, LEAVES_FOR_NOW
from tests.support.consumer_members import (
    BEAT,
    CLOSED,
    CONFIG,
    INTERVAL_MS,
    LEAVE,
    STATIC,
    SUBSCRIBED,
    T0,
    T1,
    by_id,
    joining,
    leaving,
    new,
    revoking,
    stable,
)
from tests.support.members import HELD

WITH_RACK = attrs.evolve(CONFIG, rack="r")


def test_join_tells_everything_under_the_members_own_id() -> None:
    beat = joining(WITH_RACK).the_beat()
    assert (beat.member_id, beat.epoch, beat.rack) == ("p", JOINS, "r")
    assert (beat.topics, beat.owned) == (("T",), ())
    assert beat.rebalance_timeout_ms == CONFIG.rebalance_timeout_ms


def test_join_without_an_answer_is_sent_again_under_the_same_id() -> None:
    """Otherwise the first join leaves a member that no process has."""
    driven = joining().refuse(BEAT, ErrorCode.NO_ANSWER).find()
    assert (driven.the_beat().member_id, driven.the_beat().epoch) == ("p", JOINS)


def test_heartbeat_after_a_change_is_full_and_then_short() -> None:
    driven = joining(WITH_RACK).beat(HELD).due()
    assert (driven.the_beat().owned, driven.the_beat().topics) == (by_id(HELD), ("T",))
    driven.beat(HELD).due()
    beat = driven.the_beat()
    assert (beat.owned, beat.topics, beat.rebalance_timeout_ms, beat.rack) == (None,) * 4
    assert (beat.member_id, beat.epoch) == ("p", 1)


def test_heartbeats_keep_the_interval_of_the_broker() -> None:
    driven = stable()
    sent_ms = driven.due().now_ms
    driven.beat(HELD)
    assert next_deadline_ms(driven.member) == sent_ms + INTERVAL_MS


def test_heartbeats_are_more_frequent_beside_a_short_rebalance_timeout() -> None:
    """The lease ends with it: with the broker's interval, each pause would be a loss."""
    config = attrs.evolve(CONFIG, rebalance_timeout_ms=1_500)
    driven = stable(config)
    for _ in range(5):
        driven.beat()
        assert driven.member.state is MemberState.STABLE
    before_ms = driven.now_ms
    assert driven.beat().now_ms == before_ms + 500


def test_heartbeat_has_the_epoch_of_the_last_answer() -> None:
    assert stable().beat(None, epoch=6).due().the_beat().epoch == 6


def test_request_for_a_round_is_a_heartbeat_now() -> None:
    assert stable().give(RejoinRequested(reason="partitions changed")).beats()
    assert not joining().give(RejoinRequested(reason="partitions changed")).beats()


def test_change_while_a_heartbeat_is_on_its_way_follows_its_answer() -> None:
    driven = revoking().due()
    assert driven.stop(T1).beats() == []
    assert driven.beat(T0).the_beat().owned == by_id(T0)


def test_joins_heartbeats_and_leaves_take_one_connection_and_commits_the_other() -> None:
    """On two connections a leave could overtake the join."""
    driven = joining()
    lanes = {driven.request(BEAT).lane}
    driven.beat(HELD).due()
    lanes.add(driven.request(BEAT).lane)
    driven.give(CLOSED)
    lanes.add(driven.request(LEAVE).lane)
    assert lanes == {Lane.JOIN}
    commits = stable().give(CommitRequested(commit_id=1, offsets=(Offset("T", 0, 4),)))
    assert commits.request(RequestKind.OFFSET_COMMIT).lane is Lane.COMMIT


def test_heartbeat_is_answered_while_there_is_time_for_two_more_tries() -> None:
    driven = stable().due()
    assert driven.request(BEAT).timeout_ms == CONFIG.session_timeout_ms // 3


def test_commit_waits_for_its_answer_until_the_membership_has_ended() -> None:
    driven = stable().give(CommitRequested(commit_id=1, offsets=(Offset("T", 0, 4),)))
    (send,) = driven.found(Send)
    assert send.timeout_ms == CONFIG.session_timeout_ms + INTERVAL_MS


def test_commit_before_the_first_assignment_is_refused() -> None:
    driven = joining().give(CommitRequested(commit_id=1, offsets=(Offset("T", 0, 4),)))
    assert driven.sent() == []
    assert driven.beat(EMPTY).finished() == [(1, {0: ErrorCode.ILLEGAL_GENERATION})]


def test_claims_name_each_topic_by_its_id() -> None:
    held = ResourceSet({"T": [0, 1], "U": [2]})
    assert stable(held=held).member.beat.told is not None
    driven = joining().beat(held).due()
    assert driven.the_beat().owned == (("id-T", (0, 1)), ("id-U", (2,)))


# --- leaves ------------------------------------------------------------------------------------


def test_leave_ends_with_any_outcome() -> None:
    for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NO_ANSWER):
        driven = leaving().refuse(LEAVE, code)
        assert (driven.member.state, driven.member.member_id) == (MemberState.UNSUBSCRIBED, "")
        assert next_deadline_ms(driven.member) is None


def test_leave_during_the_join_follows_it() -> None:
    """The join names a valid id, because the member chose it."""
    driven = joining().give(CLOSED)
    assert (driven.the_beat().epoch, driven.the_beat().member_id) == (LEAVES, "p")


def test_leave_during_a_heartbeat_ignores_its_answer() -> None:
    """The answer may carry a new epoch: the leave needs none."""
    driven = stable().due().give(CLOSED)
    assert driven.the_beat().epoch == LEAVES
    assert BEAT not in driven.member.outstanding


def test_leave_before_the_coordinator_is_known_ends_immediately() -> None:
    driven = joining().refuse(BEAT, ErrorCode.NO_ANSWER).give(CLOSED)
    assert (driven.member.state, driven.beats()) == (MemberState.UNSUBSCRIBED, [])


def test_leave_before_the_first_join_ends_immediately() -> None:
    driven = new()
    driven.member = joining().member
    driven.member = attrs.evolve(driven.member, member_id="", outstanding={})
    assert driven.give(CLOSED).beats() == []


def test_static_member_leaves_for_now_or_for_good() -> None:
    assert leaving(STATIC).the_beat().epoch == LEAVES_FOR_NOW
    for_good = attrs.evolve(CLOSED, for_good=True)
    assert stable(STATIC).give(for_good).the_beat().epoch == LEAVES


def test_member_that_left_joins_again_under_a_new_id() -> None:
    driven = leaving().refuse(LEAVE, ErrorCode.NONE).give(SUBSCRIBED)
    assert driven.the_beat().member_id == "p-1"


def test_leave_without_an_answer_is_sent_again_before_the_next_join() -> None:
    """The coordinator would keep the partitions of the old id until its session ends."""
    driven = leaving().refuse(LEAVE, ErrorCode.NO_ANSWER).give(SUBSCRIBED)
    assert [(one.epoch, one.member_id) for one in driven.beats()] == [(LEAVES, "p"), (JOINS, "p-1")]
    driven.refuse(LEAVE, ErrorCode.NONE)
    assert driven.member.beat.left_behind == ()


@pytest.mark.parametrize(("config", "epoch"), [(CONFIG, LEAVES), (STATIC, LEAVES_FOR_NOW)])
@pytest.mark.parametrize("before", [CLOSED, ApplicationStalled()], ids=["at work", "after a loss"])
def test_leave_without_a_coordinator_is_sent_before_the_next_join(
    config: MemberConfig, epoch: int, before: Event
) -> None:
    """The coordinator would refuse the next join of a static id until the session ends."""
    driven = stable(config).fail_beat(ErrorCode.NOT_COORDINATOR).give(before).give(CLOSED)
    assert (driven.member.state, driven.beats()) == (MemberState.UNSUBSCRIBED, [])
    old, fresh = driven.give(SUBSCRIBED).find().beats()
    assert [(one.epoch, one.member_id) for one in (old, fresh)] == [(epoch, "p"), (JOINS, "p-1")]


def test_part_of_a_revocation_is_told_with_the_regular_heartbeat() -> None:
    driven = stable().beat(EMPTY).stop(T0)
    assert driven.beats() == []
    assert driven.due().the_beat().owned == by_id(T1)
