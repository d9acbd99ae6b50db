"""The `Policy` protocol: decide WHEN a resource moves to where the assignor wants it.

A policy is any object with one attribute and two methods; it inherits from nothing. A policy is
pure: what it remembers from round to round goes in (`RoundContext.memory`) and comes out
(`StagedRound.memory`). The leader itself remembers the members and their resources (`PolicyState`).

A round takes three steps:

1. `offer`: the policy returns the assignor's view. It may withhold resources (a lost resource that
   waits for its owner). It may name another owner than the claims do (a new member that counts as
   the missing one).
2. The assignor returns a target for this view.
3. `stage`: the policy decides how far this round goes towards the target. It gets its offer back,
   with everything that it has already computed for this round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.model.plan import RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.memory import PolicyState, Recalled
    from coopgroup.core.policies.warmth import Warmth


@frozen(kw_only=True, eq=False)
class Unclaimed:
    """Unclaimed assignable resources with a subscriber, of a group with R resources.

    Each is in exactly one of the first three arrays; `withheld` is a subset of their union.

    Attributes:
        created: bool (R,): never owned.
        lost: bool (R,): should be owned, and its owner has departed.
        released: bool (R,): given up because it was revoked.
        withheld: bool (R,): a member with an unreadable subscription may own it; not granted in
            this round.
    """

    created: BoolArray
    lost: BoolArray
    released: BoolArray
    withheld: BoolArray


@frozen(kw_only=True, eq=False)
class RoundFacts:
    """The facts of one group in one round; their arrays are read-only.

    A round of bundles has two groups, one of parts and one of bundles, each with its own facts.

    Attributes:
        group: the group.
        state: the leader's memory from which the facts follow.
        recalled: that memory as arrays of the group.
        told: bool (K,): `stopping_claims`.
        unclaimed: `find_unclaimed`.
    """

    group: GroupSnapshot
    state: PolicyState | None
    recalled: Recalled
    told: BoolArray
    unclaimed: Unclaimed


@frozen(kw_only=True)
class RoundContext:
    """Circumstances of a round, as its leader knows them.

    Attributes:
        leader_id: member id of the leader.
        generation: last generation that the leader completed as a member, including its own
            SyncGroup.
        now_ms: the leader's monotonic clock, in ms. It tells how long something lasts, never the
            time of day.
        state: the leader's memory of the last round; None if it did not lead the last round.
        balance: whether the leader started the round because lags were uneven for a long time, by
            the rule of this policy. Other members may have started the same round for other
            reasons.
        lags: the lags that the assignor receives; None if they were not looked up.
        protocol: protocol that the coordinator chose for the round; "" if unknown.
        after_broker: whether the group coordinator assigned before (KIP-848); no owner is lost.
        round_generation: generation of the round; None if unknown.
        rebalance_timeout_ms: the leader's own `max.poll.interval.ms`; None if unknown.
        facts: the leader's facts about the group; None before it has them.
        warmth: who is warm or cold for which resource; None in a round without warm-ups.
        has_limits: whether the assignor may leave members without resources on purpose.
    """

    leader_id: str
    generation: int
    now_ms: int
    state: PolicyState | None
    balance: bool = False
    lags: Lags | None = None
    protocol: str = ""
    after_broker: bool = False
    round_generation: int | None = None
    rebalance_timeout_ms: int | None = None
    facts: RoundFacts | None = None
    warmth: Warmth | None = None
    has_limits: bool = False

    @property
    def memory(self) -> object:
        """The policy's `StagedRound.memory` of the last round; None if this leader has none."""
        return None if self.state is None else self.state.memory


@frozen(kw_only=True, eq=False)
class Offer:
    """The assignor's view of a group with R resources.

    Attributes:
        owner: int32 (R,): present owner for the assignor, `NOBODY` without one.
        withheld_from_assignor: bool (R,): not offered in this round.
        facts: what the policy has computed for `stage`, of any type. Only the policy reads it.
            It is another value than `RoundContext.facts`.
    """

    owner: Int32Array
    withheld_from_assignor: BoolArray
    facts: object = None


@frozen(kw_only=True, eq=False)
class StagedRound:
    """The decision of a policy.

    Attributes:
        plan: assignment of every member.
        state: the leader's memory for its next round; None to let the leader write it.
        memory: the policy's own memory for the same leader's next round, of any type. It should be
            a frozen value. `coopgroup plan` prints it (docs: custom_policy).
    """

    plan: RoundPlan
    state: PolicyState | None = None
    memory: object = None


@runtime_checkable
class Policy(Protocol):
    """Decides when resources move."""

    @property
    def name(self) -> str:
        """Name in configuration, command line and logs."""
        ...

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Return the resources that the assignor may place in this round, and their owners."""
        ...

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Decide the owner of each resource after this round.

        Args:
            group: the group with R resources.
            target: int32 (R,): where the assignor wants the offered resources, `NOBODY` elsewhere.
            context: the same as for `offer`.
            offer: what `offer` returned in this round.

        Returns:
            The plan of the round and the memory.
        """
        ...
