"""Leading in the protocols of Kafka's own clients: their rules, their bytes."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.leader import RoundDecision, TopicMetadata, lead_kafka_round, read_members
from coopgroup.core.leader.rounds import lead_round
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.policies.memory import PolicyState
from coopgroup.core.policies.policy import RoundContext
from coopgroup.core.session import DecideRound, LeaderContext
from coopgroup.policies import DeferredPolicy
from coopgroup.protocol import (
    KafkaProtocol,
    StickyUserData,
    decode_kafka_assignment,
    encode_cooperative_generation,
    encode_sticky_user_data,
)
from coopgroup.telemetry import ClaimRefused, RoundDecided, RoundRefused, SubscriptionUnreadable
from tests.unit.core.leader.rounds import joined, unreadable

T6 = TopicMetadata(resources=ResourceSet({"T": range(6)}))
COOPERATIVE = KafkaProtocol.COOPERATIVE_STICKY
EAGER = [protocol for protocol in KafkaProtocol if protocol.is_eager]
CONTEXT = RoundContext(leader_id="a", generation=4, now_ms=1_000, state=None)
KNOWN = LeaderContext(leader_id="a", generation=4, now_ms=1_000, state=None)


def member(
    member_id: str,
    owned: list[int] | None = None,
    *,
    generation: int = 4,
    **said: Any,  # noqa: ANN401
) -> JoinedMember:
    owned_by_topic = {"T": owned} if owned else {}
    return joined(member_id, owned_by_topic, topics=("T",), generation=generation, **said)


def previous(owned: list[int], generation: int) -> bytes:
    held = ResourceSet({"T": owned})
    return encode_sticky_user_data(StickyUserData(previous=held, generation=generation))


def led(
    protocol: KafkaProtocol,
    *members: JoinedMember,
    metadata: TopicMetadata | None = T6,
    state: PolicyState | None = None,
) -> RoundDecision:
    generation = CONTEXT.generation + (state is not None)
    context = attrs.evolve(CONTEXT, generation=generation, state=state)
    return lead_kafka_round(
        members,
        read_members(members),
        protocol,
        metadata,
        context=context,
        failure="no metadata",
    )


def shares(led: RoundDecision) -> dict[str, list[int]]:
    return {
        member_id: decode_kafka_assignment(content).assigned.to_dict().get("T", [])
        for member_id, content in led.assignments
    }


# --- cooperative -------------------------------------------------------------------------------


def test_cooperative_round_withholds_what_another_member_still_owns() -> None:
    """KIP-429: the newcomer gets it in the first round without a claim on it."""
    first = led(COOPERATIVE, member("a", [0, 1, 2, 3, 4, 5]), member("b"))
    assert [len(share) for share in shares(first).values()] == [3, 0]
    kept = shares(first)["a"]
    second = led(COOPERATIVE, member("a", kept), member("b"), state=first.state)
    assert shares(second) == {"a": kept, "b": sorted({0, 1, 2, 3, 4, 5} - set(kept))}


def test_cooperative_claim_of_an_earlier_generation_loses_and_is_waited_for() -> None:
    """KIP-792: the newer claim is rightful. No other member gets it while the older one exists."""
    told = shares(
        led(COOPERATIVE, member("a", [0, 1, 2], generation=5), member("b", [0, 3, 4], generation=3))
    )
    assert told["a"] == [0, 1, 2]
    assert 0 not in told["b"]


@pytest.mark.parametrize("claimed", [6, 7])
@pytest.mark.parametrize("remembers", [False, True])
def test_cooperative_claim_of_a_round_that_is_repeated_counts(
    *, remembers: bool, claimed: int
) -> None:
    """The coordinator failed over before the assignments of round 6 (KAFKA-14016), or twice.

    The clients have joined a round that this leader missed.
    """
    owned = {"a": [0, 3, 5], "b": [1, 2, 4]}
    here = attrs.evolve(CONTEXT, generation=5, round_generation=6, protocol=COOPERATIVE.value)

    def decided(number: int, context: RoundContext) -> RoundDecision:
        members = [member(one, held, generation=number) for one, held in owned.items()]
        request = read_members(members)
        return lead_kafka_round(members, request, COOPERATIVE, T6, context=context, failure="")

    if remembers:
        earlier = attrs.evolve(here, generation=4, round_generation=5)
        here = attrs.evolve(here, state=decided(4, earlier).state)
    told = decided(claimed, here)
    assert shares(told) == owned
    assert not any(isinstance(one, ClaimRefused) for one in told.records)


def test_cooperative_partition_claimed_twice_in_one_generation_is_given_to_nobody() -> None:
    """KAFKA-12984: both members stop it first."""
    told = shares(led(COOPERATIVE, member("a", [0, 1]), member("b", [0, 2])))
    assert 0 not in told["a"] + told["b"]


@pytest.mark.parametrize(
    "user_data",
    [encode_cooperative_generation(3), previous([0], 3)],
    ids=["as Java writes it", "as librdkafka writes it"],
)
def test_cooperative_claim_of_version_1_has_its_generation_in_the_user_data(
    user_data: bytes,
) -> None:
    """A stale claim must not tie with a claim of the same number of bytes."""
    stale = member("b", [0, 3], version=1, user_data=user_data)
    assert shares(led(COOPERATIVE, member("a", [0, 1, 2], generation=5), stale))["a"] == [0, 1, 2]


def test_cooperative_round_keeps_for_next_time_what_an_unreadable_member_may_hold() -> None:
    """No member rejoins for it by itself, so the leader does, a moment later."""
    first = led(COOPERATIVE, member("a", [0]), unreadable("b"))
    assert shares(first) == {"a": [0], "b": []}
    assert any(isinstance(record, SubscriptionUnreadable) for record in first.records)
    assert first.state.next_round_ms == CONTEXT.now_ms + 1_000
    second = led(COOPERATIVE, member("a", [0]), unreadable("b"), state=first.state)
    assert shares(second) == {"a": [0, 1, 2, 3, 4, 5], "b": []}


def test_cooperative_round_without_metadata_moves_nothing() -> None:
    told = led(COOPERATIVE, member("a", [0, 1, 2, 3, 4]), member("b", [5]), metadata=None)
    assert shares(told) == {"a": [0, 1, 2, 3, 4], "b": [5]}
    assert told.refused
    assert RoundRefused(violations=("no metadata",)) in told.records


# --- eager -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (KafkaProtocol.RANGE, {"a": [0, 1, 2], "b": [3, 4, 5]}),
        (KafkaProtocol.ROUND_ROBIN, {"a": [0, 2, 4], "b": [1, 3, 5]}),
    ],
)
def test_eager_round_gives_everything_out_as_the_protocol_is_named(
    protocol: KafkaProtocol, expected: dict[str, list[int]]
) -> None:
    """Claims do not matter: the members have given up all their partitions."""
    assert shares(led(protocol, member("b", [0, 1]), member("a", [5]))) == expected


def test_sticky_round_leaves_things_where_they_were_where_it_can() -> None:
    """The user data has the former partitions. The subscription claims none."""
    a, b = previous([1, 3, 5], 4), previous([0, 2, 4], 4)
    round_ = led(KafkaProtocol.STICKY, member("a", user_data=a), member("b", user_data=b))
    assert shares(round_) == {"a": [1, 3, 5], "b": [0, 2, 4]}


def test_sticky_round_believes_the_newer_of_two_memories() -> None:
    """A member that was away reports its partitions of that time."""
    a, b = previous([0, 1, 2], 4), previous([0, 1, 2], 3)
    round_ = led(KafkaProtocol.STICKY, member("a", user_data=a), member("b", user_data=b))
    assert shares(round_) == {"a": [0, 1, 2], "b": [3, 4, 5]}


@pytest.mark.parametrize("protocol", EAGER)
def test_eager_round_without_metadata_gives_out_what_there_was(protocol: KafkaProtocol) -> None:
    """Members hold nothing, so a round without grants would be an outage."""
    first = led(protocol, member("a"), member("b"))
    second = led(protocol, member("a"), member("b"), metadata=None, state=first.state)
    assert sorted(shares(second)["a"] + shares(second)["b"]) == [0, 1, 2, 3, 4, 5]
    assert second.refused


# --- every protocol ----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", KafkaProtocol)
def test_every_member_is_answered_in_the_oldest_version(protocol: KafkaProtocol) -> None:
    """Clients fail on an empty answer, and some know version 0 only."""
    members = member("a"), member("b", version=0), unreadable("c")
    told = led(protocol, *members, metadata=None)
    assert [member_id for member_id, _ in told.assignments] == ["a", "b", "c"]
    assert {content[:2] for _, content in told.assignments} == {b"\0\0"}


def _subscriptions_that_were_not_read_in_time_repeat_the_last_round(
    protocol: KafkaProtocol, is_heard: bool
) -> None:
    before = led(protocol, member("a"), member("b"))
    late = member("a"), member("b"), member("c"), member("a")
    generation = before.state.generation + is_heard
    context = attrs.evolve(CONTEXT, generation=generation, state=before.state)
    told = lead_kafka_round(late, None, protocol, T6, context=context, failure="late")
    expected = shares(before) if is_heard else {"a": [], "b": []}
    assert shares(told) == {**expected, "c": []}
    assert told.refused
    assert any(isinstance(one, RoundRefused) for one in told.records)


def test_subscriptions_that_were_not_read_in_time_repeat_the_last_round(
    subtests: pytest.Subtests,
) -> None:
    """If the last round is unheard, its partitions may still have their owners of before."""
    for protocol, is_heard in product(KafkaProtocol, [True, False]):
        with subtests.test(protocol=protocol, is_heard=is_heard):
            _subscriptions_that_were_not_read_in_time_repeat_the_last_round(protocol, is_heard)


def test_claims_of_many_missing_topics_are_left_out() -> None:
    missing: dict[str, list[int]] = {f"missing-{number}": [0] for number in range(1_001)}
    liar = joined("b", {**missing, "T": [0]}, topics=("T",), generation=4)
    told = led(COOPERATIVE, member("a", [1, 2, 3, 4, 5]), liar)
    assert told.group.resources == T6.resources
    assert shares(told)["b"] == [0]


@pytest.mark.parametrize("protocol", KafkaProtocol)
def test_subscription_with_more_than_its_version_says_counts(protocol: KafkaProtocol) -> None:
    assert shares(led(protocol, member("a", [0], after=b"later")))["a"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("protocol", KafkaProtocol)
def test_subscriptions_that_java_wrote_are_read(protocol: KafkaProtocol) -> None:
    vectors = Path(__file__).parents[4] / "protocol" / "vectors" / "java_subscription.json"
    rows = json.loads(vectors.read_text())["vectors"]
    members = [
        JoinedMember(
            member_id=row["name"], group_instance_id=None, metadata=bytes.fromhex(row["hex"])
        )
        for row in rows
    ]
    told = led(protocol, *members)
    assert len(told.assignments) == len(rows)
    assert not any(isinstance(record, SubscriptionUnreadable) for record in told.records)


def test_session_leads_by_the_protocol_whatever_assignor_and_policy_are() -> None:
    duty = DecideRound(
        number=1,
        generation=5,
        members=(member("a"), member("b")),
        context=attrs.evolve(KNOWN, protocol="range"),
    )
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)
    told = lead_round(
        duty, read_members(duty.members), T6, None, assignor=StickyAssignor(), policy=policy
    )
    assert shares(told.decision) == {"a": [0, 1, 2], "b": [3, 4, 5]}
    (record,) = told.decision.records
    assert isinstance(record, RoundDecided)
    assert (record.protocol, record.assignor) == ("range", "range")


def test_session_whose_memory_is_broken_leads_without_it() -> None:
    memory: Any = object()
    broken = attrs.evolve(KNOWN, state=memory, protocol="range")
    duty = DecideRound(number=1, generation=5, members=(member("a"),), context=broken)
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=1)
    told = lead_round(
        duty, read_members(duty.members), T6, None, assignor=StickyAssignor(), policy=policy
    )
    assert shares(told.decision) == {"a": [0, 1, 2, 3, 4, 5]}
