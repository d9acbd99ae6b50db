"""The uniform assignor of a broker (KIP-848), as far as a test can rely on it.

Shares of members with the same subscription differ by at most one, and as few partitions move as
that allows. Otherwise each free partition goes to the subscriber with the fewest.
"""

from __future__ import annotations

from collections.abc import Mapping

from coopgroup.core.model import EMPTY, ResourceSet

__all__ = ["assign_uniformly"]


def assign_uniformly(
    topics_of: Mapping[str, tuple[str, ...]],
    before: Mapping[str, ResourceSet],
    existing: ResourceSet,
) -> dict[str, ResourceSet]:
    """Return the target of each member.

    Args:
        topics_of: subscribed topics of each member.
        before: earlier target of each member.
        existing: all partitions.
    """
    members = sorted(topics_of)
    shares = {
        member: list(before.get(member, EMPTY) & existing.restrict_names(topics_of[member]))
        for member in members
    }
    if len(set(map(frozenset, topics_of.values()))) == 1:
        subscribed = existing.restrict_names(topics_of[members[0]])
        least_size, larger_max = divmod(len(subscribed), len(members))
        for member in sorted(members, key=lambda one: (-len(shares[one]), one)):
            keeps_one_more = larger_max > 0 and len(shares[member]) > least_size
            larger_max -= keeps_one_more
            del shares[member][least_size + keeps_one_more :]
    taken = {partition for share in shares.values() for partition in share}
    for partition in existing:
        if partition in taken:
            continue
        fits = [member for member in members if partition[0] in topics_of[member]]
        if fits:
            least = min(fits, key=lambda member: (len(shares[member]), member))
            shares[least].append(partition)
    return {member: ResourceSet.from_pairs(share) for member, share in shares.items()}
