"""Members, claims and the rounds of a leader, with assignors and policies as users write them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from coopgroup.assignors import Assignor, Placement, StickyAssignor
from coopgroup.core.leader import (
    NO_LAGS,
    Lags,
    RoundDecision,
    TopicMetadata,
    decide_round,
    fallback_round,
    lead,
    read_members,
)
from coopgroup.core.model import GroupSnapshot, MemberClaim, ResourceSet, RoundPlan, resolve_claims
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.policies.memory import PolicyState
from coopgroup.core.policies.policy import Offer, Policy, RoundContext, StagedRound
from coopgroup.protocol import (
    SUBSCRIPTION_NEWEST,
    Assignment,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from tests.support import groups
from tests.support.memory import remembered

NOT_A_SUBSCRIPTION = b"\x00\x01\x00\x00"
ORDERS_4 = TopicMetadata(resources=ResourceSet({"orders": range(4)}))


@attrs.frozen(kw_only=True)
class FunctionAssignor:
    """An assignor as a user might write it, without a base class."""

    function: Callable[[GroupSnapshot, Int64Array], Int32Array | Placement]
    name: str = "mine"
    needs_lags: bool = True

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array | Placement:
        return self.function(group, lags)


@attrs.frozen(kw_only=True)
class FunctionPolicy:
    """A policy as a user might write it: offers everything, stages as the function says."""

    function: Callable[[GroupSnapshot, Int32Array], RoundPlan]
    name: str = "mine"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        nothing = np.zeros(len(group.resources), dtype=np.bool_)
        return Offer(owner=group.owner, withheld_from_assignor=nothing)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        state = remembered(*group.member_ids, generation=context.generation)
        return StagedRound(plan=self.function(group, target), state=state)


def joined(
    member_id: str,
    owned: Mapping[str, list[int]] | None = None,
    *,
    topics: tuple[str, ...] = ("orders",),
    generation: int = 1,
    instance_id: str | None = None,
    version: int = SUBSCRIPTION_NEWEST,
    user_data: bytes | None = None,
    after: bytes = b"",
) -> JoinedMember:
    """Return a member whose subscription can be read; a later release may append bytes."""
    subscription = Subscription(
        topics=topics,
        owned=ResourceSet(owned or {}),
        generation=generation,
        user_data=user_data,
    )
    metadata = encode_subscription(subscription, version) + after
    return JoinedMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)


def unreadable(member_id: str) -> JoinedMember:
    return JoinedMember(member_id=member_id, group_instance_id=None, metadata=NOT_A_SUBSCRIPTION)


def claim(
    member_id: str,
    owned: Mapping[str, list[int]] | None = None,
    generation: int = 1,
    **more: Any,  # noqa: ANN401 - any field of a claim
) -> MemberClaim:
    return groups.claim(member_id, owned, topics=("orders",), generation=generation, **more)


def context(state: PolicyState | None = None, generation: int = 1, now_ms: int = 0) -> RoundContext:
    return RoundContext(leader_id="a", generation=generation, now_ms=now_ms, state=state)


def led(
    *members: JoinedMember,
    metadata: TopicMetadata = ORDERS_4,
    policy: Policy | None = None,
    state: PolicyState | None = None,
    generation: int = 1,
) -> RoundDecision:
    return lead(
        read_members(members),
        metadata,
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=policy or SimplePolicy(),
        context=context(state, generation),
    )


def fell_back(
    *members: JoinedMember,
    metadata: TopicMetadata | None = None,
    policy: Policy | None = None,
    state: PolicyState | None = None,
) -> RoundDecision:
    """Return the round of a leader that could not decide."""
    return fallback_round(
        read_members(members),
        metadata,
        assignor=StickyAssignor(),
        policy=policy or SimplePolicy(),
        context=context(state),
        reason="no answer within 5000 ms",
    )


def told(round_: RoundDecision) -> dict[str, Assignment]:
    """Return the assignment that each member receives."""
    return {
        member: decode_assignment(message, skips_rest=True)
        for member, message in round_.assignments
    }


def orders(*indices: int) -> ResourceSet:
    return ResourceSet({"orders": indices})


def decided_by(
    *,
    assignor: Assignor | None = None,
    policy: Policy | None = None,
    state: PolicyState | None = None,
    claims: Sequence[MemberClaim] = (claim("a", {"orders": [0, 1]}), claim("b")),
    metadata: TopicMetadata = ORDERS_4,
    lags: Lags = NO_LAGS,
    generation: int = 1,
    now_ms: int = 0,
) -> RoundDecision:
    """Decide a round of `a`, which owns two of four partitions, and the new member `b`."""
    return decide_round(
        resolve_claims(claims, metadata.resources, metadata.racks, metadata.weights),
        lags,
        assignor=assignor or StickyAssignor(),
        policy=policy or SimplePolicy(),
        context=context(state, generation, now_ms),
    )


def raising(*_: object) -> Int32Array:
    """A user's function that fails, with a message of two lines."""
    raise ZeroDivisionError("no\nluck")
