"""Compare policies: play a scenario with each policy and each seed; median and range.

The caller decides how jobs run: one after the other, or in a pool of processes. Jobs and runs are
values that can be sent to another process. A run leaves its history behind if it is not needed,
because sending a large history takes longer than computing it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

import attrs
from attrs import evolve, frozen

from coopgroup.core.policies.policy import Policy
from coopgroup.simulator.measures import Measures
from coopgroup.simulator.run import Run, simulate
from coopgroup.simulator.scenario import Choice, Scenario

MEASURES: Final = tuple(one.name for one in attrs.fields(Measures) if one.name != "worst_resource")
"""Names of the measures that are numbers."""


@frozen(kw_only=True)
class Job:
    """One run to play.

    Attributes:
        policy: replaces the scenario's policy; None for the scenario's own.
        keeps_history: whether the run keeps telemetry and lag, or only the measures.
    """

    scenario: Scenario
    seed: int
    keeps_history: bool
    policy: Policy | Choice | None = None


Runner: TypeAlias = Callable[[Callable[[Job], Run], Sequence[Job]], Iterable[Run]]


@frozen(kw_only=True)
class Spread:
    """A measure over several runs.

    Attributes:
        median: infinite if at least half of the runs have no value because they never converged.
        low: lowest value; infinite if no run has one.
        high: highest value; infinite if a run has none.
    """

    median: float
    low: float
    high: float


def compare(
    scenario: Scenario,
    policies: Mapping[str, Policy | Choice],
    seeds: Sequence[int],
    *,
    keeps_first: bool = False,
    run_all: Runner = map,
) -> dict[str, tuple[Run, ...]]:
    """Play a scenario with each policy and each seed; runs are in the order of the seeds.

    Args:
        scenario: the scenario; its own policy is ignored.
        policies: policies, or names with options, by the name used in the result. Policies are
            sent to other processes if `run_all` does so.
        seeds: at least one.
        keeps_first: whether the first run of each policy keeps its telemetry and lag.
        run_all: applies a function to jobs and returns the runs in the order of the jobs.

    Raises:
        ConfigurationError: a policy is unknown or has a wrong option, or the scenario is invalid.
    """
    jobs = [
        Job(
            scenario=scenario,
            policy=choice,
            seed=seed,
            keeps_history=keeps_first and seed == seeds[0],
        )
        for choice, seed in product(policies.values(), seeds)
    ]
    runs = tuple(run_all(play, jobs))
    return {
        label: runs[place * len(seeds) : (place + 1) * len(seeds)]
        for place, label in enumerate(policies)
    }


def play(job: Job) -> Run:
    """Play one run; the result depends only on the job."""
    run = simulate(job.scenario, policy=job.policy, seed=job.seed)
    if job.keeps_history:
        return run
    lag = evolve(run.lag, times_ms=run.lag.times_ms[:0], lags=run.lag.lags[:0])
    return evolve(run, telemetry=(), transcript=(), lag=lag)


def spread_of(measure: str, runs: Sequence[Run]) -> Spread:
    """Return median and range of a measure."""
    numbers = [getattr(run.measures, measure) for run in runs]
    values = [math.inf if number is None else number for number in numbers]
    return Spread(median=statistics.median(values), low=min(values), high=max(values))
