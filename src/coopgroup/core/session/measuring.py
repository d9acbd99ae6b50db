"""Measurements of the application that the member reports to the leader."""

from __future__ import annotations

import math
from typing import Final

import attrs

from coopgroup.core.model.replacing import replaced
from coopgroup.core.session.state import Session

__all__ = ["smoothed_rate", "with_rate"]

_SMOOTHED_OVER_S: Final = 10.0


def smoothed_rate(before: float | None, rate_per_s: float, seconds: float) -> float:
    """Return the rate after another interval of work, as a mean with decaying weights.

    Args:
        before: rate before the interval, None if unknown.
        rate_per_s: records per second in the interval.
        seconds: its length; the earlier rate keeps a weight of exp(-seconds / 10).
    """
    if before is None:
        return rate_per_s
    return before - math.expm1(-seconds / _SMOOTHED_OVER_S) * (rate_per_s - before)


def with_rate(session: Session, rate_per_s: float | None) -> Session:
    """Return the session with the rate for its next join.

    Args:
        session: in any state; nothing else changes.
        rate_per_s: records that the application processes in a second of work, None if unknown.
    """
    member = session.member
    if member.next_join.consumption_rate_per_s == rate_per_s:
        return session
    next_join = attrs.evolve(member.next_join, consumption_rate_per_s=rate_per_s)
    return replaced(session, member=replaced(member, next_join=next_join))
