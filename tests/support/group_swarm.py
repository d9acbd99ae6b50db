"""Groups for the state machine of `test_group_machine`: as small and as fast as the swarm's."""

from typing import Final

from coopgroup.assignors.registry import create_assignor
from coopgroup.policies.registry import create_policy
from coopgroup.simulator.host.process import RunSettings
from coopgroup.simulator.scenario import Choice, Span
from coopgroup.simulator.simulation import Simulation
from tests.swarm.play import set_topics
from tests.swarm.play import small_group as group_with
from tests.swarm.rest import settle

__all__ = ["PROCESSES_MAX", "STORY_LINES_MAX", "set_topics", "settle", "small_group"]

PROCESSES_MAX: Final = 5
STORY_LINES_MAX: Final = 80


def small_group(
    *,
    seed: int,
    policy: Choice,
    assignor: str = "sticky",
    loss: float = 0.0,
    delay_ms_max: int = 5,
    slow: float = 0.0,
    slow_ms_max: int = 400,
    no_metadata: float = 0.0,
) -> Simulation:
    """Return a group with its policy, its assignor and its faults.

    Args:
        seed: seed of all random numbers.
        policy: decides when resources move.
        assignor: decides where resources go.
        loss: share of requests, and of answers, that is lost.
        delay_ms_max: maximum delay of a request or an answer.
        slow: share of the resources with a slow stop.
        slow_ms_max: maximum time of a slow stop.
        no_metadata: share of the rounds whose leader gets no metadata in time.
    """
    run_settings = RunSettings(
        assignor=create_assignor(assignor),
        policy=create_policy(policy.name, policy.options),
        lead_ms=Span(1, slow_ms_max if slow else 10),
        jitter_ms=10,
        no_metadata=no_metadata,
    )
    simulation = group_with(
        seed=seed, run_settings=run_settings, delay_ms_max=delay_ms_max, loss=loss
    )
    simulation.costs.slow, simulation.costs.slow_ms = slow, Span(1, slow_ms_max)
    return simulation
