"""Members whose policy or assignor differs from the leader's.

Only the leader's policy and assignor count. If a member with others becomes the leader, the group
changes its behaviour without any sign. So the leader reports such members.

A group can have 10,000 members. So members are grouped first: usually all tell the same.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from coopgroup.core.telemetry.records import PolicyOrAssignorDiffers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopgroup.core.model import MemberClaim
    from coopgroup.core.model.choices import MemberChoices

_DIFFERENCES_MAX: Final = 5
_MEMBERS_MAX: Final = 10
_OTHERS: Final = "other policies or assignors, or other options"
_NAME_MAX: Final = 100  # any member can send a longer one


def differing(claims: Iterable[MemberClaim], leader_id: str) -> tuple[PolicyOrAssignorDiffers, ...]:
    """Return a record for each difference from the leader's policy and assignor, ascending.

    Members of earlier releases do not tell theirs, and do not count as different.

    Args:
        claims: one per member.
        leader_id: member id of the leader, whose own claim tells its policy and assignor.
    """
    telling: defaultdict[MemberChoices, list[str]] = defaultdict(list)
    own = None
    for claim in claims:
        if claim.choices is not None:
            telling[claim.choices].append(claim.member_id)
            if claim.member_id == leader_id:
                own = claim.choices
    if own is None or len(telling) == 1:
        return ()
    found: defaultdict[str, list[str]] = defaultdict(list)
    for choices, members in telling.items():
        if difference := _difference(choices, own):
            found[difference] += members
    texts = sorted(found)
    if len(texts) > _DIFFERENCES_MAX:
        texts, others = texts[: _DIFFERENCES_MAX - 1], texts[_DIFFERENCES_MAX - 1 :]
        found[_OTHERS] = [one for text in others for one in found[text]]
        texts.append(_OTHERS)
    return tuple(
        PolicyOrAssignorDiffers(
            difference=text,
            members=tuple(sorted(found[text])[:_MEMBERS_MAX]),
            count=len(found[text]),
        )
        for text in texts
    )


def _difference(its: MemberChoices, own: MemberChoices) -> str:
    """Return in words how a member differs; "" if only one of two digests is known."""
    parts = (
        _difference_of("policy", (its.policy, its.policy_digest), (own.policy, own.policy_digest)),
        _difference_of(
            "assignor", (its.assignor, its.assignor_digest), (own.assignor, own.assignor_digest)
        ),
    )
    return ", ".join(filter(None, parts))


def _difference_of(kind: str, its: tuple[str, int | None], own: tuple[str, int | None]) -> str:
    (name, digest), (own_name, own_digest) = its, own
    if name != own_name:
        return f"{kind} {name[:_NAME_MAX]} instead of {own_name[:_NAME_MAX]}"
    if digest == own_digest or digest is None or own_digest is None:
        return ""
    return f"other options of {kind} {name[:_NAME_MAX]} ({digest:08x} instead of {own_digest:08x})"
