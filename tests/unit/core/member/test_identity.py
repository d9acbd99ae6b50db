"""A killed process comes back as the same member: no round, no moves."""

import attrs
import pytest

from coopgroup.core.member import (
    ErrorCode,
    KeptIdentity,
    MemberConfig,
    MemberState,
    RequestKind,
    new_member,
    next_deadline_ms,
)
from coopgroup.core.member.effects import (
    FailMember,
    GrantResources,
    KeepIdentity,
    Lane,
    SelfReport,
    Send,
)
from coopgroup.core.member.events import LeaveRequested, StartsDeclined, SubscriptionChanged
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    HeartbeatAnswer,
    JoinGroupAnswer,
    JoinGroupRequest,
    SyncGroupRequest,
)
from coopgroup.simulator.scenario import Identity
from tests.support.members import (
    CONFIG,
    HELD,
    KEEPING,
    KEPT,
    OTHER_NODE,
    DrivenMember,
    joined,
    played_group,
    returning,
)

Kind = RequestKind
LEAVE = LeaveRequested(reason="closed")
FIRST = KeptIdentity(member_id="m", generation=1, topics=("T",))


def keeping() -> DrivenMember:
    """The member has the assignment of generation 1, and its identity is kept."""
    return DrivenMember(member=new_member(KEEPING)).subscribe().join().sync()


def kept(driven: DrivenMember) -> list[KeptIdentity | None]:
    return [effect.identity for effect in driven.found(KeepIdentity)]


# --- what is kept ------------------------------------------------------------------------------


def test_identity_is_kept_of_each_completed_round() -> None:
    """It is kept before any grant, so that a process killed right after can read it."""
    driven = keeping()
    assert kept(driven) == [FIRST]
    kinds = [type(one) for one in driven.effects if not hasattr(one, "record")]
    assert kinds == [KeepIdentity, GrantResources]
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    assert kept(driven) == []
    assert kept(driven.sync()) == [KeptIdentity(member_id="m", generation=2, topics=("T",))]


@pytest.mark.parametrize(
    "config",
    [attrs.evolve(KEEPING, keeps_identity=False), attrs.evolve(KEEPING, instance_id="i-1")],
)
def test_identity_when_not_asked_for_or_static_is_not_kept(config: MemberConfig) -> None:
    """An instance id already proves the identity of a member."""
    driven = DrivenMember(member=new_member(config, KEPT)).subscribe()
    assert driven.sent() == ["JoinGroupRequest"]
    assert kept(driven.join().sync()) == []


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INVALID_REQUEST]
)
def test_identity_when_the_id_is_over_is_kept_no_more(code: ErrorCode) -> None:
    assert kept(keeping().heartbeat(code)) == [None]


# --- coming back -------------------------------------------------------------------------------


def test_return_during_a_long_round_proves_the_session_before_the_assignment() -> None:
    """Regression: heartbeats of an older generation proved nothing, so the lease ended at once."""
    driven = returning().heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    for _ in range(4):
        driven.wait(CONFIG.session_timeout_ms // 4)
        driven.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    driven.wait(CONFIG.heartbeat_interval_ms)
    driven.join(9)
    assert driven.sent() == ["HeartbeatRequest", "SyncGroupRequest"]
    assert {send.lane for send in driven.found(Send)} == {Lane.JOIN}
    driven.heartbeat().sync()
    assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)


def test_return_asks_first_and_takes_the_stored_assignment_without_a_round() -> None:
    """It comes back as a follower, even if it led: there is no round to lead."""
    driven = returning()
    assert (driven.member.state, driven.sent()) == (MemberState.RETURNING, ["HeartbeatRequest"])
    heartbeat = driven.request(Kind.HEARTBEAT)
    assert (heartbeat.lane, getattr(heartbeat.request, "generation", None)) == (Lane.JOIN, 7)
    asked_at_ms = driven.now_ms
    driven.now_ms += 300
    driven.heartbeat()
    assert driven.request(Kind.SYNC_GROUP).request == SyncGroupRequest(
        group_id="g",
        generation=7,
        member_id="m",
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="coopgroup",
        assignments=(),
    )
    driven.now_ms += 300
    driven.sync()
    assert (driven.member.state, driven.sent()) == (MemberState.STABLE, [])
    assert driven.granted() == [HELD]
    assert (driven.member.owned, driven.member.claim_generation) == (HELD, 7)
    assert (driven.member.round.leads, kept(driven)) == (False, [KEPT])
    # A sync in a settled generation does not restart the session. The heartbeat did.
    assert driven.member.lease.until_ms == asked_at_ms + CONFIG.session_timeout_ms


@pytest.mark.parametrize("generation", [7, 8])
def test_return_to_another_generation_proves_the_session_again(generation: int) -> None:
    """Regression: another process of this member joined meanwhile, and died before its sync.

    The join has the same bytes as that one, so it begins no round and restarts no session.
    """
    driven = returning().heartbeat(ErrorCode.ILLEGAL_GENERATION).join(generation)
    assert (driven.member.state, driven.sent()) == (MemberState.RETURNING, ["HeartbeatRequest"])
    asked_at_ms = driven.now_ms
    driven.now_ms += 300
    driven.heartbeat().sync()
    assert driven.member.owned == HELD
    assert driven.member.lease.until_ms == asked_at_ms + CONFIG.session_timeout_ms


def test_return_with_other_topics_joins_as_the_same_member() -> None:
    """The stored assignment is of the old topics."""
    driven = DrivenMember(member=new_member(KEEPING, KEPT)).subscribe("T", "U")
    assert (driven.member.state, driven.sent_join().member_id) == (MemberState.JOINING, "m")
    driven.refuse(Kind.JOIN_GROUP, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (driven.sent_join().member_id, kept(driven)) == ("", [None])


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_return_when_the_coordinator_cannot_say_asks_again(code: ErrorCode) -> None:
    """A join instead would begin an unnecessary round."""
    driven = returning().heartbeat(code)
    assert (driven.member.state, driven.sent()) == (MemberState.RETURNING, [])
    assert next_deadline_ms(driven.member) == driven.now_ms + CONFIG.retry_backoff_ms
    assert driven.wait(CONFIG.retry_backoff_ms).sent() == ["HeartbeatRequest"]


def test_return_into_a_stored_follow_up_goes_on_with_the_rebalance() -> None:
    """The earlier life was killed between the rounds. The partitions to stop are not held."""
    driven = returning().heartbeat().sync(ResourceSet({"T": [0]}), follow_up=True)
    assert driven.granted() == [ResourceSet({"T": [0]})]
    assert driven.claims().owned.to_dict() == {"T": [0]}


@pytest.mark.parametrize(
    "told",
    [
        SelfReport(declines=True),
        SelfReport(rack="b"),
        SelfReport(traits={"gpu": True}),
    ],
)
def test_round_follows_a_return_if_the_leader_assigns_by_what_no_longer_holds(
    told: SelfReport,
) -> None:
    """Regressions: named 3700001072 and 3700002704.

    All had declined a resource. One of them returned, and nobody gave it the resource. If this
    process ends before the round, the next one returns with the same difference.
    """
    earlier = attrs.evolve(KEPT, report=told)
    driven = DrivenMember(member=new_member(KEEPING, earlier)).subscribe().heartbeat().sync()
    assert kept(driven) == [earlier]
    assert (driven.member.state, driven.sent()) == (MemberState.JOINING, ["JoinGroupRequest"])
    assert driven.claims().owned == HELD
    assert kept(driven.join(8).sync()) == [attrs.evolve(KEPT, generation=8)]


def test_kafkas_leaders_read_only_the_rack_of_a_returning_process() -> None:
    config = attrs.evolve(KEEPING, protocols=("range",), traits={"gpu": True})
    earlier = attrs.evolve(KEPT, protocol="range")
    driven = DrivenMember(member=new_member(config, earlier)).subscribe().heartbeat().sync()
    assert driven.sent() == []


def test_round_follows_a_return_that_declines_resources() -> None:
    driven = DrivenMember(member=new_member(KEEPING, KEPT)).give(StartsDeclined(resources=HELD))
    assert driven.subscribe().heartbeat().sync().sent() == ["JoinGroupRequest"]


def test_identity_tells_what_the_leader_assigns_by() -> None:
    config = attrs.evolve(KEEPING, rack="a", traits={"gpu": True})
    driven = DrivenMember(member=new_member(config)).subscribe().join().sync()
    report = SelfReport(rack="a", traits={"gpu": True})
    assert kept(driven) == [attrs.evolve(FIRST, report=report)]
    driven.give(StartsDeclined(resources=HELD)).join(2)
    driven.give(StartsDeclined(resources=EMPTY))  # the leader has read the join
    assert [one.report.declines for one in kept(driven.sync()) if one is not None] == [True]


# --- leaving -----------------------------------------------------------------------------------


def test_leave_with_a_kept_identity_is_silent_and_the_next_life_takes_its_place() -> None:
    """A restart within the session moves nothing, killed or closed (as in KIP-345)."""
    driven = keeping().give(LEAVE)
    assert (driven.member.state, driven.sent(), kept(driven)) == (MemberState.UNSUBSCRIBED, [], [])
    driven.give(SubscriptionChanged(topics=("T",)))
    assert (driven.member.state, driven.sent()) == (MemberState.RETURNING, ["HeartbeatRequest"])
    assert driven.heartbeat().sync().member.state is MemberState.STABLE


def test_permanent_leave_ends_a_kept_identity_and_is_sent() -> None:
    driven = keeping().give(LeaveRequested(reason="scaled down", for_good=True))
    assert (driven.sent(), kept(driven)) == (["LeaveGroupRequest"], [None])


# --- in a group --------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("closes", [True, False])
def test_process_that_is_back_in_time_moves_nothing_and_begins_no_round(
    *, leads: bool, closes: bool
) -> None:
    group = played_group()
    for name in ("p1", "p2"):
        group.start(name, ("T",), identity=Identity.STATE_DIR)
    assert group.run_until_rest(10_000, 500)
    leader = group.leader
    process = next(one for one in group.alive if (one is leader) == leads)
    held = process.session.member.owned
    generation = group.brokers.coordinator.group.generation
    if closes:
        process.close()
    else:
        process.crash()
    group.run(800)
    again = group.start_again(process)
    assert again is not None
    assert group.run_until_rest(2_000, 500)
    assert group.brokers.coordinator.group.generation == generation
    assert (again.session.member.owned, again.application.working) == (held, held)
    group.run(5_000)
    assert group.brokers.coordinator.group.generation == generation


# --- a static member whose coordinator moves ---------------------------------------------------

FENCED = ErrorCode.FENCED_INSTANCE_ID


def static() -> DrivenMember:
    """Return a static member whose first join is pending."""
    config = attrs.evolve(CONFIG, instance_id="one")
    return DrivenMember(member=new_member(config)).subscribe()


def moved_between_join_and_sync() -> DrivenMember:
    """It got its id in a round that never ended, and joins with it at the next coordinator."""
    driven = static().join().refuse(RequestKind.SYNC_GROUP, ErrorCode.NOT_COORDINATOR)
    driven.wait(CONFIG.retry_backoff_ms)
    return driven.find(OTHER_NODE).wait(CONFIG.retry_backoff_ms)


@pytest.mark.parametrize("kind", [RequestKind.JOIN_GROUP, RequestKind.HEARTBEAT])
def test_static_member_joins_anew_when_the_coordinator_forgot_its_new_id(kind: RequestKind) -> None:
    driven = moved_between_join_and_sync()
    assert driven.member.member_id == "m"
    refused: dict[RequestKind, JoinGroupAnswer | HeartbeatAnswer] = {
        RequestKind.JOIN_GROUP: attrs.evolve(joined(0), error_code=FENCED),
        RequestKind.HEARTBEAT: HeartbeatAnswer(error_code=FENCED),
    }
    driven.answer(kind, refused[kind])
    assert driven.member.state is MemberState.JOINING
    assert (driven.member.member_id, driven.found(FailMember)) == ("", [])
    join = driven.request(RequestKind.JOIN_GROUP).request
    assert isinstance(join, JoinGroupRequest)
    assert (join.member_id, join.group_instance_id) == ("", "one")
    # Only once: the next instance in its place is another process.
    driven.join().refuse(RequestKind.SYNC_GROUP, FENCED)
    assert [one.code for one in driven.found(FailMember)] == [FENCED]


def test_static_member_joins_anew_when_a_lost_join_takes_its_place() -> None:
    """A join without an id is lost, the next one is answered, and then the first is served."""
    driven = static().refuse(RequestKind.JOIN_GROUP, ErrorCode.NO_ANSWER)
    driven.wait(CONFIG.retry_backoff_ms).find().wait(CONFIG.retry_backoff_ms)
    driven.join().refuse(RequestKind.SYNC_GROUP, FENCED)
    assert driven.member.state is MemberState.JOINING
    assert driven.member.member_id == ""


@pytest.mark.parametrize("ends", [False, True], ids=["coordinator stays", "round has ended"])
def test_static_member_fails_when_another_process_takes_its_place(ends: bool) -> None:
    driven = static().join()
    if ends:
        driven.sync().heartbeat(ErrorCode.NOT_COORDINATOR)
        driven.find(OTHER_NODE).heartbeat(FENCED)
    else:
        driven.refuse(RequestKind.SYNC_GROUP, FENCED)
    assert driven.member.state is MemberState.FAILED
    assert [one.code for one in driven.found(FailMember)] == [FENCED]
