"""The round that a member must decide, and its decision, as the member knows them.

`coopgroup.core.leader` decides it. A member loads that part only if it may lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.core.leader.decision import RoundDecision
    from coopgroup.core.model import ResourceSet
    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.policies.memory import PolicyState
    from coopgroup.core.session.state import LagWatch


@frozen(kw_only=True)
class LeaderContext:
    """Circumstances of a round, as the member knows them; the leader's side adds the others.

    Attributes:
        leader_id: see `RoundContext`, also for the other fields.
    """

    leader_id: str
    generation: int
    now_ms: int
    state: PolicyState | None
    balance: bool = False
    protocol: str = ""
    after_broker: bool = False
    round_generation: int | None = None
    rebalance_timeout_ms: int | None = None


@frozen(kw_only=True)
class DecideRound:
    """Effect: decide a round, off the loop. It is the member's effect with a leader's memory.

    Attributes:
        number: distinct number, which `lead_round` passes to `DecisionMade`. A generation can have
            two rounds: a coordinator that takes over from an older log counts on from there.
        generation: generation of the round.
        members: all members with encoded subscriptions; `read_members` decodes them and returns the
            topics to look up.
        context: circumstances of the round. In a protocol of Kafka's own clients the round follows
            that protocol, whatever assignor and policy are.
    """

    generation: int
    members: tuple[JoinedMember, ...]
    context: LeaderContext
    number: int = 0


@frozen(kw_only=True)
class DecisionMade:
    """Event: a round that this member leads is decided.

    Attributes:
        generation: generation of the round.
        decision: the round, ready to be sent.
        number: number of the `DecideRound`.
        watch: memory for lag checks, or None.
    """

    generation: int
    decision: RoundDecision
    number: int = 0
    watch: LagWatch | None = None


@frozen(kw_only=True)
class RebalanceLags:
    """A leader's lags of one moment, for all rounds of a rebalance.

    Lags change from second to second. With other lags in each round, a rebalance could change its
    target forever.

    Attributes:
        lags: lags of the last look-up; None without one.
        goes_on_in: generation of the next round of the rebalance; None if it is over.
    """

    lags: Lags | None = None
    goes_on_in: int | None = None

    def known(self, duty: DecideRound, resources: ResourceSet) -> Lags | None:
        """Return the lags for a round; None to look them up.

        Look them up if the rebalance is over, if another member led the last round, or if there are
        new resources.
        """
        if duty.generation != self.goes_on_in or self.lags is None:
            return None
        return self.lags if resources <= self.lags.resources else None

    def after(self, outcome: DecisionMade, lags: Lags | None) -> RebalanceLags:
        """Return the memory after a round.

        A pause between rationed moves belongs to the rebalance. A wait for a lost owner does not:
        its partitions have fallen behind when it ends.

        Args:
            outcome: the decided round.
            lags: lags of the last look-up, or None.
        """
        plan = outcome.decision.plan
        goes_on = plan.follow_up or plan.rejoin_in_ms != plan.loss_ends_in_ms
        return RebalanceLags(lags=lags, goes_on_in=outcome.generation + 1 if goes_on else None)
