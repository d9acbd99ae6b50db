"""A member's bell: when it rings, and what it does with the rings that it hears."""

from collections.abc import Callable

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberConfig, MemberState, RequestKind, new_member
from coopgroup.core.member.effects import RingBell
from coopgroup.core.member.events import (
    BellRang,
    LeaveRequested,
    RejoinRequested,
    RevocationCompleted,
)
from coopgroup.core.member.requests import next_deadline_ms
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import LeaveGroupAnswer
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


BEGUN = ErrorCode.REBALANCE_IN_PROGRESS
ONLY_T0, T1 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
STOPPED = RevocationCompleted(resources=T1)
ASKED = RejoinRequested(reason="partitions changed")


def new(config: MemberConfig = WITH_BELL) -> DrivenMember:
    return DrivenMember(member=new_member(config)).subscribe()


def stopping() -> DrivenMember:
    return settled().heartbeat(BEGUN).join(2).sync(ONLY_T0, follow_up=True)


RINGS, SILENT = [10, 60, 260], list[int]()
# fmt: off
JOINS: dict[str, tuple[Callable[[], DrivenMember], list[int]]] = {
    "a join that waits": (joining, RINGS),
    "a join that is answered at once": (lambda: joining().wait(9).join().sync(), SILENT),
    "a join without an id": (new, SILENT),
    "the first join of a static member": (
        lambda: new(attrs.evolve(WITH_BELL, instance_id="i")), RINGS),
    "a round that was requested": (lambda: settled().give(ASKED), RINGS),
    "a request right after a ring: at least 50 ms apart": (
        lambda: settled().give(ASKED).wait(10).join(2).sync().give(ASKED), RINGS[1:]),
    "a round that the coordinator told": (lambda: settled().heartbeat(BEGUN), SILENT),
    "a follow-up round": (lambda: joining().join().sync(ResourceSet(), follow_up=True), SILENT),
    "stopped resources": (lambda: stopping().give(STOPPED), RINGS),
    "a join that was given up": (
        lambda: settled().give(ASKED).give(LeaveRequested(reason="closed")), SILENT),
}
# fmt: on


@pytest.mark.parametrize(("reach", "expected_ms"), JOINS.values(), ids=JOINS)
def test_join_rings_until_it_is_answered_if_the_others_cannot_know_of_it(
    reach: Callable[[], DrivenMember], expected_ms: list[int]
) -> None:
    assert rings(reach(), 1_000) == expected_ms


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


# --- hearing ---------------------------------------------------------------------------------


def test_stable_member_sends_its_heartbeat_at_a_ring() -> None:
    driven = settled()
    driven.now_ms += 1
    assert driven.give(BellRang()).sent() == ["HeartbeatRequest"]
    assert driven.heartbeat(BEGUN).sent() == ["JoinGroupRequest"]


def test_heartbeat_on_its_way_is_followed_by_another() -> None:
    """The first one may have been answered before the round began."""
    driven = settled()
    driven.wait(PACE_MS)
    assert driven.give(BellRang()).sent() == []
    assert driven.heartbeat().sent() == ["HeartbeatRequest"]


def test_ring_during_a_sync_is_heeded_after_it() -> None:
    driven = settled().heartbeat(BEGUN).join(2)
    assert driven.give(BellRang()).sent() == []
    assert driven.sync().sent() == ["HeartbeatRequest"]


def test_ring_during_a_join_is_forgotten() -> None:
    driven = settled().heartbeat(BEGUN)
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


def test_ring_is_legal_in_every_state_and_moves_no_member(subtests: pytest.Subtests) -> None:
    for state in EVERY_STATE:
        with subtests.test(state=state):
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
