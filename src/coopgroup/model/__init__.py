"""Frozen values that all layers share, and set algebra on resources."""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.model.absent import NO_LOSS, NOBODY
    from coopgroup.model.claims import MemberClaim, resolve_claims
    from coopgroup.model.group import GroupMember, GroupSnapshot, ReplicaRacks
    from coopgroup.model.plan import RoundPlan, plan_that_moves_nothing
    from coopgroup.model.resource_set import EMPTY, Resource, ResourceSet

__all__ = [
    "EMPTY",
    "NOBODY",
    "NO_LOSS",
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

if not TYPE_CHECKING:  # type checkers see only the imports above
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "coopgroup.model.absent": ("NOBODY", "NO_LOSS"),
            "coopgroup.model.claims": ("MemberClaim", "resolve_claims"),
            "coopgroup.model.group": ("GroupMember", "GroupSnapshot", "ReplicaRacks"),
            "coopgroup.model.plan": ("RoundPlan", "plan_that_moves_nothing"),
            "coopgroup.model.resource_set": ("EMPTY", "Resource", "ResourceSet"),
        },
    )
