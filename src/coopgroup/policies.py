"""Policies decide WHEN a resource moves to where the assignor wants it.

Users register their own policies by name (`register_policy`). This module exports everything that
a policy of a user imports.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.core.model import (
        NOBODY,
        GroupMember,
        GroupSnapshot,
        MemberClaim,
        ResourceSet,
        RoundPlan,
        plan_that_moves_nothing,
        resolve_claims,
    )
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.model.plan import revoked_claims
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.balance import BalanceRule
    from coopgroup.core.policies.built_in import (
        DeferredPolicy,
        EagerPolicy,
        IncrementalPolicy,
        SimplePolicy,
        create_policy,
        policy_names,
        register_policy,
    )
    from coopgroup.core.policies.facts import (
        find_unclaimed,
        offered_owner,
        remember_round,
        stopping_claims,
    )
    from coopgroup.core.policies.memory import (
        Loss,
        PairKind,
        Past,
        PolicyState,
        RememberedMembers,
        RememberedPairs,
        RememberedResources,
        state_from_json,
        state_to_json,
    )
    from coopgroup.core.policies.policy import Offer, Policy, RoundContext, StagedRound, Unclaimed
    from coopgroup.core.policies.safety import check_target, violations
    from coopgroup.core.policies.stage import Ration
    from coopgroup.core.policies.warmth import Warmup

__all__ = [
    "NOBODY",
    "BalanceRule",
    "BoolArray",
    "DeferredPolicy",
    "EagerPolicy",
    "GroupMember",
    "GroupSnapshot",
    "IncrementalPolicy",
    "Int32Array",
    "Int64Array",
    "Lags",
    "Loss",
    "MemberClaim",
    "Offer",
    "PairKind",
    "Past",
    "Policy",
    "PolicyState",
    "Ration",
    "RememberedMembers",
    "RememberedPairs",
    "RememberedResources",
    "ResourceSet",
    "RoundContext",
    "RoundPlan",
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
            "coopgroup.core.model": (
                "GroupMember",
                "GroupSnapshot",
                "MemberClaim",
                "NOBODY",
                "ResourceSet",
                "RoundPlan",
                "plan_that_moves_nothing",
                "resolve_claims",
            ),
            "coopgroup.core.model.plan": ("revoked_claims",),
            "coopgroup.core.model.resource_set": ("BoolArray", "Int32Array", "Int64Array"),
            "coopgroup.core.model.lags": ("Lags",),
            "coopgroup.core.policies.balance": ("BalanceRule",),
            "coopgroup.core.policies.built_in": (
                "DeferredPolicy",
                "EagerPolicy",
                "IncrementalPolicy",
                "SimplePolicy",
                "create_policy",
                "policy_names",
                "register_policy",
            ),
            "coopgroup.core.policies.facts": (
                "find_unclaimed",
                "offered_owner",
                "remember_round",
                "stopping_claims",
            ),
            "coopgroup.core.policies.memory": (
                "Loss",
                "PairKind",
                "Past",
                "PolicyState",
                "RememberedMembers",
                "RememberedPairs",
                "RememberedResources",
                "state_from_json",
                "state_to_json",
            ),
            "coopgroup.core.policies.policy": (
                "Offer",
                "Policy",
                "RoundContext",
                "StagedRound",
                "Unclaimed",
            ),
            "coopgroup.core.policies.safety": ("check_target", "violations"),
            "coopgroup.core.policies.stage": ("Ration",),
            "coopgroup.core.policies.warmth": ("Warmup",),
        },
    )
