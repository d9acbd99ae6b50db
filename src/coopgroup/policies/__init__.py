"""Policies decide WHEN a resource moves to where the assignor wants it.

Users register their own policies by name (`register_policy`). This module exports everything that
a policy of a user imports.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.model import (
        NO_LOSS,
        NOBODY,
        GroupMember,
        GroupSnapshot,
        MemberClaim,
        ResourceSet,
        RoundPlan,
        plan_that_moves_nothing,
        resolve_claims,
    )
    from coopgroup.model.plan import revoked_claims
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.policies.balance import BalanceRule
    from coopgroup.policies.base import LagFigures, Offer, Policy, RoundContext, StagedRound
    from coopgroup.policies.deferred import DeferredPolicy
    from coopgroup.policies.eager import EagerPolicy
    from coopgroup.policies.incremental import IncrementalPolicy
    from coopgroup.policies.registry import create_policy, policy_names, register_policy
    from coopgroup.policies.safety import check_target, violations
    from coopgroup.policies.simple import SimplePolicy
    from coopgroup.policies.state import (
        Claims,
        Holdings,
        Loss,
        PolicyState,
        RunningWarmups,
        state_from_json,
        state_to_json,
    )
    from coopgroup.policies.stopping import offered_owner, stopping_claims
    from coopgroup.policies.unclaimed import Unclaimed, find_unclaimed, remember_round
    from coopgroup.policies.waiting.rounds import Ration
    from coopgroup.policies.warming.option import Warmup

__all__ = [
    "NOBODY",
    "NO_LOSS",
    "BalanceRule",
    "BoolArray",
    "Claims",
    "DeferredPolicy",
    "EagerPolicy",
    "GroupMember",
    "GroupSnapshot",
    "Holdings",
    "IncrementalPolicy",
    "Int32Array",
    "Int64Array",
    "LagFigures",
    "Loss",
    "MemberClaim",
    "Offer",
    "Policy",
    "PolicyState",
    "Ration",
    "ResourceSet",
    "RoundContext",
    "RoundPlan",
    "RunningWarmups",
    "SimplePolicy",
    "StagedRound",
    "Unclaimed",
    "Warmup",
    "check_target",
    "create_policy",
    "find_unclaimed",
    "offered_owner",
    "plan_that_moves_nothing",
    "policy_names",
    "register_policy",
    "remember_round",
    "resolve_claims",
    "revoked_claims",
    "state_from_json",
    "state_to_json",
    "stopping_claims",
    "violations",
]

if not TYPE_CHECKING:  # type checkers see only the imports above
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "coopgroup.model": (
                "GroupMember",
                "GroupSnapshot",
                "MemberClaim",
                "NOBODY",
                "NO_LOSS",
                "ResourceSet",
                "RoundPlan",
                "plan_that_moves_nothing",
                "resolve_claims",
            ),
            "coopgroup.model.plan": ("revoked_claims",),
            "coopgroup.model.resource_set": ("BoolArray", "Int32Array", "Int64Array"),
            "coopgroup.policies.balance": ("BalanceRule",),
            "coopgroup.policies.base": (
                "LagFigures",
                "Offer",
                "Policy",
                "RoundContext",
                "StagedRound",
            ),
            "coopgroup.policies.deferred": ("DeferredPolicy",),
            "coopgroup.policies.eager": ("EagerPolicy",),
            "coopgroup.policies.incremental": ("IncrementalPolicy",),
            "coopgroup.policies.registry": ("create_policy", "policy_names", "register_policy"),
            "coopgroup.policies.safety": ("check_target", "violations"),
            "coopgroup.policies.simple": ("SimplePolicy",),
            "coopgroup.policies.state": (
                "Claims",
                "Holdings",
                "Loss",
                "PolicyState",
                "RunningWarmups",
                "state_from_json",
                "state_to_json",
            ),
            "coopgroup.policies.stopping": ("offered_owner", "stopping_claims"),
            "coopgroup.policies.unclaimed": ("Unclaimed", "find_unclaimed", "remember_round"),
            "coopgroup.policies.waiting.rounds": ("Ration",),
            "coopgroup.policies.warming.option": ("Warmup",),
        },
    )
