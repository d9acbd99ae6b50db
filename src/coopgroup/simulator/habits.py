"""`Habits`: settings that all processes of a run share, and that can change during the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from coopgroup.simulator.scenario import Span

if TYPE_CHECKING:
    from coopgroup.assignors.base import Assignor
    from coopgroup.policies.base import Policy

__all__ = ["Habits"]


@define(kw_only=True)
class Habits:
    """Settings that all processes of a run share, and that can change during the run.

    Attributes:
        assignor: decides where.
        policy: decides when.
        callback_ms: time from when a callback is due to its call.
        lead_ms: time that a leader needs for a round.
        notice_ms: time until a leader notices a change of partitions.
        retry_ms: time from a refused round until the leader starts another.
        jitter_ms: random delay of a retry.
        no_metadata: share of rounds without metadata.
        awaits_commits: whether an application waits for the commit of a resource that it stops.
            Otherwise it requests the commit and immediately reports the stop, which a consumer
            allows.
    """

    assignor: Assignor
    policy: Policy
    callback_ms: Span = field(factory=lambda: Span(1, 10))
    lead_ms: Span = field(factory=lambda: Span(1, 10))
    notice_ms: Span = field(factory=lambda: Span(1, 50))
    retry_ms: int = 1_000
    jitter_ms: int = 50
    no_metadata: float = 0.0
    awaits_commits: bool = True
