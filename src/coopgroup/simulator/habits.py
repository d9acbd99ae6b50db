"""`Habits`: what is alike for all processes of a run, and may change while it runs."""

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
    """What is alike for all processes of a run, and may change while it runs.

    Attributes:
        assignor: says where.
        policy: says when.
        callback_ms: from the moment in which a callback is due to its call.
        lead_ms: that a leader takes for a round.
        notice_ms: until a leader notices that partitions changed.
        retry_ms: after a round that was refused, until the leader asks for another.
        jitter_ms: by which a retry may come later.
        no_metadata: part of the rounds whose leader gets no metadata in time.
        awaits_commits: whether an application waits for its commit of what it has to stop; else it
            asks for it and says at once that it has stopped, which a consumer allows.
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
