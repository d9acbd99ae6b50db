"""`Decider`: the leader's side of the core, with the assignor and the policy of one member.

Only `leading` imports this file, when the member may become leader. Its imports are the policies,
the assignors and the decision of a round. They cost as much as the import of NumPy, and most
members never lead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.leader import RoundRequest, read_members
from coopgroup.core.leader.lag_checks import check_lags
from coopgroup.core.leader.rounds import lead_round, needs_round
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.lags import Lags
from coopgroup.core.model.metadata import TopicMetadata
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.policies.policy import Policy
from coopgroup.core.session import CheckLags, DecideRound, DecisionMade, LagsChecked, LookOver

Read: TypeAlias = Callable[[Sequence[JoinedMember]], RoundRequest]


@frozen
class Decider:
    """Decides rounds.

    Attributes:
        read: decodes the subscriptions of a round.
    """

    assignor: Assignor
    policy: Policy
    read: Read

    @classmethod
    def of(cls, assignor: Assignor | None, policy: Policy | None, read: Read | None) -> Decider:
        """Return the decider of a member; None stands for a default."""
        return cls(
            StickyAssignor() if assignor is None else assignor,
            SimplePolicy() if policy is None else policy,
            read_members if read is None else read,
        )

    def lead(
        self,
        duty: DecideRound,
        request: RoundRequest | None,
        metadata: TopicMetadata | None,
        lags: Lags | None,
        **why: str,
    ) -> DecisionMade:
        """Decide a round; see `lead_round`."""
        return lead_round(
            duty, request, metadata, lags, assignor=self.assignor, policy=self.policy, **why
        )

    def check(self, duty: CheckLags, lags: Lags) -> LagsChecked:
        """Decide whether lags need a round; see `check_lags`."""
        return check_lags(duty, lags, assignor=self.assignor, policy=self.policy)

    def needs_round(self, duty: LookOver, found: ResourceSet, request: RoundRequest) -> bool:
        """Return whether a returned leader must start a round; see `needs_round`."""
        return needs_round(duty, found, request, self.policy)
