"""Frozen values that all layers share, and set algebra on resources."""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.core.model.absent import NO_LOSS, NOBODY
    from coopgroup.core.model.claims import MemberClaim, resolve_claims
    from coopgroup.core.model.group import GroupMember, GroupSnapshot, ReplicaRacks
    from coopgroup.core.model.plan import RoundPlan, plan_that_moves_nothing
    from coopgroup.core.model.resource_set import EMPTY, Resource, ResourceSet

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
            "coopgroup.core.model.absent": ("NOBODY", "NO_LOSS"),
            "coopgroup.core.model.claims": ("MemberClaim", "resolve_claims"),
            "coopgroup.core.model.group": ("GroupMember", "GroupSnapshot", "ReplicaRacks"),
            "coopgroup.core.model.plan": ("RoundPlan", "plan_that_moves_nothing"),
            "coopgroup.core.model.resource_set": ("EMPTY", "Resource", "ResourceSet"),
        },
    )
