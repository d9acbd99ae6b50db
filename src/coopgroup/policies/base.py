"""What a policy is: WHEN a resource goes where the assignor wants it.

A policy is any object with the attribute and the two methods of `Policy`; nothing needs to be
inherited. It is pure: what it has to remember from round to round is a `PolicyState`, a frozen
value that goes in and comes out.

A round takes three steps:

1. `offer`: the policy says what the assignor gets to see. It may hold resources back (a lost one
   that waits for its owner) and may name another owner than the claims do (a member that is taken
   for one that returns).
2. the assignor gives a target for what was offered;
3. `stage`: the policy says how far towards that target this round goes.
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
    """What a leader knows of lags."""

    def aligned(self, resources: ResourceSet) -> Int64Array:
        """Lag of each of R resources, none below 0 and 0 where unknown: int64 (R,)."""
        ...


@frozen(kw_only=True, slots=False)  # for `replaced`
class RoundContext:
    """Circumstances of a round, as its leader knows them.

    Attributes:
        leader_id: member id of the leader.
        generation: last generation that the leader completed as a member, its own SyncGroup
            included.
        now_ms: the leader's clock, in ms.
        state: what the policy returned in the last round that this leader led; None when the
            leader did not lead the last round.
        balance: whether the leader asked for the round because lags were uneven for long, by the
            rule of this policy. Others may have asked for the same round for other reasons.
        lags: what the assignor is given; None where nobody looked them up.
        protocol: that the coordinator chose for the round; "" where that is not said.
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
    """What the assignor gets to see of a group with R resources.

    Attributes:
        owner: int32 (R,): who is to be taken for the present owner, NOBODY for nobody.
        held: bool (R,): not offered in this round.
    """

    owner: Int32Array
    held: BoolArray


@frozen(kw_only=True, eq=False)
class StagedRound:
    """A policy's answer.

    Attributes:
        plan: what each member is told.
        state: what the same leader passes in at the next round.
    """

    plan: RoundPlan
    state: PolicyState


@runtime_checkable
class Policy(Protocol):
    """Decides when resources move."""

    @property
    def name(self) -> str:
        """Name by which users choose it."""
        ...

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Say what the assignor may place in this round, and whom it finds as owners."""
        ...

    def stage(self, group: GroupSnapshot, target: Int32Array, context: RoundContext) -> StagedRound:
        """Say what each member holds after this round.

        Args:
            group: the group as it is, with R resources.
            target: int32 (R,): where the assignor wants what it was offered, NOBODY elsewhere.
            context: the same as for `offer`.

        Returns:
            The plan of the round and the state to remember.
        """
        ...
