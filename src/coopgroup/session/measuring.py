"""What a host measures of its application and the member tells the leader."""

from __future__ import annotations

import attrs

from coopgroup.session.hosted import Session

__all__ = ["with_rate"]


def with_rate(session: Session, rate_per_s: float | None) -> Session:
    """The session with the rate that the next join tells.

    Args:
        session: in any state; nothing else of it changes.
        rate_per_s: records that the application gets done in a second of work, None when unknown.
    """
    member = session.member
    if member.consumption_rate_per_s == rate_per_s:
        return session
    return attrs.evolve(session, member=member.replaced({"consumption_rate_per_s": rate_per_s}))
