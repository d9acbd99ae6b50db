"""The same scenario with each policy and each seed."""

import math
import pickle
from collections.abc import Callable, Iterable, Sequence

import pytest
from attrs import evolve

from coopgroup.errors import ConfigurationError
from coopgroup.simulator import Run, Scenario
from coopgroup.simulator.comparison import MEASURES, Job, Spread, compare, play, spread_of
from coopgroup.simulator.scenario import Choice, Crash, Group, MemberSet, Topic

SCENARIO = Scenario(
    name="small",
    duration_ms=40_000,
    settle_ms=20_000,
    group=Group(session_timeout_ms=6_000, heartbeat_interval_ms=1_000),
    topics=(Topic(name="t", partitions=4, rate_per_s=(5.0,) * 4),),
    members=(MemberSet(name="m", count=2, topics=("t",)),),
    events=(Crash(at_ms=10_000, member="m-1", back_after_ms=10_000),),
)
POLICIES = {
    "simple": Choice(name="simple"),
    "long": Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 15_000}),
}


def seen(run: Run) -> tuple[object, ...]:
    """What must be the same wherever a run was made."""
    return (run.policy, run.seed, run.measures, run.violations)


def test_policies_are_compared_seed_by_seed() -> None:
    """In the order that was asked for; a longer wait than the restart saves all moves."""
    runs_by_policy = compare(SCENARIO, POLICIES, (3, 4))
    assert {label: [run.seed for run in runs] for label, runs in runs_by_policy.items()} == {
        "simple": [3, 4],
        "long": [3, 4],
    }
    assert all(not run.violations for runs in runs_by_policy.values() for run in runs)
    assert [run.measures.moved for run in runs_by_policy["long"]] == [0, 0]
    assert all(run.measures.moved >= 2 for run in runs_by_policy["simple"])
    waited = runs_by_policy["long"][0].measures.worst_outage_ms
    assert 10_000 < waited < 15_000
    assert runs_by_policy["simple"][0].measures.worst_outage_ms < waited


def test_a_run_is_the_same_after_a_journey() -> None:
    """Jobs and runs go to other processes and come back."""
    job = Job(scenario=SCENARIO, seed=3, keeps_history=True)
    here = play(job)
    assert seen(pickle.loads(pickle.dumps(play(pickle.loads(pickle.dumps(job)))))) == seen(here)  # noqa: S301 - our own values
    assert here.telemetry


def test_only_the_first_run_keeps_its_history_if_asked_for() -> None:
    """The others were measured and are done."""
    runs = compare(SCENARIO, {"simple": Choice(name="simple")}, (1, 2), keeps_first=True)["simple"]
    assert [bool(run.telemetry) for run in runs] == [True, False]
    assert [len(run.lag.times_ms) > 0 for run in runs] == [True, False]
    runs = compare(SCENARIO, {"simple": Choice(name="simple")}, (1,))["simple"]
    assert (runs[0].telemetry, len(runs[0].lag.times_ms)) == ((), 0)


def test_jobs_are_given_to_whoever_runs_them() -> None:
    """All at once, in the order of policies and seeds."""
    given: list[Job] = []

    def run_all(run: Callable[[Job], Run], jobs: Sequence[Job]) -> Iterable[Run]:
        given.extend(jobs)
        return map(run, jobs)

    compare(SCENARIO, POLICIES, (5, 6), run_all=run_all)
    assert [(str(job.scenario.group.policy), job.seed) for job in given] == [
        ("simple", 5),
        ("simple", 6),
        ("deferred:scheduled_rebalance_timeout_ms=15000", 5),
        ("deferred:scheduled_rebalance_timeout_ms=15000", 6),
    ]


def test_an_unknown_policy_is_refused() -> None:
    """By the registry."""
    with pytest.raises(ConfigurationError, match="policy: got 'later'"):
        compare(SCENARIO, {"later": Choice(name="later")}, (1,))


def test_spread_is_median_and_range() -> None:
    """A run that never converged counts as infinitely long."""
    run = play(Job(scenario=SCENARIO, seed=1, keeps_history=False))

    def converged(*times_ms: int | None) -> Spread:
        runs = [
            evolve(run, measures=evolve(run.measures, converge_ms=time_ms)) for time_ms in times_ms
        ]
        return spread_of("converge_ms", runs)

    assert converged(30, 10, 20) == Spread(median=20, low=10, high=30)
    assert converged(30, 10) == Spread(median=20, low=10, high=30)
    assert converged(30, None, 20) == Spread(median=30, low=20, high=math.inf)
    assert converged(None) == Spread(median=math.inf, low=math.inf, high=math.inf)


def test_measures_are_all_that_are_numbers() -> None:
    """The worst resource is a name."""
    assert "worst_resource" not in MEASURES
    assert len(MEASURES) == 9
