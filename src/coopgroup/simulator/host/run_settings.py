"""`RunSettings`: settings that all processes of a run share, and that can change during the run."""

from __future__ import annotations

from attrs import define, field, frozen

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.policies.policy import Policy
from coopgroup.simulator.scenario import Span


@frozen(kw_only=True)
class WarmupMishaps:
    """What can go wrong with warm-ups; shares from 0 to 1, drawn for each resource.

    Attributes:
        hang: never end.
        fail: `on_warmup` raises.
        lie: the application says at once that it is warm, without the state; at its start it also
            says so of state that it does not have.
    """

    hang: float = 0.0
    fail: float = 0.0
    lie: float = 0.0


@define(kw_only=True)
class RunSettings:
    """Settings that all processes of a run share, and that can change during the run.

    Attributes:
        callback_ms: time from when a callback is due to its call.
        count_ms: time for which a member looks up topics.
        notice_ms: time until a leader notices a change of partitions.
        no_metadata: share of rounds without metadata, and of look-ups of topic ids that fail.
        awaits_commits: whether an application waits for the commit of a resource that it stops.
            Otherwise it requests the commit and immediately reports the stop, which a consumer
            allows.
        late_commit_ms: time after which an application requests another commit of a resource that
            it has given up, as a worker that ends after the callback does; 0 for never.
        mishaps: what goes wrong with warm-ups; None for nothing.
    """

    assignor: Assignor
    policy: Policy
    callback_ms: Span = field(factory=lambda: Span(1, 10))
    lead_ms: Span = field(factory=lambda: Span(1, 10))
    count_ms: Span = field(factory=lambda: Span(0, 0))
    notice_ms: Span = field(factory=lambda: Span(1, 50))
    jitter_ms: int = 50
    no_metadata: float = 0.0
    awaits_commits: bool = True
    late_commit_ms: int = 0
    mishaps: WarmupMishaps | None = None
