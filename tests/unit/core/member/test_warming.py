"""A member's warm-ups: begun, warm, moved, cancelled, failed, and told in its joins."""

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberConfig, MemberState, RequestKind, new_member
from coopgroup.core.member.effects import BeginWarmups, CancelWarmups, GrantResources
from coopgroup.core.member.events import (
    LeaveRequested,
    LossHandled,
    RejoinRequested,
    RevocationCompleted,
    SubscriptionChanged,
    WarmedUp,
    WarmSetDeclared,
    WarmupFailed,
    Woken,
)
from coopgroup.core.member.parts import Warmups
from coopgroup.core.member.requests import next_deadline_ms
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.telemetry import WarmupsChanged
from tests.support.members import CONFIG, EVERY_STATE, HELD, KEEPING, DrivenMember, stable, synced

GRACE_MS = CONFIG.revocation_grace_ms
PACE_MS = CONFIG.heartbeat_interval_ms


def some(*indices: int) -> ResourceSet:
    return ResourceSet({"T": indices})


def told(driven: DrivenMember) -> ResourceSet | None:
    """Return the warm set of the join that the last step sent."""
    return driven.user_data().warm


def warmups(driven: DrivenMember) -> Warmups:
    found = driven.member.next_join.warmups
    assert found is not None
    return found


def changes(driven: DrivenMember) -> list[WarmupsChanged]:
    return driven.reported(WarmupsChanged)


def begun(driven: DrivenMember) -> list[ResourceSet]:
    return [one.resources for one in driven.found(BeginWarmups)]


def cancelled(driven: DrivenMember) -> list[ResourceSet]:
    return [one.resources for one in driven.found(CancelWarmups)]


def taking_part(warm: ResourceSet = EMPTY, config: MemberConfig = CONFIG) -> DrivenMember:
    """Return a member that takes part, and whose first join is pending."""
    driven = DrivenMember(member=new_member(config))
    return driven.give(WarmSetDeclared(warm=warm)).subscribe()


def warming(*indices: int, held: ResourceSet = HELD) -> DrivenMember:
    """Return a settled member that was told to warm up some resources."""
    return taking_part().join().sync(held, warmups=some(*indices))


def next_round(driven: DrivenMember, generation: int = 2) -> DrivenMember:
    return driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(generation)


def test_member_that_takes_no_part_ignores_reports() -> None:
    driven = stable()
    before = driven.member
    for event in (WarmedUp(resources=some(2)), WarmupFailed(resources=some(2), error="full")):
        driven.give(event)
        assert driven.member == before
        assert driven.effects == ()


def test_assigned_warmup_begins_after_the_grant() -> None:
    driven = warming(2, 3)
    kinds = [type(one) for one in driven.effects]
    assert kinds.index(GrantResources) < kinds.index(BeginWarmups)
    assert begun(driven) == [some(2, 3)]
    assert changes(driven) == [WarmupsChanged(begun=some(2, 3))]
    assert driven.member.state is MemberState.STABLE
    assert next_deadline_ms(driven.member) == driven.member.heartbeat_at_ms


def test_warmup_that_is_named_no_longer_is_cancelled() -> None:
    driven = next_round(warming(2, 3)).sync(warmups=some(3, 4))
    assert (begun(driven), cancelled(driven)) == ([some(4)], [some(2)])
    assert changes(driven) == [WarmupsChanged(begun=some(4), cancelled=some(2))]


def test_assigned_warmup_is_moved_and_neither_begun_nor_cancelled() -> None:
    driven = next_round(warming(2, 3).give(WarmedUp(resources=some(2))))
    driven.sync(HELD | some(2), warmups=some(3))
    assert begun(driven) == cancelled(driven) == []
    assert changes(driven) == [WarmupsChanged(moved=some(2))]
    assert warmups(driven).warm == EMPTY
    assert warmups(driven).begun == some(3)


def test_warm_member_rejoins_after_a_short_time_and_tells_it() -> None:
    driven = warming(2, 3).wait(PACE_MS).give(WarmedUp(resources=some(2)))
    assert changes(driven) == [WarmupsChanged(warm=some(2))]
    assert driven.member.wants_a_round_at_ms == driven.now_ms + GRACE_MS
    assert driven.sent() == []
    driven.wait(GRACE_MS)
    assert told(driven) == some(2)
    assert driven.sent_join().reason == "became warm"
    assert warmups(driven).rejoin_at_ms is None


def test_rejoin_waits_for_one_heartbeat_interval_after_the_last_join() -> None:
    driven = warming(2)
    joined_ms = driven.member.last_join.sent_at_ms
    driven.give(WarmedUp(resources=some(2)))
    assert driven.member.wants_a_round_at_ms == joined_ms + PACE_MS


def test_failed_warmup_is_cold_and_does_not_begin_again() -> None:
    driven = warming(2, 3).give(WarmupFailed(resources=some(2, 9), error="disk full"))
    assert changes(driven) == [WarmupsChanged(failed=some(2), error="disk full")]
    driven.give(WarmedUp(resources=some(2, 3))).wait(PACE_MS)
    assert told(driven) == some(3)
    driven.join(2).sync(warmups=some(2, 3))
    assert begun(driven) == cancelled(driven) == []


def test_failed_warmup_is_told_at_the_next_pace_and_until_the_leader_cancels_it() -> None:
    driven = warming(2, 3).give(WarmupFailed(resources=some(2), error="disk full")).wait(PACE_MS)
    assert (told(driven), driven.user_data().declined_warmups) == (EMPTY, some(2))
    assert driven.sent_join().reason == "declined a warm-up"
    driven.join(2).sync(warmups=some(2, 3))
    assert driven.member.wants_a_round_at_ms is None, "the leader knows it"
    assert driven.give(RejoinRequested(reason="other")).user_data().declined_warmups == some(2)
    driven.join(3).sync(warmups=some(3))
    assert not driven.give(RejoinRequested(reason="other")).user_data().declined_warmups


def test_host_is_told_with_warm_ups_only() -> None:
    config = attrs.evolve(CONFIG, host="node-3")
    plain = DrivenMember(member=new_member(config)).subscribe()
    for driven, host in ((plain, None), (taking_part(config=config), "node-3")):
        assert driven.user_data().host == host


def revoking_and_keeping() -> DrivenMember:
    """Return a member that must stop T-1 and keep its state."""
    driven = next_round(warming())
    return driven.sync(some(0), follow_up=True, warmups=some(1, 2))


def test_revoked_warmup_begins_only_after_it_has_stopped() -> None:
    driven = revoking_and_keeping()
    assert driven.revoked() == [some(1)]
    assert begun(driven) == [some(2)]
    driven.give(RevocationCompleted(resources=some(1)))
    assert begun(driven) == [some(1)]
    assert changes(driven) == [WarmupsChanged(begun=some(1), warm=some(1))]
    assert (told(driven), driven.claims().owned) == (some(1), some(0))


def test_resource_to_keep_that_the_member_has_lost_does_not_begin() -> None:
    """The leader read an old claim, and counts the member as warm. The next round decides anew."""
    stale = taking_part().join()
    answer = synced(some(0), revoked=some(1), warmups=some(1, 2))
    stale.answer(RequestKind.SYNC_GROUP, answer)
    assert begun(stale) == [some(2)]
    stale.join(2).sync(some(0), warmups=some(1, 2))
    assert begun(stale) == [some(1)]


def test_revoked_resource_whose_state_failed_is_not_kept() -> None:
    driven = revoking_and_keeping()
    driven.give(WarmupFailed(resources=some(1), error="not stopped in time"))
    driven.give(RevocationCompleted(resources=some(1)))
    assert begun(driven) == []
    assert told(driven) == EMPTY


def test_loss_of_the_membership_keeps_warmups_until_the_next_assignment() -> None:
    driven = warming(2, 3).give(WarmedUp(resources=some(2)))
    driven.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driven.member.state is MemberState.LOSING
    assert cancelled(driven) == []
    driven.give(WarmedUp(resources=some(3))).give(LossHandled())
    assert told(driven) == some(2, 3)
    driven.join(2).sync(EMPTY, warmups=some(3))
    assert (begun(driven), cancelled(driven)) == ([], [some(2)])


def test_declaration_without_news_wants_no_round() -> None:
    driven = taking_part(some(2)).join().sync(warmups=some(2))
    assert driven.give(WarmSetDeclared(warm=some(2))).effects == ()


@pytest.mark.parametrize("config", [attrs.evolve(CONFIG, instance_id="i"), KEEPING])
@pytest.mark.parametrize("found", [some(2), EMPTY])
def test_returning_process_tells_its_warm_set_once(
    config: MemberConfig, found: ResourceSet
) -> None:
    driven = taking_part(found, config).join().sync(warmups=some(2))
    driven.wait(PACE_MS)
    assert told(driven) == found
    driven.join(2).sync(warmups=some(2))
    assert driven.member.wants_a_round_at_ms is None


def test_application_that_takes_part_no_longer_is_told_the_end() -> None:
    driven = warming(2, 3).give(WarmSetDeclared(warm=None))
    assert cancelled(driven) == [some(2, 3)]
    assert told(driven) is None


def test_member_that_hands_over_tells_it_until_it_subscribes_again() -> None:
    """The application's own rounds and a repeated call keep it; its claims and warm set stay."""
    leaves = SubscriptionChanged(topics=(), hands_over=True)
    driven = warming(2).give(leaves)
    assert driven.user_data().hands_over
    assert driven.claims().topics == ()
    assert driven.claims().owned == HELD
    driven.join(2).sync(HELD)
    driven.give(leaves)
    assert driven.member.state is MemberState.STABLE  # it is told already
    assert driven.give(RejoinRequested(reason="again")).user_data().hands_over
    driven.join(3).sync(HELD)
    assert not driven.give(SubscriptionChanged(topics=("T",))).user_data().hands_over


def test_member_that_leaves_no_longer_hands_over() -> None:
    driven = warming(2).give(SubscriptionChanged(topics=(), hands_over=True)).join(2).sync(HELD)
    driven.give(LeaveRequested(reason="closed"))
    assert not driven.member.next_join.hands_over


def test_leaving_member_ends_its_warmups_without_a_notice() -> None:
    driven = warming(2).give(LeaveRequested(reason="closed"))
    assert changes(driven) == [WarmupsChanged(cancelled=some(2))]
    assert cancelled(driven) == []
    assert driven.member.next_join.warmups is None


def test_reports_are_legal_in_every_state(subtests: pytest.Subtests) -> None:
    for state, build in EVERY_STATE.items():
        with subtests.test(state=state):
            driven = build()
            driven.give(WarmSetDeclared(warm=some(3)))
            driven.give(WarmedUp(resources=some(3))).give(
                WarmupFailed(resources=some(3), error="e")
            )
            driven.give(WarmSetDeclared(warm=None)).give(Woken())
            assert driven.member.next_join.warmups is None
