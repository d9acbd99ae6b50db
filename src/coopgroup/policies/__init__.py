"""Policies decide WHEN a resource moves to where the assignor wants it.

Users register their own policies by name (`registry`).
"""

from coopgroup.policies.balance import BalanceRule
from coopgroup.policies.base import LagFigures, Offer, Policy, RoundContext, StagedRound
from coopgroup.policies.deferred import DeferredPolicy
from coopgroup.policies.eager import EagerPolicy
from coopgroup.policies.incremental import IncrementalPolicy
from coopgroup.policies.registry import create_policy, policy_names, register_policy
from coopgroup.policies.rounds import Ration
from coopgroup.policies.safety import check_target, violations
from coopgroup.policies.simple import SimplePolicy
from coopgroup.policies.state import (
    Claims,
    Holdings,
    Loss,
    PolicyState,
    state_from_json,
    state_to_json,
)
from coopgroup.policies.unclaimed import Unclaimed, find_unclaimed, remember_round

__all__ = [
    "BalanceRule",
    "Claims",
    "DeferredPolicy",
    "EagerPolicy",
    "Holdings",
    "IncrementalPolicy",
    "LagFigures",
    "Loss",
    "Offer",
    "Policy",
    "PolicyState",
    "Ration",
    "RoundContext",
    "SimplePolicy",
    "StagedRound",
    "Unclaimed",
    "check_target",
    "create_policy",
    "find_unclaimed",
    "policy_names",
    "register_policy",
    "remember_round",
    "state_from_json",
    "state_to_json",
    "violations",
]
