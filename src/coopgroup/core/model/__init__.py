"""Frozen values that all layers share, and set algebra on resources."""

from coopgroup.core.model.claims import MemberClaim, resolve_claims
from coopgroup.core.model.group import NOBODY, GroupMember, GroupSnapshot, ReplicaRacks
from coopgroup.core.model.plan import RoundPlan, plan_that_moves_nothing
from coopgroup.core.model.resource_set import EMPTY, Resource, ResourceSet

__all__ = [
    "EMPTY",
    "NOBODY",
    "GroupMember",
    "GroupSnapshot",
    "MemberClaim",
    "ReplicaRacks",
    "Resource",
    "ResourceSet",
    "RoundPlan",
    "plan_that_moves_nothing",
    "resolve_claims",
]
