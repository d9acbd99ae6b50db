"""A round from bytes to bytes, also without a decision."""

import attrs
import pytest

from coopgroup.core.leader import (
    RoundDecision,
    TopicMetadata,
    member_assignments,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.protocol.digests import names_digest, resources_digest
from coopgroup.protocol import (
    Assignment,
    decode_assignment,
    encode_assignment,
)
from coopgroup.telemetry import RoundDecided, RoundRefused, SubscriptionUnreadable
from tests.support.memory import remembered
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


def digests(round_: RoundDecision) -> list[tuple[int | None, int | None]]:
    return [(one.topics_digest, one.shared_digest) for one in told(round_).values()]


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
            assert message == encode_assignment(read)


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
    shared = resources_digest(orders(0, 1, 2, 3))
    assert digests(round_) == [(topics, shared), (topics, None), (None, None)]


def test_lead_notes_nothing_in_a_round_that_another_follows() -> None:
    static = [
        attrs.evolve(one, group_instance_id=one.member_id)
        for one in (joined("a", {"orders": [0, 1, 2, 3]}), joined("b"), unreadable("c"))
    ]
    assert digests(led(*static)) == [(None, None)] * 3
    alone = led(attrs.evolve(unreadable("c"), group_instance_id="i"))
    assert digests(alone) == [(None, None)]


@pytest.mark.parametrize("metadata", [None, ORDERS_4], ids=["no metadata", "no assignor"])
def test_fallback_round_notes_nothing_of_what_there_is(metadata: TopicMetadata | None) -> None:
    """It moved nothing, so a leader that comes back afterwards asks for a round."""
    round_ = fell_back(joined("a", {"orders": [0]}, instance_id="i"), metadata=metadata)
    assert digests(round_) == [(names_digest(("orders",)), None)]


@pytest.mark.parametrize(("generation", "granted"), [(4, EMPTY), (5, orders(1, 2, 3))])
def test_lead_when_its_own_sync_failed_gives_nothing_of_an_unreadable_member(
    generation: int, granted: ResourceSet
) -> None:
    """Only a leader that completed the round knows that the member was told to hold nothing."""
    members = joined("a", {"orders": [0]}), unreadable("b")
    first = led(*members, generation=4)
    state = remembered("a", "b", generation=4, silent=["b"])
    second = led(*members, state=state, generation=generation)
    assert first.state.silent == second.state.silent == ("b",)
    assert told(first)["a"] == Assignment(assigned=orders(0), revoked=EMPTY)
    assert told(second)["a"].assigned == orders(0) | granted
    assert told(second)["b"].assigned == EMPTY


def test_times_of_a_plan_are_told_to_every_member() -> None:
    decided = decided_by()
    plan = attrs.evolve(decided.plan, rejoin_in_ms=900, loss_ends_in_ms=5_000)
    answers = member_assignments(attrs.evolve(decided, plan=plan))
    assert {(one.rejoin_in_ms, one.loss_ends_in_ms) for one in answers} == {(900, 5_000)}


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
    before = remembered("a", generation=0, owned=orders(0), granted=orders(2), released=orders(1))
    round_ = fell_back(joined("a", {"orders": [0]}), state=before)
    after = remembered("a", generation=1, owned=orders(0), released=orders(1))
    rows = after.resources.aligned(round_.state.resources.names)
    assert round_.state == attrs.evolve(after, resources=rows)
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
