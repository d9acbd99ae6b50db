"""A member takes only existing partitions of topics that it subscribes to."""

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind
from coopgroup.core.member.effects import BeginWarmups, CountPartitions
from coopgroup.core.member.events import RevocationCompleted, SubscriptionChanged, WarmSetDeclared
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.telemetry import AssignmentReceived, AssignmentRefused
from tests.support.members import (
    HELD,
    DrivenMember,
    configured,
    joined,
    joining,
    stable,
    static,
    synced,
    syncing,
)

BEYOND = ResourceSet({"T": [0, 1, 97]})
SECRET = ResourceSet({"secret": range(20)})
FOREIGN = HELD | SECRET


def refused(driven: DrivenMember) -> list[AssignmentRefused]:
    return driven.reported(AssignmentRefused)


def rejoins_after_ms(driven: DrivenMember) -> int:
    """Return the time until the member joins by itself, with answered heartbeats meanwhile."""
    began_ms = driven.now_ms
    while driven.member.state is MemberState.STABLE:
        look_ms = driven.member.round.look_at_ms
        assert look_ms is not None
        if look_ms <= driven.member.heartbeat_at_ms:
            driven.wait(look_ms - driven.now_ms)
        else:
            driven.heartbeat()
    return driven.now_ms - began_ms


def test_topics_without_a_subscription_are_not_owned() -> None:
    driven = syncing().sync(FOREIGN)
    assert driven.granted() == [HELD]
    assert driven.member.owned == HELD
    assert driven.member.last_assignment.resources == HELD
    assert refused(driven) == [
        AssignmentRefused(leader="other", topics=("secret",), topic_count=1, resource_count=20)
    ]
    assert [one.gained for one in driven.reported(AssignmentReceived)] == [HELD]


def test_record_names_the_first_topics_only() -> None:
    driven = syncing().sync(ResourceSet({f"secret-{number:03}": [0] for number in range(200)}))
    (record,) = refused(driven)
    assert record.topics == tuple(f"secret-{number:03}" for number in range(10))
    assert (record.topic_count, record.resource_count) == (200, 200)


def test_member_rejoins_without_a_claim_of_the_refused() -> None:
    driven = syncing().sync(FOREIGN)
    assert rejoins_after_ms(driven) == driven.member.config.retry_backoff_ms
    assert driven.claims().owned == HELD


def test_hostile_leader_that_repeats_itself_meets_ever_fewer_joins() -> None:
    driven, waits = syncing(), []
    for generation in range(2, 17):
        driven.sync(FOREIGN)
        assert driven.member.owned == HELD
        waits.append(rejoins_after_ms(driven))
        driven.join(generation)
    assert waits[:4] == [100, 200, 400, 800]
    assert waits[-3:] == [30_000] * 3


@pytest.mark.parametrize("revoked", [EMPTY, SECRET])
def test_announced_follow_up_round_of_such_a_leader_waits_as_well(revoked: ResourceSet) -> None:
    driven = syncing().answer(RequestKind.SYNC_GROUP, synced(FOREIGN, revoked=revoked))
    assert driven.member.state is MemberState.STABLE
    assert rejoins_after_ms(driven) == driven.member.config.retry_backoff_ms


def test_honest_assignment_ends_the_count() -> None:
    driven = syncing().sync(FOREIGN)
    rejoins_after_ms(driven)
    driven.join(2).sync(HELD)
    assert refused(driven) == []
    assert driven.member.round.look_at_ms is None
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(3).sync(FOREIGN)
    assert rejoins_after_ms(driven) == driven.member.config.retry_backoff_ms


def test_topic_that_is_no_longer_subscribed_is_stopped() -> None:
    """The leader goes on to assign it, without a list of revocations."""
    driven = stable()
    driven.give(SubscriptionChanged(topics=("U",))).join(2)
    driven.sync(HELD)
    assert driven.revoked() == [HELD]
    driven.give(RevocationCompleted(resources=HELD))
    assert driven.member.state is MemberState.JOINING
    assert driven.claims().owned == EMPTY


def test_warmups_of_other_topics_do_not_begin() -> None:
    driven = DrivenMember().give(WarmSetDeclared(warm=EMPTY)).subscribe().join()
    t2 = ResourceSet({"T": [2]})
    driven.sync(HELD, warmups=SECRET | t2)
    assert [one.resources for one in driven.found(BeginWarmups)] == [t2]
    assert len(refused(driven)) == 1


# --- partitions that do not exist ----------------------------------------------------------------


def asked(driven: DrivenMember) -> list[tuple[str, ...]]:
    return [one.topics for one in driven.found(CountPartitions)]


def told(driven: DrivenMember, **counts: int) -> DrivenMember:
    """Give the outcome of the last look-up."""
    (asks,) = driven.found(CountPartitions)
    return driven.give(attrs.evolve(asks.answered, partition_counts=counts))


def unsure() -> DrivenMember:
    """Return a member that knows two partitions of T, and whose look-ups wait for the test."""
    driven = syncing()
    driven.partition_counts = None
    return driven


def test_partition_that_does_not_exist_is_refused() -> None:
    driven = syncing()
    driven.partition_counts = {"T": 2}
    driven.sync(BEYOND)
    assert driven.member.owned == HELD
    assert refused(driven) == [
        AssignmentRefused(leader="other", topics=("T",), topic_count=1, resource_count=1)
    ]
    assert rejoins_after_ms(driven) == driven.member.config.retry_backoff_ms
    assert driven.claims().owned == HELD


def test_assignment_waits_for_the_numbers_of_partitions() -> None:
    driven = unsure().sync(BEYOND)
    assert asked(driven) == [("T",)]
    assert (driven.member.state, driven.member.owned) == (MemberState.SYNCING, EMPTY)
    assert told(driven, T=98).granted() == [BEYOND]


def test_known_numbers_are_not_looked_up_again() -> None:
    driven = told(unsure().sync(HELD), T=2)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    assert asked(driven.sync(ResourceSet({"T": [1]}))) == []


def test_topic_that_has_grown_is_looked_up_once_more() -> None:
    """The leader saw the new partition earlier than this member."""
    driven = told(unsure().sync(HELD), T=2)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    more = ResourceSet({"T": [0, 1, 2]})
    assert asked(driven.sync(more)) == [("T",)]
    told(driven, T=3)
    assert driven.member.owned == more
    assert refused(driven) == []


def test_topic_that_became_smaller_keeps_its_known_partitions() -> None:
    """A leader may not know yet that it was created anew."""
    driven = told(unsure().sync(HELD), T=2)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2).sync(BEYOND)
    told(driven, T=1)
    assert driven.member.owned == HELD


def test_partitions_are_taken_if_the_look_up_fails() -> None:
    driven = told(unsure().sync(BEYOND))
    assert driven.member.owned == BEYOND
    assert refused(driven) == []
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    assert asked(driven.sync(ResourceSet({"T": [0, 97]}))) == [("T",)]


def test_look_up_of_a_membership_that_is_over_changes_nothing() -> None:
    driven = unsure().sync(HELD)
    late = driven.found(CountPartitions)[0].answered
    driven.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driven.member.state is MemberState.JOINING
    driven.give(attrs.evolve(late, partition_counts={"T": 2}))
    assert (driven.granted(), driven.member.owned) == ([], EMPTY)


def test_leader_trusts_its_own_look_up() -> None:
    driven = joining()
    driven.partition_counts = None
    driven.join(leads=True).decide().sync(BEYOND)
    assert driven.member.owned == BEYOND


def test_topics_without_a_subscription_are_not_looked_up() -> None:
    driven = unsure().sync(SECRET)
    assert asked(driven) == []
    assert driven.member.owned == EMPTY


# --- honest assignments of other topics --------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "assigned"), [(("U",), HELD), (("T", "secret"), FOREIGN)], ids=["before", "now"]
)
def test_assignment_of_the_subscription_before_or_now_is_taken(
    topics: tuple[str, ...], assigned: ResourceSet
) -> None:
    """The leader read the join, which has the earlier topics; the next join follows already."""
    driven = joining().give(SubscriptionChanged(topics=topics)).join().sync(assigned)
    assert (refused(driven), driven.member.owned) == ([], assigned)
    assert driven.member.state is MemberState.JOINING


@pytest.mark.parametrize("subscribes_again", [False, True])
def test_member_that_hands_over_keeps_its_partitions_and_gets_no_others(
    *, subscribes_again: bool
) -> None:
    """The leader read the join that handed over, also if the next join follows already."""
    driven = stable().give(SubscriptionChanged(topics=(), hands_over=True))
    if subscribes_again:
        driven.give(SubscriptionChanged(topics=("U",)))
    driven.join(2).sync(FOREIGN)
    assert (driven.member.owned, driven.revoked()) == (HELD, [])


def test_static_member_with_another_subscription_says_nothing_about_its_old_assignment() -> None:
    driven = static(DrivenMember()).subscribe("U").join()
    driven.sync(HELD)
    assert driven.granted() == []
    assert refused(driven) == []
    assert rejoins_after_ms(driven) == driven.member.config.retry_backoff_ms


def test_broker_that_assigns_may_be_behind_the_subscription() -> None:
    """It makes its next target within a second, and is trusted."""
    answer = attrs.evolve(joined(2), leader_id="")
    driven = DrivenMember().subscribe("U").answer(RequestKind.JOIN_GROUP, answer)
    driven.sync(HELD)
    assert (driven.member.owned, refused(driven)) == (HELD, [])


def test_group_of_other_resources_takes_what_its_leader_shares() -> None:
    """Its members subscribe to everything in the leader's catalogue."""
    driven = configured(DrivenMember(), protocol_type="resources").subscribe("*").join()
    assert driven.sync(FOREIGN).member.owned == FOREIGN
