"""The protocols that a member offers, and its behaviour if others speak only some of them."""

import attrs
import pytest

from coopgroup.core.member import ErrorCode, KeptIdentity, MemberState, RequestKind, new_member
from coopgroup.core.member.effects import FailMember
from coopgroup.core.member.events import (
    ApplicationStalled,
    CommitRequested,
    LossHandled,
    Offset,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.core.member.protocols import offered_subscriptions
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    JoinGroupRequest,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    SyncGroupAnswer,
)
from coopgroup.protocol import (
    KafkaAssignment,
    decode_cooperative_generation,
    decode_sticky_user_data,
    decode_subscription,
    encode_cooperative_generation,
    encode_kafka_assignment,
    has_signature,
    with_signature,
)
from coopgroup.simulator.coordinator import refusal
from coopgroup.telemetry import AssignmentReceived
from tests.support.members import (
    CONFIG,
    HELD,
    KEEPING,
    DrivenMember,
    speaking,
    stable,
    static,
    syncing_again,
)

Kind = RequestKind
ALL = ("coopgroup", "cooperative-sticky", "range", "roundrobin", "sticky")
T0, T1, U0 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]}), ResourceSet({"U": [0]})
OTHERS_ARE_EAGER = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def offered(driven: DrivenMember) -> dict[str, bytes]:
    request = driven.request(Kind.JOIN_GROUP).request
    assert isinstance(request, JoinGroupRequest)
    return dict(request.protocols)


def told(driven: DrivenMember, assigned: ResourceSet) -> DrivenMember:
    """Let a leader that speaks Kafka's protocols assign."""
    content = encode_kafka_assignment(KafkaAssignment(assigned=assigned))
    return driven.answer(Kind.SYNC_GROUP, SyncGroupAnswer(error_code=0, assignment=content))


def spoken_in_round(driven: DrivenMember) -> str:
    (record,) = driven.reported(AssignmentReceived)
    return record.protocol


def in_a_cooperative_round() -> DrivenMember:
    """The member holds T-0 and T-1, and its sync is pending."""
    driven = speaking(stable(), *ALL).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    return driven.join(2, protocol="cooperative-sticky")


def yielding() -> DrivenMember:
    """The member was refused while it held partitions, and gives up all of them."""
    driven = speaking(stable(), *ALL).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    return driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)


# --- what is offered ---------------------------------------------------------------------------


def test_member_that_holds_something_offers_no_eager_protocol() -> None:
    """An eager leader would give away partitions that this member still works on (KIP-429)."""
    driven = speaking(stable(), *ALL).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert tuple(offered(driven)) == ("coopgroup", "cooperative-sticky")


def test_member_that_holds_what_it_does_not_subscribe_to_offers_only_ours() -> None:
    """Leaders of other clients ignore such claims. Other clients give them up before a join."""
    driven = speaking(DrivenMember(), *ALL).subscribe("T", "U").join().sync(T0 | U0)
    driven.give(SubscriptionChanged(topics=("U",)))
    assert tuple(offered(driven)) == ("coopgroup",)
    driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)
    assert driven.revoked() == [T0]
    driven.give(RevocationCompleted(resources=HELD))
    assert tuple(offered(driven)) == ("coopgroup", "cooperative-sticky")
    driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)
    assert driven.revoked() == [U0]
    driven.give(RevocationCompleted(resources=U0))
    assert tuple(offered(driven)) == ALL


def test_each_protocol_gets_the_user_data_that_its_clients_expect() -> None:
    driven = speaking(stable(), *ALL)
    driven.member = attrs.evolve(driven.member, owned=EMPTY)
    told_by = {
        name: decode_subscription(content).user_data
        for name, content in offered_subscriptions(driven.member, driven.now_ms)
    }
    assert told_by["range"] == told_by["roundrobin"] == with_signature(b"")
    assert [name for name, told in told_by.items() if has_signature(told)] == [*ALL[1:]]
    assert (told_by["cooperative-sticky"] or b"").startswith(encode_cooperative_generation(1))
    assert decode_cooperative_generation(told_by["cooperative-sticky"]) == 1
    assert decode_sticky_user_data(told_by["sticky"]).previous == HELD
    assert decode_sticky_user_data(told_by["sticky"]).generation == 1


def test_claims_after_a_sync_that_failed_are_of_the_generation_that_was_joined() -> None:
    """Kafka's clients do so, and their older leaders ignore claims of an earlier generation."""
    driven = speaking(syncing_again(), *ALL)
    driven.refuse(Kind.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
    generations = {
        name: decode_subscription(content).generation for name, content in offered(driven).items()
    }
    assert generations == {"coopgroup": 1, "cooperative-sticky": 2}


# --- what is assigned --------------------------------------------------------------------------


def test_cooperative_round_that_takes_something_makes_the_member_stop_it_and_rejoin() -> None:
    """KIP-429: Kafka's assignment has no list. Missing partitions are to be revoked."""
    driven = in_a_cooperative_round()
    told(driven, T0)
    assert driven.revoked() == [T1]
    driven.give(RevocationCompleted(resources=HELD))
    assert driven.member.state is MemberState.JOINING
    owned = decode_subscription(offered(driven)["cooperative-sticky"]).owned
    assert owned == T0


def test_static_member_that_stalled_in_a_cooperative_round_asks_for_one_round() -> None:
    """It lost all before it received the revocation, and the coordinator begins no round for it."""
    driven = static(in_a_cooperative_round())
    driven.give(ApplicationStalled()).give(LossHandled())
    driven.join(2, protocol="cooperative-sticky")
    told(driven, T0)
    states = [driven.member.state]
    driven.join(3, protocol="cooperative-sticky")
    told(driven, HELD)
    assert [*states, driven.member.state] == [MemberState.JOINING, MemberState.STABLE]


@pytest.mark.parametrize(
    ("content", "revoked", "state"),
    [(b"", [HELD], MemberState.REVOKING), (b"\0\0\0", [], MemberState.STABLE)],
    ids=["librdkafka omits members without partitions", "unreadable"],
)
def test_assignment_of_another_leader_without_partitions_is_nothing_or_keeps_all(
    content: bytes, revoked: list[ResourceSet], state: MemberState
) -> None:
    """No other member was given the partitions that this one claimed."""
    driven = in_a_cooperative_round()
    driven.answer(Kind.SYNC_GROUP, SyncGroupAnswer(error_code=0, assignment=content))
    assert (driven.revoked(), driven.member.state, driven.member.owned) == (revoked, state, HELD)


# --- beside members that are eager -------------------------------------------------------------


def test_refused_member_gives_up_all_before_it_joins_with_everything() -> None:
    driven = yielding()
    assert driven.revoked() == [HELD]
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, [])
    driven.give(RevocationCompleted(resources=T0))
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).wait(10 * CONFIG.revocation_grace_ms)
    assert driven.member.state is MemberState.REVOKING
    driven.give(RevocationCompleted(resources=T1))
    assert tuple(offered(driven)) == ALL
    assert decode_subscription(offered(driven)["range"]).owned == EMPTY


def test_refused_member_commits_though_a_commit_was_to_wait_for_a_sync() -> None:
    """Otherwise a deadlock: the stop waits for the commit, and the join waits for the stop."""
    driven = speaking(stable(), *ALL)
    driven.give(CommitRequested(commit_id=1, offsets=(Offset("T", 0, 9),)))
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    refused = refusal(driven.request(Kind.JOIN_GROUP).request, OTHERS_ARE_EAGER)
    stale = ErrorCode.ILLEGAL_GENERATION
    driven.answer(Kind.OFFSET_COMMIT, OffsetCommitAnswer(codes=(("T", 0, stale),)))
    assert driven.sent() == []
    driven.answer(Kind.JOIN_GROUP, refused)
    assert (driven.member.state, driven.sent()) == (MemberState.REVOKING, ["OffsetCommitRequest"])


def test_member_after_an_eager_round_tries_first_to_hold_on() -> None:
    driven = yielding().give(RevocationCompleted(resources=HELD)).join(2, protocol="range")
    told(driven, HELD)
    assert spoken_in_round(driven) == "range"
    assert (driven.member.owned, driven.member.state) == (HELD, MemberState.STABLE)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert tuple(offered(driven)) == ("coopgroup", "cooperative-sticky")
    driven.join(3).sync(HELD)
    assert spoken_in_round(driven) == "coopgroup"
    assert (driven.revoked(), driven.granted()) == ([], [])
    assert (driven.member.owned, driven.member.state) == (HELD, MemberState.STABLE)


@pytest.mark.parametrize("protocols", [("coopgroup",), ("coopgroup", "cooperative-sticky")])
def test_refused_member_that_has_no_more_to_offer_fails(protocols: tuple[str, ...]) -> None:
    driven = speaking(stable(), *protocols).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)
    (failed,) = driven.found(FailMember)
    assert driven.member.state is MemberState.FAILED
    assert failed.message.endswith(f"members that know none of {', '.join(protocols)}")


def test_refused_member_that_has_stopped_what_was_in_the_way_joins_with_more() -> None:
    driven = speaking(stable(T0 | U0), "coopgroup", "cooperative-sticky")
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2, protocol="cooperative-sticky")
    told(driven, U0)
    driven.give(SubscriptionChanged(topics=("U",))).wait(CONFIG.revocation_grace_ms)
    assert tuple(offered(driven)) == ("coopgroup",)
    refused = refusal(driven.request(Kind.JOIN_GROUP).request, OTHERS_ARE_EAGER)
    driven.give(RevocationCompleted(resources=T0))
    driven.answer(Kind.JOIN_GROUP, refused)
    assert tuple(offered(driven)) == ("coopgroup", "cooperative-sticky")
    driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)
    assert driven.revoked() == []
    assert driven.member.state is MemberState.FAILED


def test_refused_member_that_holds_nothing_fails() -> None:
    driven = speaking(DrivenMember(), *ALL).subscribe()
    driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)
    assert driven.member.state is MemberState.FAILED


def test_member_that_hands_over_leaves_when_it_has_nothing_left() -> None:
    """Without topics it must not stay in a group that another client may lead."""
    driven = speaking(stable(), *ALL).give(SubscriptionChanged(topics=()))
    assert tuple(offered(driven)) == ("coopgroup",)
    driven.refuse(Kind.JOIN_GROUP, OTHERS_ARE_EAGER)
    driven.give(RevocationCompleted(resources=HELD))
    assert driven.sent() == ["LeaveGroupRequest"]
    assert (driven.member.state, driven.member.member_id) == (MemberState.JOINING, "")
    driven.answer(Kind.LEAVE_GROUP, LeaveGroupAnswer(error_code=0))
    assert driven.wait(100_000).sent() == []
    assert driven.give(SubscriptionChanged(topics=("T",))).sent() == ["JoinGroupRequest"]


def test_member_whose_topics_do_not_exist_yet_waits_outside() -> None:
    """A pattern may match no topic at first."""
    driven = speaking(DrivenMember(), *ALL).give(SubscriptionChanged(topics=())).find()
    assert (driven.member.state, driven.sent()) == (MemberState.JOINING, [])
    assert driven.give(SubscriptionChanged(topics=("T",))).sent() == ["JoinGroupRequest"]


# --- coming back -------------------------------------------------------------------------------


def test_kept_identity_says_which_protocol_the_group_spoke() -> None:
    """The stored assignment is in that protocol."""
    driven = speaking(DrivenMember(member=new_member(KEEPING)), *ALL).subscribe()
    told(driven.join(protocol="range"), HELD)
    kept = driven.member.identity.kept
    assert kept == KeptIdentity(member_id="m", generation=1, topics=("T",), protocol="range")
    again = speaking(DrivenMember(member=new_member(KEEPING, kept)), *ALL).subscribe()
    assert again.member.state is MemberState.RETURNING
    told(again.heartbeat(), HELD)
    assert (again.member.owned, again.member.state) == (HELD, MemberState.STABLE)
