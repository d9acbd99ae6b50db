"""A round from bytes to bytes: answers of each release, also without a decision."""

import attrs
import pytest

from coopgroup.core.leader import TopicMetadata, member_assignments, read_members
from coopgroup.core.model import EMPTY, NO_LOSS, ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.policies.simple import SimplePolicy
from coopgroup.core.policies.state import PolicyState
from coopgroup.core.protocol.assignment_trailer import (
    AssignmentTrailer,
    names_digest,
    resources_digest,
    trailer_of,
)
from coopgroup.policies import DeferredPolicy
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    decode_assignment,
    encode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.telemetry import RoundDecided, RoundRefused, SubscriptionUnreadable
from tests.unit.core.leader.rounds import (
    ORDERS_4,
    claim,
    decided_by,
    fell_back,
    joined,
    led,
    orders,
    told,
    unreadable,
)


def test_lead_when_some_keep_what_they_own_writes_what_an_encoder_would() -> None:
    """Bytes of a subscription are sent back only if our encoder would write the same."""
    entries = b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x02"
    foreign = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff" + entries
    members = [
        joined("a", {"orders": [0, 1]}),
        JoinedMember(member_id="b", group_instance_id=None, metadata=foreign),
        joined("c", {"orders": [4]}),
    ]
    metadata = TopicMetadata(resources=orders(*range(6)))
    for _ in range(2):
        round_ = led(*members, metadata=metadata)
        assert {name: told_one.assigned for name, told_one in told(round_).items()} == {
            "a": orders(0, 1),
            "b": orders(2, 3),
            "c": orders(4, 5),
        }
        for _, message in round_.assignments:
            read = decode_assignment(message)
            assert message == encode_assignment(read, read.version)


def test_member_assignments_when_claims_are_at_hand_gives_the_same() -> None:
    claims = (claim("a", {"orders": [0, 1, 2]}), claim("b"), claim("c", {"orders": [3]}))
    decided = decided_by(claims=claims)
    answers = member_assignments(decided, claims)
    assert answers == member_assignments(decided)
    assert answers[2].assigned is claims[2].owned
    assert answers[0].revoked


def test_lead_notes_for_static_members_what_the_last_word_was_made_from() -> None:
    """For their next life (KIP-345). Only the leader gets the note about the resources."""
    held = {"a": [0, 1], "b": [2]}
    static = [joined(name, {"orders": some}, instance_id=name) for name, some in held.items()]
    round_ = led(*static, joined("c", {"orders": [3]}))
    topics = names_digest(("orders",))
    assert [trailer_of(content) for _, content in round_.assignments] == [
        AssignmentTrailer(topics=topics, shared=resources_digest(orders(0, 1, 2, 3))),
        AssignmentTrailer(topics=topics),
        None,
    ]
    assert told(round_)["a"] == Assignment(assigned=orders(0, 1))


def test_lead_notes_nothing_in_a_round_that_another_follows() -> None:
    static = [
        attrs.evolve(one, group_instance_id=one.member_id)
        for one in (joined("a", {"orders": [0, 1, 2, 3]}), joined("b"), unreadable("c"))
    ]
    assert [trailer_of(content) for _, content in led(*static).assignments] == [None] * 3
    design_i = encode_subscription(Subscription(topics=("orders",)), 1)
    for metadata in (unreadable("c").metadata, design_i):
        alone = led(JoinedMember(member_id="c", group_instance_id="i", metadata=metadata))
        assert [trailer_of(content) for _, content in alone.assignments] == [None]


@pytest.mark.parametrize("metadata", [None, ORDERS_4], ids=["no metadata", "no assignor"])
def test_fallback_round_notes_nothing_of_what_there_is(metadata: TopicMetadata | None) -> None:
    """It moved nothing, so a leader that comes back afterwards asks for a round."""
    round_ = fell_back(joined("a", {"orders": [0]}, instance_id="i"), metadata=metadata)
    assert trailer_of(round_.assignments[0][1]) == AssignmentTrailer(
        topics=names_digest(("orders",))
    )


@pytest.mark.parametrize(("generation", "granted"), [(4, EMPTY), (5, orders(1, 2, 3))])
def test_lead_when_its_own_sync_failed_gives_nothing_of_an_unreadable_member(
    generation: int, granted: ResourceSet
) -> None:
    """Only a leader that completed the round knows that the member was told to hold nothing."""
    members = joined("a", {"orders": [0]}), unreadable("b")
    first = led(*members, generation=4)
    state = PolicyState(generation=4, members=("a", "b"), silent=("b",))
    second = led(*members, state=state, generation=generation)
    assert first.state.silent == second.state.silent == ("b",)
    assert told(first)["a"] == Assignment(assigned=orders(0), revoked=EMPTY)
    assert told(second)["a"].assigned == orders(0) | granted
    assert told(second)["b"].assigned == EMPTY


@pytest.mark.parametrize(
    ("timeout_ms", "loss_ms", "told_ms"),
    [
        (900, None, None),
        (900, NO_LOSS, NO_LOSS),
        (900, 901, 901),
        (900, 900, None),
        (900, 5, None),
        (0, NO_LOSS, None),
        (0, 700, None),
    ],
)
def test_loss_timeout_of_a_plan_is_told_where_it_says_more_than_the_timeout(
    timeout_ms: int, loss_ms: int | None, told_ms: int | None
) -> None:
    """A user's policy may change one timeout only. A member must not get an invalid pair."""
    decided = decided_by()
    plan = attrs.evolve(
        decided.plan, scheduled_rebalance_timeout_ms=timeout_ms, loss_timeout_ms=loss_ms
    )
    answers = member_assignments(attrs.evolve(decided, plan=plan))
    assert {answer.loss_timeout_ms for answer in answers} == {told_ms}
    assert all(decode_assignment(encode_assignment(answer)) == answer for answer in answers)


def test_fallback_round_without_metadata_takes_every_claim_for_real() -> None:
    round_ = fell_back(
        joined("a", {"orders": [0, 1]}), joined("b", {"orders": [1]}, generation=2), joined("c")
    )
    assert told(round_) == {
        "a": Assignment(assigned=orders(0), revoked=orders(1)),
        "b": Assignment(assigned=orders(1), revoked=EMPTY),
        "c": Assignment(assigned=EMPTY, revoked=EMPTY),
    }
    assert round_.records[0] == RoundRefused(violations=("no answer within 5000 ms",))
    assert round_.refused


def test_fallback_round_without_metadata_forgets_nothing() -> None:
    before = PolicyState(
        generation=0, members=("a",), known=orders(0, 1), granted=orders(2), released=orders(1)
    )
    round_ = fell_back(joined("a", {"orders": [0]}), state=before)
    assert round_.state == PolicyState(
        generation=1, members=("a",), known=orders(0, 1), released=orders(1)
    )
    assert told(round_) == {"a": Assignment(assigned=orders(0))}


def test_fallback_round_with_metadata_takes_back_what_is_gone() -> None:
    round_ = fell_back(joined("a", {"orders": [0, 9]}), unreadable("b"), metadata=ORDERS_4)
    assert told(round_) == {
        "a": Assignment(assigned=orders(0), revoked=orders(9)),
        "b": Assignment(assigned=EMPTY, revoked=EMPTY),
    }
    assert [type(record) for record in round_.records] == [
        SubscriptionUnreadable,
        RoundRefused,
        RoundDecided,
    ]


# --- groups of several releases -------------------------------------------------------------------

DEFERRED = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)


def release(name: str, *owned: int, version: int = 3, delay_ms: int | None = None) -> JoinedMember:
    user_data = encode_user_data(UserData(remaining_delay_ms=delay_ms)) if version > 1 else None
    return joined(name, {"orders": [*owned]}, version=version, user_data=user_data)


@pytest.mark.parametrize("version", [0, 1])
def test_member_of_design_i_is_answered_in_version_1(version: int) -> None:
    """Version 1 has assigned and revoked. The other members get the newest version."""
    round_ = led(release("a", 0, 1, 2, 3), release("b", version=version), policy=DEFERRED)
    answers = told(round_)
    assert {name: one.version for name, one in answers.items()} == {"a": 2, "b": 1}
    assert answers["b"].revoked == EMPTY


def test_loss_waits_for_nobody_while_a_member_cannot_be_told_to_wait() -> None:
    first = led(release("a", 0, 1), release("b", 2, 3, version=1), policy=DEFERRED)
    last = release("b", 2, 3, version=1)
    alone = led(last, policy=DEFERRED, state=first.state, generation=2)
    assert told(alone)["b"] == Assignment(assigned=ORDERS_4.resources, version=1)
    (record,) = (one for one in alone.records if isinstance(one, RoundDecided))
    assert record.policy == SimplePolicy.name


def test_delay_that_a_refused_round_lets_run_on_is_kept_from_who_cannot_read_it() -> None:
    """The others rejoin at its end, and that is a round for all."""
    members = release("a", 0, 1, delay_ms=500), release("b", 2, 3, version=1)
    refused = fell_back(*members, policy=DEFERRED)
    answers = told(refused)
    assert {name: one.scheduled_rebalance_timeout_ms for name, one in answers.items()} == {
        "a": 500,
        "b": 0,
    }


def test_old_readers_are_those_of_design_i() -> None:
    members = [release(f"v{version}", version=version) for version in range(4)]
    assert read_members(members).old_readers == {"v0", "v1"}
    newer = joined("n", version=1, user_data=encode_user_data(UserData()))
    assert read_members([*members[2:], newer]).old_readers == frozenset()
