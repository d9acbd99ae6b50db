"""What a host measures of its application and the member tells the leader."""

from __future__ import annotations

import math
from typing import Final

from coopgroup.model.replacing import replaced
from coopgroup.session.hosted import Session

__all__ = ["smoothed_rate", "with_rate"]

_SMOOTHED_OVER_S: Final = 10.0


def smoothed_rate(before: float | None, rate_per_s: float, seconds: float) -> float:
    """The rate after another stretch of work: a mean in which older work counts less and less.

    Args:
        before: the rate before it, None when unknown.
        rate_per_s: records per second in that stretch.
        seconds: how long it was; what was before it keeps a weight of exp(-seconds / 10).
    """
    if before is None:
        return rate_per_s
    return before - math.expm1(-seconds / _SMOOTHED_OVER_S) * (rate_per_s - before)


def with_rate(session: Session, rate_per_s: float | None) -> Session:
    """The session with the rate that the next join tells.

    Args:
        session: in any state; nothing else of it changes.
        rate_per_s: records that the application gets done in a second of work, None when unknown.
    """
    member = session.member
    if member.consumption_rate_per_s == rate_per_s:
        return session
    return replaced(session, member=member.replaced({"consumption_rate_per_s": rate_per_s}))
