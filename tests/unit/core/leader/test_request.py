"""The leader's input: members with any kind of subscription, and lags."""

import attrs
import numpy as np
import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.leader import NO_LAGS, Lags, RoundDecision, TopicMetadata, lead, read_members
from coopgroup.core.model import MemberClaim, ResourceSet
from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.group import Float64Array
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.policies.memory import PolicyState
from coopgroup.core.protocol.subscription import SUBSCRIPTION_BYTES_MAX
from coopgroup.errors import ConfigurationError, DecodeError, RemoteProtocolError
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    decode_assignment,
    decode_subscription,
    encode_subscription,
    encode_user_data,
)
from coopgroup.telemetry import ClaimRefused, SubscriptionUnreadable, UserDataUnreadable
from tests.unit.core.leader.rounds import (
    NOT_A_SUBSCRIPTION,
    ORDERS_4,
    context,
    joined,
    led,
    orders,
    unreadable,
)

MANY: dict[str, list[int]] = {f"missing-{number:04}": [0] for number in range(1_001)}


def test_read_members_when_all_is_given_keeps_all() -> None:
    subscription = Subscription(
        topics=("payments", "orders", "orders"),
        user_data=encode_user_data(
            UserData(
                rejoin_in_ms=700,
                loss_ends_in_ms=9_000,
                consumption_rate_per_s=1_234.5,
                traits={"places": 4},
                choices=MemberChoices(policy="simple", assignor="sticky", policy_digest=7),
            )
        ),
        owned=orders(1, 2),
        generation=7,
        rack="r1",
    )
    member = JoinedMember(
        member_id="a", group_instance_id="static-a", metadata=encode_subscription(subscription)
    )
    request = read_members([joined("b", topics=("refunds",)), member])
    assert request.claims == (
        MemberClaim(
            member_id="a",
            topics=("orders", "payments"),
            owned=orders(1, 2),
            generation=7,
            instance_id="static-a",
            rack="r1",
            rejoin_in_ms=700,
            loss_ends_in_ms=9_000,
            consumption_rate_per_s=1_234.5,
            traits={"places": 4},
            choices=MemberChoices(policy="simple", assignor="sticky", policy_digest=7),
        ),
        MemberClaim(member_id="b", topics=("refunds",), generation=1),
    )
    assert request.topics == ("orders", "payments", "refunds")
    assert request.records == ()


PLAIN = MemberClaim(member_id="a", topics=("orders",), owned=orders(3), generation=1)
OURS = encode_user_data(UserData(rejoin_in_ms=7))


@pytest.mark.parametrize(
    "user_data", [None, b"", b"\x00\x00\x00\x07"], ids=["null", "empty", "generation"]
)
def test_read_members_when_user_data_is_not_ours_reads_the_rest(user_data: bytes | None) -> None:
    request = read_members([joined("a", {"orders": [3]}, user_data=user_data)])
    assert (request.claims, request.records) == ((PLAIN,), ())


@pytest.mark.parametrize(
    ("user_data", "reason"),
    [
        (OURS[:4] + b"\x00\x02" + OURS[6:], "user data version: got 2, expected 1 at offset 4"),
        (OURS[:-1], "assignor_digest: 8 bytes needed, 7 left at offset 62"),
    ],
    ids=["newer", "damaged"],
)
def test_read_members_when_our_user_data_cannot_be_read_says_so(
    user_data: bytes, reason: str
) -> None:
    request = read_members([joined("a", {"orders": [3]}, user_data=user_data)])
    assert request.claims == (PLAIN,)
    assert request.records == (UserDataUnreadable(member_id="a", reason=reason),)


def test_read_members_reads_user_data_to_which_a_later_release_appended() -> None:
    request = read_members([joined("a", {"orders": [3]}, user_data=OURS + b"later")])
    assert (request.claims, request.records) == ((attrs.evolve(PLAIN, rejoin_in_ms=7),), ())


def test_read_members_when_one_cannot_be_read_says_so() -> None:
    with pytest.raises(DecodeError) as refusal:
        decode_subscription(NOT_A_SUBSCRIPTION)
    static = attrs.evolve(unreadable("b"), group_instance_id="static-b")
    request = read_members([static, joined("a")])
    assert request.claims[1] == MemberClaim(
        member_id="b", topics=(), instance_id="static-b", readable=False
    )
    assert request.records == (SubscriptionUnreadable(member_id="b", reason=str(refusal.value)),)
    assert request.topics == ("orders",)


def test_read_members_when_one_is_too_large_says_so_and_reads_the_others() -> None:
    huge = attrs.evolve(joined("b"), metadata=bytes(SUBSCRIPTION_BYTES_MAX + 1))
    request = read_members([joined("a"), huge])
    assert [one.readable for one in request.claims] == [True, False]
    (record,) = request.records
    assert isinstance(record, SubscriptionUnreadable)
    assert "5242881 bytes, expected 5242880 at most" in record.reason


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_claims_of_missing_topics_are_left_out_if_there_are_many(count: int) -> None:
    """A member must learn that a deleted topic is revoked; a liar can invent any number."""
    missing: dict[str, list[int]] = {f"missing-{number}": [0] for number in range(count - 1)}
    round_ = led(joined("a", {**missing, "orders": [1]}), metadata=ORDERS_4)
    ((_, message),) = round_.assignments
    answer = decode_assignment(message)
    is_told = count <= 1_000
    assert len(round_.group.resources) == 4 + is_told * (count - 1)
    assert answer.assigned == orders(0, 1, 2, 3) if not is_told else orders(1) <= answer.assigned
    assert answer.revoked == (ResourceSet(missing) if is_told else None)


def test_claims_of_missing_topics_count_if_the_last_round_knew_them() -> None:
    deleted: dict[str, list[int]] = {f"deleted-{number}": [0] for number in range(1_001)}
    member = joined("a", deleted, topics=tuple(deleted))
    before = led(member, metadata=TopicMetadata(resources=ResourceSet(deleted)))
    after = led(member, metadata=ORDERS_4, state=before.state, generation=2)
    ((_, message),) = after.assignments
    assert decode_assignment(message).revoked == ResourceSet(deleted)


def _round_after(
    state: PolicyState | None, generation: int, *members: JoinedMember
) -> RoundDecision:
    return lead(
        read_members(members),
        ORDERS_4,
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=attrs.evolve(context(state, generation), round_generation=generation + 1),
    )


def _refused(round_: RoundDecision) -> list[ClaimRefused]:
    return [one for one in round_.records if isinstance(one, ClaimRefused)]


def test_false_claims_of_many_missing_topics_are_reported() -> None:
    before = _round_after(None, 1, joined("a"), joined("b"))
    invented = joined("b", MANY, generation=2)
    assert [one.count for one in _refused(_round_after(before.state, 2, invented))] == [len(MANY)]


def test_member_that_is_slow_to_stop_many_deleted_topics_claims_nothing_false() -> None:
    """Its new leader cannot know that these topics existed."""
    before = _round_after(None, 1, joined("a", MANY, generation=1))
    again = joined("a", MANY, generation=2)
    assert _refused(_round_after(before.state, 2, again)) == []


def test_read_members_when_an_id_comes_twice_is_refused() -> None:
    """The coordinator is broken. A guess would drop a claim."""
    with pytest.raises(RemoteProtocolError, match=r"^members: got 'a' twice, expected every"):
        read_members([joined("a"), joined("b"), joined("a")])


def test_read_members_when_connectors_count_reads_and_answers_them() -> None:
    subscription = Subscription(topics=("sink",), owned=ResourceSet({"sink": [-1, 0]}))
    member = JoinedMember(
        member_id="a",
        group_instance_id=None,
        metadata=encode_subscription(subscription, index_min=-1),
    )
    round_ = lead(
        read_members([member], index_min=-1),
        TopicMetadata(resources=ResourceSet({"sink": [-1, 0, 1]})),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=context(),
    )
    assert decode_assignment(round_.assignments[0][1], index_min=-1) == Assignment(
        assigned=ResourceSet({"sink": [-1, 0, 1]})
    )


@pytest.mark.parametrize(
    ("name", "count", "arrivals"), [("lags", 1, None), ("arrivals", 2, np.zeros(1))]
)
def test_figures_that_differ_in_number_from_the_resources_are_refused(
    name: str, count: int, arrivals: Float64Array | None
) -> None:
    """A missing figure would shift all later ones to other partitions."""
    values = np.zeros(count, dtype=np.int64)
    with pytest.raises(ConfigurationError, match=rf"^{name}: got '1 figures', expected 2, one p"):
        Lags(resources=orders(0, 1), values=values, arrivals_per_s=arrivals)


def test_arrivals_when_aligned_are_those_of_the_group() -> None:
    lags = Lags(
        resources=ResourceSet({"gone": [0], "orders": [1, 3]}),
        values=np.zeros(3, dtype=np.int64),
        arrivals_per_s=np.array([9.0, -4.0, 2.5]),
    )
    aligned = lags.aligned_arrivals(orders(0, 1, 2, 3))
    assert aligned is not None
    assert aligned.tolist() == [0, 0, 0, 2.5]
    assert NO_LAGS.aligned_arrivals(orders(0)) is None
