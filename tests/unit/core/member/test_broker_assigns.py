"""A member in a group whose broker assigns, because it has members of KIP-848.

The bytes of the assignments are those that Kafka 4.3.0 sent: its version is that of the member's
subscription, and its user data is null.
"""

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind, new_member
from coopgroup.core.member.broker_assigns import looks_at_ms
from coopgroup.core.member.effects import CancelWarmups, RingBell
from coopgroup.core.member.events import LossHandled, RevocationCompleted, WarmSetDeclared
from coopgroup.core.member.parts import BELL_PAUSE_MS
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import SyncGroupAnswer
from coopgroup.core.session import Session
from coopgroup.telemetry import AssigningMoved, AssignmentReceived, AssignmentUnreadable
from tests.support.driven_session import DrivenSession
from tests.support.members import (
    CONFIG,
    HELD,
    KEEPING,
    KEPT,
    DrivenMember,
    configured,
    rejoining,
    syncing_again,
)
from tests.support.members import joined as join_answer

Kind = RequestKind
SOON_MS, LATER_MS = 1_200, 30_000
BEGUN = ErrorCode.REBALANCE_IN_PROGRESS
T0, T1 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
ONLY_T0 = bytes.fromhex("0003 00000001 0001 54 00000001 00000000 ffffffff")
T0_AND_T1 = bytes.fromhex("0003 00000001 0001 54 00000002 00000000 00000001 ffffffff")


def of_version(version: int, content: bytes) -> bytes:
    return version.to_bytes(2, "big") + content[2:]


def joined(driven: DrivenMember, epoch: int, protocol: str = "coopgroup") -> DrivenMember:
    """Give the answer of a coordinator that assigns: it names no leader."""
    answer = join_answer(epoch, protocol=protocol)
    return driven.answer(Kind.JOIN_GROUP, attrs.evolve(answer, leader_id=""))


def synced(driven: DrivenMember, content: bytes) -> DrivenMember:
    return driven.answer(Kind.SYNC_GROUP, SyncGroupAnswer(error_code=0, assignment=content))


def taken_over(content: bytes = T0_AND_T1, epoch: int = 1) -> DrivenMember:
    """Return a member that owned T-0 and T-1 when the broker took over."""
    return synced(joined(rejoining(), epoch), content)


def stopping() -> DrivenMember:
    """Return a member that must stop T-1 because the broker says so."""
    return taken_over(ONLY_T0)


def moved(driven: DrivenMember) -> list[bool]:
    return [record.to_broker for record in driven.reported(AssigningMoved)]


# --- the bell -------------------------------------------------------------------------------------


def rings(driven: DrivenMember) -> int:
    return len(driven.found(RingBell))


def test_join_that_brings_a_new_epoch_rings() -> None:
    """It waits for nothing, so no later ring follows. Members of KIP-848 beat every five seconds.

    The first join takes partitions from others, and a later one gives partitions up for others.
    """
    driven = DrivenMember(member=new_member(attrs.evolve(CONFIG, has_bell=True))).subscribe()
    assert rings(joined(driven, 3)) == 1
    assert rings(synced(driven, T0_AND_T1)) == 0
    driven.heartbeat(BEGUN)
    assert rings(joined(driven, 3)) == 0  # the members that are there know of it
    assert rings(synced(driven, ONLY_T0)) == 0
    driven.give(RevocationCompleted(resources=T1)).wait(BELL_PAUSE_MS)
    assert rings(joined(driven, 4)) == 1


# --- rounds ---------------------------------------------------------------------------------------


def test_member_that_may_keep_all_is_told_of_nothing() -> None:
    driven = taken_over()
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)
    assert [*driven.revoked(), *driven.granted()] == []
    session_ms = CONFIG.session_timeout_ms
    assert driven.reported(AssignmentReceived) == [
        AssignmentReceived(
            leader=False, kept=HELD, protocol="coopgroup", session_timeout_ms=session_ms
        )
    ]


def test_member_stops_what_its_assignment_lacks_and_joins_without_it() -> None:
    """The broker gives it to nobody before that join. The epoch stays until then."""
    driven = stopping()
    assert driven.revoked() == [T1]
    assert driven.member.state is MemberState.REVOKING
    driven.give(RevocationCompleted(resources=T1))
    assert (driven.claims().owned, driven.claims().topics) == (T0, ("T",))
    synced(joined(driven, 2), ONLY_T0)
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, T0)


def test_member_that_stops_slowly_joins_once_in_a_heartbeat_interval() -> None:
    """The broker answers each heartbeat with 27 until it has stopped."""
    driven, joins = stopping(), 0
    began_ms = driven.now_ms
    while driven.now_ms < began_ms + 10 * CONFIG.heartbeat_interval_ms:
        driven.heartbeat(BEGUN).wait(CONFIG.revocation_grace_ms)
        assert driven.claims().owned == HELD
        synced(joined(driven, 1), ONLY_T0)
        assert driven.revoked() == []
        joins += 1
    assert joins <= 10
    assert driven.member.state is MemberState.REVOKING


def test_warm_ups_end_when_the_broker_assigns() -> None:
    driven = DrivenMember().give(WarmSetDeclared(warm=EMPTY)).subscribe().join()
    driven.sync(T0, warmups=T1).heartbeat(BEGUN)
    synced(joined(driven, 1), ONLY_T0)
    assert [one.resources for one in driven.found(CancelWarmups)] == [T1]


@pytest.mark.parametrize("content", [T0_AND_T1, ONLY_T0], ids=["keeps all", "stops one"])
def test_delay_of_the_policy_ends_when_the_broker_assigns(content: bytes) -> None:
    driven = syncing_again().sync(HELD, rejoin_in_ms=60_000).heartbeat(BEGUN)
    synced(joined(driven, 2), content)
    assert driven.member.delay.rejoin_at_ms is None
    if content is T0_AND_T1:
        driven.heartbeat(BEGUN)
    else:
        driven.give(RevocationCompleted(resources=T1))
    assert driven.user_data().rejoin_in_ms is None


# --- conversions ----------------------------------------------------------------------------------


def test_conversions_are_reported_once() -> None:
    driven = taken_over()
    assert moved(driven) == [True]
    synced(joined(driven.heartbeat(BEGUN), 2), T0_AND_T1)
    assert moved(driven) == []
    driven.heartbeat(BEGUN).join(3).sync(HELD)
    assert moved(driven) == [False]
    driven.heartbeat(BEGUN).join(4).sync(HELD)
    assert moved(driven) == []


def test_conversion_between_join_and_sync_may_change_the_protocol() -> None:
    """Regression: the member failed. The group's protocol is no longer that of the join."""
    driven = joined(rejoining(), 1).refuse(Kind.SYNC_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    driven.wait(driven.member.back_off.until_ms - driven.now_ms)
    assert driven.claims().owned == HELD


def test_conversion_down_when_the_epoch_is_behind_loses_nothing() -> None:
    """The epoch of the group becomes the generation, which the member has not reached."""
    driven = taken_over().heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert driven.lost() == []
    assert driven.claims().owned == HELD
    driven.join(9).sync(HELD)
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)


def test_conversion_down_while_it_stops_joins_soon() -> None:
    driven = stopping().heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    driven.wait(CONFIG.revocation_grace_ms)
    assert driven.claims().owned == HELD


def test_refused_generation_of_a_led_group_is_a_loss_as_before() -> None:
    driven = taken_over().heartbeat(BEGUN).join(3).sync(HELD)
    driven.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert driven.lost() == [HELD]


def test_leader_forgets_its_rounds_although_the_generation_stays() -> None:
    """The broker moves what it likes. So the first round after it has no memory."""
    driven = DrivenSession.of(rejoining())
    driven.change(led_generation=1, refusals=1, retry_at_ms=99_000)
    joined(driven, 1)
    assert driven.session == Session(member=driven.member)


def test_leader_tells_the_policy_that_the_broker_assigned_before() -> None:
    def after_broker(driven: DrivenMember) -> bool:
        return DrivenSession.of(driven).lead(2).duty().context.after_broker

    assert after_broker(taken_over().heartbeat(BEGUN))
    assert not after_broker(rejoining())


def test_member_asks_again_soon_after_a_change_and_rarely_later() -> None:
    """The broker makes its next target only when it is asked (KIP-1263)."""
    driven = synced(joined(rejoining(), 2), T0_AND_T1)
    assert looks_at_ms(driven.member) == driven.now_ms + SOON_MS
    driven.wait(SOON_MS)
    assert driven.claims().owned == HELD
    synced(joined(driven, 2), T0_AND_T1)
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)
    assert looks_at_ms(driven.member) == driven.now_ms + LATER_MS
    assert driven.member.heartbeat_at_ms <= driven.now_ms + CONFIG.window_heartbeat_interval_ms
    driven.heartbeat(BEGUN).join(3).sync(HELD)
    assert looks_at_ms(driven.member) is None


# --- the lease ------------------------------------------------------------------------------------


def test_join_renews_the_lease_although_the_epoch_stays() -> None:
    driven = rejoining()
    sent_ms = driven.member.outstanding[Kind.JOIN_GROUP].sent_at_ms
    joined(driven.wait(500), 1)
    lease = driven.member.lease
    assert lease.until_ms == sent_ms + CONFIG.session_timeout_ms
    assert lease.settled_at_ms == sent_ms


@pytest.mark.parametrize("instance_id", [None, "static"])
def test_join_that_is_answered_after_the_lease_is_a_loss(instance_id: str | None) -> None:
    """The broker accepts a member that it has dropped as a new one, under the same id."""
    driven = configured(rejoining(), instance_id=instance_id)
    driven.now_ms = driven.member.hold_until_ms
    joined(driven, 5)
    assert driven.lost() == [HELD]
    driven.give(LossHandled())
    assert driven.claims().owned == EMPTY
    synced(joined(driven, 5), T0_AND_T1)
    assert driven.granted() == [HELD]


# --- recognised by the bytes ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_sync_without_a_join_is_recognised_by_its_bytes(version: int) -> None:
    """A member with a kept identity returns so. Version 1 of ours has more bytes."""
    driven = DrivenMember(member=new_member(KEEPING, KEPT)).subscribe().heartbeat()
    synced(driven, of_version(version, T0_AND_T1))
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)
    assert moved(driven) == [True]


@pytest.mark.parametrize(
    "content",
    [
        b"\0\3 rubbish",
        ONLY_T0[:-1],
        ONLY_T0 + b"\0",
        of_version(4, ONLY_T0),
        ONLY_T0[:-4] + b"\0\0\0\0",
    ],
    ids=["rubbish", "cut off", "longer", "newer", "with user data"],
)
def test_assignment_that_is_neither_ours_nor_kafkas_is_refused(content: bytes) -> None:
    driven = synced(syncing_again(), content)
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)
    assert driven.reported(AssignmentUnreadable)
    assert moved(driven) == []


def test_unreadable_assignments_count_from_the_first_one() -> None:
    driven = synced(syncing_again(), b"rubbish")
    since_ms = driven.now_ms
    synced(driven.heartbeat(BEGUN).join(3), b"more rubbish")
    assert driven.member.last_assignment.unreadable_since_ms == since_ms
    assert "version" in driven.member.last_assignment.error
    driven.heartbeat(BEGUN).join(4).sync(HELD)
    assert driven.member.last_assignment.unreadable_since_ms is None
