"""Effects of events on a member: rounds, revocations, losses, leaving, time."""

from collections.abc import Callable

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind, next_deadline_ms
from coopgroup.core.member.effects import (
    CancelJoin,
    DecideRound,
    GrantResources,
    Lane,
    RevokeResources,
    Send,
)
from coopgroup.core.member.events import (
    Answered,
    ApplicationStalled,
    CatalogueSeen,
    Event,
    LeaveRequested,
    LossHandled,
    RejoinRequested,
    RevocationCompleted,
    StartsDeclined,
    SubscriptionChanged,
)
from coopgroup.core.member.parts import Warmups
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import HeartbeatAnswer, LeaveGroupRequest
from coopgroup.core.model.replacing import replaced
from coopgroup.protocol import UserData
from tests.support.members import (
    CONFIG,
    EVERY_STATE,
    HELD,
    OTHER_NODE,
    WITH_NOTHING,
    WITH_RESOURCES,
    DrivenMember,
    eager,
    failed,
    joined,
    joining,
    leading,
    leaving,
    losing,
    rejoining,
    revoking,
    stable,
    static,
    syncing,
    syncing_again,
)

Kind = RequestKind
T0, T1 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})


def claims_of(driven: DrivenMember) -> tuple[tuple[str, ...], ResourceSet, int]:
    """Return topics, claims and their generation from the join that the last step sent."""
    subscription = driven.claims()
    return tuple(subscription.topics), subscription.owned, subscription.generation


# --- joining -----------------------------------------------------------------------------------


def test_join_when_a_round_begins_claims_all_with_the_generation_of_the_last_sync() -> None:
    """Claims carry the generation in which they were confirmed (KIP-792)."""
    driven = rejoining()
    assert claims_of(driven) == (("T",), HELD, 1)
    driven.join(2).refuse(Kind.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
    assert claims_of(driven) == (("T",), HELD, 1)


def test_leader_when_told_to_skip_takes_the_stored_assignment() -> None:
    """KIP-814: a static leader that came back asks for the stored assignment."""
    driven = joining().answer(Kind.JOIN_GROUP, joined(1, leads=True, skip=True))
    assert (driven.member.state, driven.sent()) == (MemberState.SYNCING, ["SyncGroupRequest"])
    assert driven.found(DecideRound) == []


def test_decision_of_another_round_of_the_same_generation_is_dropped() -> None:
    """A coordinator that took over from an older log repeats the generation number."""
    driven = leading()
    late = driven.decided()
    driven.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID).join(leads=True)
    before = driven.member
    assert driven.give(late).member == before
    assert driven.decide().member.state is MemberState.SYNCING


def test_answer_when_its_request_was_given_up_is_dropped() -> None:
    driven = stable().wait(1_000)
    before = driven.member
    driven.give(Answered(request_id=1, answer=HeartbeatAnswer(error_code=25)))
    assert (driven.member, driven.effects) == (before, ())


def test_heartbeat_of_the_old_generation_when_a_join_is_on_its_way_is_ignored() -> None:
    """The round ended, and the answer to the join decides. Error 22 adds nothing."""
    driven = rejoining().heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert (driven.member.state, driven.member.owned) == (MemberState.JOINING, HELD)
    driven.wait(1_000).join(2)
    driven.answer(Kind.HEARTBEAT, HeartbeatAnswer(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert (driven.member.state, driven.member.owned) == (MemberState.SYNCING, HELD)


@pytest.mark.parametrize("reach", [rejoining, syncing_again])
def test_coordinator_when_it_moved_while_a_join_or_a_sync_waits_is_joined_anew(
    reach: Callable[[], DrivenMember],
) -> None:
    """The old coordinator will never answer the join, and the new one knows of no round."""
    driven = reach().heartbeat(ErrorCode.NOT_COORDINATOR).find(OTHER_NODE)
    assert driven.effects[0] == CancelJoin()
    assert driven.request(Kind.JOIN_GROUP).coordinator == OTHER_NODE
    assert (driven.member.state, claims_of(driven)) == (MemberState.JOINING, (("T",), HELD, 1))


# --- what a round says -------------------------------------------------------------------------


def test_assignment_gives_only_the_difference() -> None:
    more = ResourceSet({"T": [0, 7]})
    driven = syncing_again().sync(more, follow_up=True)
    told = [e for e in driven.effects if isinstance(e, GrantResources | RevokeResources)]
    assert told == [RevokeResources(resources=T1), GrantResources(resources=more - HELD)]
    assert driven.member.owned == HELD | more
    assert syncing_again().sync(HELD).granted() == []


def test_revocation_completes_only_what_was_asked_for() -> None:
    """A host that reports more has not stopped the partitions that the member still owns."""
    driven = revoking().give(RevocationCompleted(resources=HELD))
    assert driven.member.owned == T0


def test_static_member_when_its_assignment_is_replayed_is_not_harmed() -> None:
    """A stored follow-up or delay costs at most one round. The assignment is complete."""
    driven = static(joining()).join(5).sync(HELD, follow_up=True)
    assert driven.granted() == [HELD]
    assert driven.revoked() == []
    assert claims_of(driven) == (("T",), HELD, 5)
    delayed = static(joining()).join(5).sync(HELD, rejoin_in_ms=500).wait(500)
    assert claims_of(delayed) == (("T",), HELD, 5)


# --- what the application asks for -------------------------------------------------------------


@pytest.mark.parametrize("state", [MemberState.LEADING, MemberState.SYNCING, MemberState.REVOKING])
def test_subscription_when_in_a_round_is_carried_by_the_next_join(state: MemberState) -> None:
    driven = WITH_RESOURCES[state]().give(SubscriptionChanged(topics=("U",)))
    assert (driven.member.state, driven.member.next_join.topics) == (state, ("U",))


def test_rejoin_request_starts_a_round_with_its_reason() -> None:
    """KIP-800: the reason is in the broker's log."""
    driven = stable().give(RejoinRequested(reason="uneven lag"))
    assert driven.sent_join().reason == "uneven lag"
    assert syncing().give(RejoinRequested(reason="uneven lag")).sync().sent() == [
        "JoinGroupRequest"
    ]


def test_catalogue_when_seen_is_in_the_next_join() -> None:
    driven = stable().give(CatalogueSeen(version=7))
    assert driven.member.last_join.catalogue_version is None
    driven.give(RejoinRequested(reason="another catalogue"))
    assert driven.user_data() == UserData(catalogue_version=7)
    assert driven.member.last_join.catalogue_version == 7


def test_declined_resources_are_in_each_join_and_begin_a_round_if_they_change() -> None:
    declined = ResourceSet({"T": [1]})
    driven = stable().give(StartsDeclined(resources=declined))
    assert driven.user_data() == UserData(declined=declined)
    again = stable().give(StartsDeclined(resources=EMPTY))
    assert again.sent() == []


def test_declined_starts_and_warm_ups_are_told_apart() -> None:
    driven = stable()
    warmups = Warmups(wanted=ResourceSet({"T": [5]}), failed=ResourceSet({"T": [5]}))
    driven.member = replaced(
        driven.member, next_join=attrs.evolve(driven.member.next_join, warmups=warmups)
    )
    driven.give(StartsDeclined(resources=ResourceSet({"T": [6]})))
    told = driven.user_data()
    assert told is not None
    assert (told.declined, told.declined_warmups) == (
        ResourceSet({"T": [6]}),
        ResourceSet({"T": [5]}),
    )


@pytest.mark.parametrize("reach", [losing, leaving, failed, DrivenMember])
def test_rejoin_request_when_not_at_work_means_nothing(reach: type[DrivenMember]) -> None:
    driven = reach()
    before = driven.member
    assert driven.give(RejoinRequested(reason="uneven lag")).member == before


def test_stalled_application_leaves_and_comes_back_when_it_polls() -> None:
    driven = stable().give(ApplicationStalled())
    assert driven.sent() == ["LeaveGroupRequest"]
    assert driven.lost() == [HELD]
    assert driven.wait(100_000).sent() == []
    driven.give(LossHandled())
    assert (driven.sent_join().member_id, claims_of(driven)) == ("", (("T",), EMPTY, -1))


def test_stalled_application_when_it_holds_nothing_still_has_to_come_back() -> None:
    """aiokafka#1187: such a member must neither stay outside nor join without an application."""
    driven = stable(EMPTY).give(ApplicationStalled())
    assert (driven.member.state, driven.wait(60_000).sent()) == (MemberState.LOSING, [])
    assert driven.give(LossHandled()).sent() == ["JoinGroupRequest"]


def test_stalled_application_and_close_end_in_peace(subtests: pytest.Subtests) -> None:
    for state in [s for s in MemberState if s is not MemberState.LEAVING]:
        with subtests.test(state=state):
            driven = (
                EVERY_STATE[state]()
                .give(ApplicationStalled())
                .give(LeaveRequested(reason="closed"))
            )
            if driven.member.state is MemberState.LEAVING:
                driven.refuse(Kind.LEAVE_GROUP, ErrorCode.NONE)
            assert (driven.member.state, driven.member.owned) == (MemberState.UNSUBSCRIBED, EMPTY)
            assert next_deadline_ms(driven.member) is None


def test_leave_tells_the_coordinator_once(subtests: pytest.Subtests) -> None:
    for state in [*WITH_RESOURCES, MemberState.LOSING]:
        with subtests.test(state=state):
            driven = {**WITH_RESOURCES, MemberState.LOSING: stable_lease_lost}[state]()
            driven.give(LeaveRequested(reason="closed"))
            assert [send.request for send in driven.found(Send)] == [
                LeaveGroupRequest(
                    group_id="g", member_id="m", group_instance_id=None, reason="closed"
                )
            ]
            assert driven.request(Kind.LEAVE_GROUP).lane is Lane.COMMIT
            assert (driven.member.owned, driven.wait(60_000).sent()) == (EMPTY, [])


def stable_lease_lost() -> DrivenMember:
    """The member lost all by its own clock. The coordinator may still know it."""
    return stable().wait(CONFIG.session_timeout_ms)


def test_leave_of_a_static_member_is_silent(subtests: pytest.Subtests) -> None:
    """KIP-345: it keeps its place for its next life."""
    for state in list(WITH_NOTHING):
        with subtests.test(state=state):
            driven = static(WITH_NOTHING[state]()).give(LeaveRequested(reason="closed"))
            assert (driven.member.state, driven.sent()) == (MemberState.UNSUBSCRIBED, [])


def test_leave_after_a_stall_is_sent_for_the_new_membership_too() -> None:
    """The pending leave belongs to the earlier membership, not to this one."""
    driven = stable().give(ApplicationStalled()).give(LossHandled()).join()
    driven.give(LeaveRequested(reason="closed"))
    assert driven.sent() == ["LeaveGroupRequest"]


# --- the eager way ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", [RejoinRequested(reason="uneven lag"), SubscriptionChanged(topics=("T", "U"))]
)
def test_eager_member_stops_all_before_it_joins(event: Event) -> None:
    driven = eager(stable()).give(event)
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    assert driven.revoked() == [HELD]
    driven.give(RevocationCompleted(resources=T0)).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driven.wait(1_000)
    assert driven.member.state is MemberState.REVOKING
    driven.give(RevocationCompleted(resources=T1))
    assert claims_of(driven) == (driven.member.next_join.topics, EMPTY, 1)
    driven.join(2).sync(HELD)
    assert driven.granted() == [HELD]
    assert driven.revoked() == []


# --- time --------------------------------------------------------------------------------------


def _member_when_woken_at_its_deadlines_is_never_woken_for_nothing(state: MemberState) -> None:
    driven = EVERY_STATE[state]()
    for _ in range(40):
        deadline = next_deadline_ms(driven.member)
        if deadline is None:
            break
        assert deadline > driven.now_ms
        driven.wait(deadline - driven.now_ms)
        for kind, sent in sorted(driven.member.outstanding.items(), key=lambda item: item[0].name):
            if sent.sent_at_ms < driven.now_ms - 500 and kind in driven.member.outstanding:
                driven.refuse(kind, ErrorCode.NO_ANSWER)


def test_member_when_woken_at_its_deadlines_is_never_woken_for_nothing(
    subtests: pytest.Subtests,
) -> None:
    """Each wake-up sends a request, loses resources or moves the deadline: no busy loop."""
    for state in list(MemberState):
        with subtests.test(state=state):
            _member_when_woken_at_its_deadlines_is_never_woken_for_nothing(state)
