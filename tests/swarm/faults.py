"""`Faults`: what can go wrong at any time of a run of the swarm."""

from __future__ import annotations

from attrs import frozen

__all__ = ["Faults"]


@frozen(kw_only=True)
class Faults:
    """Faults that can happen at any time; all fractions are from 0 to 1.

    Attributes:
        loss: fraction of the requests and of the answers that is lost.
        delay_ms_max: longest time that a request or an answer takes.
        slow: fraction of the resources that take long to stop.
        slow_ms_max: longest time of such a stop.
        lead_ms_max: longest time that a leader takes for a round.
        no_metadata: fraction of the rounds without metadata in time for the leader.
        commit_interval_ms: time between commits; a short interval keeps many commits pending.
        awaits_commits: whether applications wait for the commit of stopped resources.
        late_commit_ms: time until they commit given up resources again; 0 for never.
        bell_delay_ms_max: longest time of a ring from one member to another; 0 without a bell.
        bell_loss: fraction of the rings that a process does not hear.
        bell_false_ms: mean time between false rings.
        restore_ms_max: longest time to restore a resource, and of a warm-up.
        hang: fraction of the warm-ups that never end (`WarmupMishaps`).
        fail: fraction of the warm-ups that fail.
        lie: fraction of the warm-ups that are a lie, and of the resources of which a starting
            process says that it is warm.
        keeps_state: whether a process that returns finds its state on its disk.
    """

    loss: float = 0.0
    delay_ms_max: int = 2
    slow: float = 0.0
    slow_ms_max: int = 100
    lead_ms_max: int = 10
    no_metadata: float = 0.0
    commit_interval_ms: int = 250
    awaits_commits: bool = True
    late_commit_ms: int = 0
    bell_delay_ms_max: int = 0
    bell_loss: float = 0.0
    bell_false_ms: int = 0
    restore_ms_max: int = 10
    hang: float = 0.0
    fail: float = 0.0
    lie: float = 0.0
    keeps_state: bool = False
