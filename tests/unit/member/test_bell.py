"""A member's bell: when it rings, and what it does with the rings that it hears."""

import attrs
import pytest

from coopgroup.member import ErrorCode, MemberState, RequestKind, new_member
from coopgroup.member.effects import RingBell
from coopgroup.member.events import (
    BellRang,
    LeaveRequested,
    RejoinRequested,
    RevocationCompleted,
)
from coopgroup.member.requests import next_deadline_ms
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import LeaveGroupAnswer
from tests.support.members import CONFIG, EVERY_STATE, DrivenMember, joined, stable

PACE_MS = CONFIG.heartbeat_interval_ms
WITH_BELL = attrs.evolve(CONFIG, has_bell=True)


def joining() -> DrivenMember:
    """Return a new member with an id, whose first join that counts is pending."""
    return given_an_id(DrivenMember(member=new_member(WITH_BELL)).subscribe())


def given_an_id(driven: DrivenMember) -> DrivenMember:
    """Answer a join that only asks for a member id."""
    refused = attrs.evolve(joined(-1), error_code=int(ErrorCode.MEMBER_ID_REQUIRED))
    return driven.answer(RequestKind.JOIN_GROUP, refused)


def settled() -> DrivenMember:
    """Return a stable member whose last heartbeat was answered, and whose next one is far."""
    return joining().join().sync().heartbeat()


def rings(driven: DrivenMember, for_ms: int) -> list[int]:
    """Return the times after now at which the member rings."""
    heard, begun_ms = [], driven.now_ms
    while (at_ms := next_deadline_ms(driven.member)) is not None and at_ms <= begun_ms + for_ms:
        driven.wait(at_ms - driven.now_ms)
        heard += [driven.now_ms - begun_ms for _ in driven.found(RingBell)]
        if RequestKind.HEARTBEAT in driven.member.outstanding:
            driven.heartbeat()
    return heard


def heartbeats(driven: DrivenMember, *, every_ms: int, for_ms: int) -> int:
    """Return the heartbeats of a member that hears a ring again and again; each is answered."""
    count, end_ms = 0, driven.now_ms + for_ms
    while driven.now_ms < end_ms:
        driven.now_ms += every_ms
        driven.give(BellRang())
        if RequestKind.HEARTBEAT in driven.member.outstanding:
            count += 1
            driven.heartbeat()
    return count


# --- ringing ---------------------------------------------------------------------------------


def test_join_that_waits_rings_three_times() -> None:
    assert rings(joining(), 5_000) == [10, 60, 260]


def test_join_that_is_answered_at_once_does_not_ring() -> None:
    driven = joining().wait(9).join().sync()
    assert rings(driven, 500) == []


def test_join_without_an_id_does_not_ring() -> None:
    assert rings(DrivenMember(member=new_member(WITH_BELL)).subscribe(), 500) == []


def test_static_member_rings_with_its_first_join() -> None:
    config = attrs.evolve(WITH_BELL, instance_id="i")
    assert rings(DrivenMember(member=new_member(config)).subscribe(), 50) == [10]


def test_requested_round_rings() -> None:
    assert rings(settled().give(RejoinRequested(reason="partitions changed")), 50) == [10]


def test_round_that_the_coordinator_told_does_not_ring() -> None:
    driven = settled().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driven.member.state is MemberState.JOINING
    assert rings(driven, 500) == []


def test_follow_up_round_does_not_ring() -> None:
    driven = joining().join().sync(ResourceSet(), follow_up=True)
    assert driven.member.state is MemberState.JOINING
    assert rings(driven, 500) == []


def test_member_that_stopped_resources_rings() -> None:
    driven = settled().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    driven.sync(ResourceSet({"T": [0]}), follow_up=True)
    driven.give(RevocationCompleted(resources=ResourceSet({"T": [1]})))
    assert driven.member.state is MemberState.JOINING
    assert rings(driven, 50) == [10]


def test_member_that_left_rings_after_the_answer() -> None:
    driven = settled().give(LeaveRequested(reason="closed"))
    assert not driven.found(RingBell)
    driven.answer(RequestKind.LEAVE_GROUP, LeaveGroupAnswer(error_code=0))
    assert driven.found(RingBell)
    assert driven.member.state is MemberState.UNSUBSCRIBED


def test_refused_leave_does_not_ring() -> None:
    driven = settled().give(LeaveRequested(reason="closed"))
    driven.refuse(RequestKind.LEAVE_GROUP, ErrorCode.UNKNOWN_MEMBER_ID)
    assert not driven.found(RingBell)


def test_rings_are_at_least_50_ms_apart() -> None:
    driven = settled().give(RejoinRequested(reason="first")).wait(10)
    assert driven.found(RingBell)
    driven.join(2).sync().give(RejoinRequested(reason="second"))
    assert rings(driven, 5_000) == [60, 260]


def test_join_that_was_given_up_does_not_ring() -> None:
    driven = settled().give(RejoinRequested(reason="new")).give(LeaveRequested(reason="closed"))
    assert next_deadline_ms(driven.member) is None
    assert rings(driven, 500) == []


# --- hearing ---------------------------------------------------------------------------------


def test_stable_member_sends_its_heartbeat_at_a_ring() -> None:
    driven = settled()
    driven.now_ms += 1
    assert driven.give(BellRang()).sent() == ["HeartbeatRequest"]
    assert driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).sent() == ["JoinGroupRequest"]


def test_member_that_stops_resources_sends_its_heartbeat_at_a_ring() -> None:
    driven = settled().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    driven.sync(ResourceSet({"T": [0]}), follow_up=True).heartbeat()
    assert driven.give(BellRang()).sent() == ["HeartbeatRequest"]


def test_heartbeat_on_its_way_is_followed_by_another() -> None:
    """The first one may have been answered before the round began."""
    driven = settled()
    driven.wait(PACE_MS)
    assert driven.give(BellRang()).sent() == []
    assert driven.heartbeat().sent() == ["HeartbeatRequest"]


def test_ring_during_a_sync_is_heeded_after_it() -> None:
    driven = settled().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    assert driven.give(BellRang()).sent() == []
    assert driven.sync().sent() == ["HeartbeatRequest"]


def test_ring_during_a_join_is_forgotten() -> None:
    driven = settled().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driven.give(BellRang()).join(2).sync().sent() == []


def test_heartbeats_for_rings_are_50_ms_apart() -> None:
    driven = settled()
    driven.now_ms += 1
    driven.give(BellRang()).heartbeat()
    assert driven.give(BellRang()).sent() == []
    assert driven.wait(49).sent() == []
    assert driven.wait(1).sent() == ["HeartbeatRequest"]


@pytest.mark.parametrize("every_ms", [1, 20, 49, 51, 300, 999])
def test_false_rings_cost_eight_heartbeats_and_double_their_rate(every_ms: int) -> None:
    """Without rings, a member sends one in each interval."""
    intervals = 30
    count = heartbeats(settled(), every_ms=every_ms, for_ms=intervals * PACE_MS)
    assert intervals - 1 <= count <= 8 + 2 * intervals


def test_round_lets_a_member_heed_rings_again() -> None:
    driven = settled()
    heartbeats(driven, every_ms=10, for_ms=5 * PACE_MS // 2)
    driven.now_ms += 60
    assert driven.give(BellRang()).sent() == []
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2).sync().heartbeat()
    driven.now_ms += 60
    assert driven.give(BellRang()).sent() == ["HeartbeatRequest"]


@pytest.mark.parametrize("state", EVERY_STATE)
def test_ring_is_legal_in_every_state_and_moves_no_member(state: MemberState) -> None:
    driven = EVERY_STATE[state]()
    driven.member = attrs.evolve(driven.member, config=WITH_BELL)
    assert driven.give(BellRang()).member.state is state


# --- without a bell --------------------------------------------------------------------------


def test_member_without_a_bell_neither_rings_nor_hears() -> None:
    driven = stable().heartbeat()
    before = driven.member
    assert driven.give(BellRang()).member == before
    assert driven.effects == ()
    assert rings(driven.give(RejoinRequested(reason="partitions changed")), 500) == []
    driven = stable().give(LeaveRequested(reason="closed"))
    driven.answer(RequestKind.LEAVE_GROUP, LeaveGroupAnswer(error_code=0))
    assert not driven.found(RingBell)
