"""The `Policy` protocol: decide WHEN a resource moves to where the assignor wants it.

A policy is any object with one attribute and two methods; it inherits from nothing. A policy is
pure: its memory from round to round is a `PolicyState`, a frozen value that goes in and comes out.

A round takes three steps:

1. `offer`: the policy returns the assignor's view. It may withhold resources (a lost resource that
   waits for its owner). It may name another owner than the claims do (a new member that counts as
   the missing one).
2. The assignor returns a target for this view.
3. `stage`: the policy decides how far this round goes towards the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.plan import RoundPlan
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array, ResourceSet
    from coopgroup.policies.state import PolicyState

__all__ = ["LagFigures", "Offer", "Policy", "RoundContext", "StagedRound"]


class LagFigures(Protocol):
    """The lags that a leader knows."""

    def aligned(self, resources: ResourceSet) -> Int64Array:
        """Return the lag of each of R resources, at least 0, and 0 if unknown: int64 (R,)."""
        ...


@frozen(kw_only=True, slots=False)  # for `replaced`
class RoundContext:
    """Circumstances of a round, as its leader knows them.

    Attributes:
        leader_id: member id of the leader.
        generation: last generation that the leader completed as a member, including its own
            SyncGroup.
        now_ms: the leader's clock, in ms.
        state: the policy's state from the last round; None if this leader did not lead the last
            round.
        balance: whether the leader started the round because lags were uneven for a long time, by
            the rule of this policy. Other members may have started the same round for other
            reasons.
        lags: the lags that the assignor receives; None if they were not looked up.
        protocol: protocol that the coordinator chose for the round; "" if unknown.
    """

    leader_id: str
    generation: int
    now_ms: int
    state: PolicyState | None
    balance: bool = False
    lags: LagFigures | None = None
    protocol: str = ""


@frozen(kw_only=True, eq=False)
class Offer:
    """The assignor's view of a group with R resources.

    Attributes:
        owner: int32 (R,): present owner for the assignor, `NOBODY` without one.
        held: bool (R,): not offered in this round.
    """

    owner: Int32Array
    held: BoolArray


@frozen(kw_only=True, eq=False)
class StagedRound:
    """The decision of a policy.

    Attributes:
        plan: assignment of every member.
        state: memory for the same leader's next round.
    """

    plan: RoundPlan
    state: PolicyState


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

    def stage(self, group: GroupSnapshot, target: Int32Array, context: RoundContext) -> StagedRound:
        """Decide the owner of each resource after this round.

        Args:
            group: the group with R resources.
            target: int32 (R,): where the assignor wants the offered resources, `NOBODY` elsewhere.
            context: the same as for `offer`.

        Returns:
            The plan of the round and the state to remember.
        """
        ...
