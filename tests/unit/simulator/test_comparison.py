"""The same scenario with each policy and each seed."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve

from coopgroup.simulator import Run, Scenario, read_scenario
from coopgroup.simulator.comparison import Job, Spread, compare, play, spread_of
from coopgroup.simulator.measures import Measures
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


def test_policies_are_compared_seed_by_seed() -> None:
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


def test_only_the_first_run_keeps_its_history_if_asked_for() -> None:
    runs = compare(SCENARIO, {"simple": Choice(name="simple")}, (1, 2), keeps_first=True)["simple"]
    assert [bool(run.telemetry) for run in runs] == [True, False]
    assert [len(run.lag.times_ms) > 0 for run in runs] == [True, False]
    runs = compare(SCENARIO, {"simple": Choice(name="simple")}, (1,))["simple"]
    assert (runs[0].telemetry, len(runs[0].lag.times_ms)) == ((), 0)


def test_jobs_are_given_to_whoever_runs_them() -> None:
    given: list[Job] = []

    def run_all(run: Callable[[Job], Run], jobs: Sequence[Job]) -> Iterable[Run]:
        given.extend(jobs)
        return map(run, jobs)

    compare(SCENARIO, POLICIES, (5, 6), run_all=run_all)
    assert [(str(job.policy), job.seed) for job in given] == [
        ("simple", 5),
        ("simple", 6),
        ("deferred:scheduled_rebalance_timeout_ms=15000", 5),
        ("deferred:scheduled_rebalance_timeout_ms=15000", 6),
    ]


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


# --- what the scenarios in simulations/ show, for one seed ----------------------------------------

FOLDER = Path(__file__).parents[3] / "simulations"


@cache
def measured(name: str, policy: str) -> Measures:
    """Measure a scenario with a policy. It breaks no invariant and converges.

    "own" is the policy of the file, with warm-ups in the scenarios of applications with state.
    """
    scenario = read_scenario(FOLDER / f"{name}.toml")
    choice = scenario.group.policy if policy == "own" else scenario.policy_named(policy)
    runs = compare(scenario, {policy: choice}, (1,))[policy]
    assert runs[0].violations == ()
    assert runs[0].measures.converge_ms is not None
    return runs[0].measures


@pytest.mark.parametrize(
    "name",
    ["process_death", "rolling_bounce", "flapping_pod", "coordinator_lost", "hot_partition"],
)
def test_nothing_moves_where_the_delay_is_longer_than_the_absence(name: str) -> None:
    assert measured(name, "deferred").moved == 0
    moved = measured(name, "simple").moved
    assert 0 < moved <= measured(name, "eager").moved


def test_a_delay_saves_most_where_returns_are_cheap() -> None:
    """A restart of 10 s and a return of 1 s cost less than a move of 20 s there and back."""
    deferred, simple = (
        measured("rolling_bounce_with_caches", policy) for policy in ("deferred", "simple")
    )
    assert (deferred.moved, deferred.returned) == (0, 24)
    assert deferred.unavailable_partition_s < simple.unavailable_partition_s / 3
    assert deferred.worst_outage_ms < 10_000 + 1_000 + 1_000
    assert simple.worst_outage_ms > 20_000


@pytest.mark.parametrize("name", ["scale_up", "heavy_and_light", "slow_revoke"])
def test_only_the_eager_stop_everything(name: str) -> None:
    incremental, simple, eager = (
        measured(name, policy) for policy in ("incremental", "simple", "eager")
    )
    assert incremental.unavailable_peak < simple.unavailable_peak < eager.unavailable_peak
    assert simple.unavailable_partition_s < eager.unavailable_partition_s / 2
    assert incremental.unavailable_partition_s < eager.unavailable_partition_s * 0.6
    assert incremental.converge_ms is not None
    assert simple.converge_ms is not None
    assert incremental.converge_ms > simple.converge_ms or name == "heavy_and_light"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_ration_saves_moves_in_a_storm() -> None:
    """A partition that waits for its move goes directly to its last owner."""
    incremental = measured("storm_of_joiners", "incremental")
    simple = measured("storm_of_joiners", "simple")
    assert incremental.moved_twice < simple.moved_twice / 4
    assert 160 <= incremental.moved < simple.moved


WITHOUT_WARM_UPS = ("eager", "simple", "deferred", "incremental")


def test_warm_ups_save_the_restore_of_planned_moves() -> None:
    """A partition is out of service for its hand-over, not for the restore of 30 s."""
    best = min(
        measured("stateful_scale_up", one).unavailable_partition_s for one in WITHOUT_WARM_UPS
    )
    warm = measured("stateful_scale_up", "own")
    assert warm.unavailable_partition_s < 0.05 * best
    assert (warm.moved, warm.moved_cold, warm.moved_twice, warm.warmups) == (24, 0, 0, 24)
    assert warm.worst_outage_ms < 1_000


def test_standbys_take_over_when_a_death_is_noticed() -> None:
    """The session ends after 10 s, and the next heartbeat of the others reports it."""
    best = min(
        measured("stateful_loss_with_standby", one).unavailable_partition_s
        for one in WITHOUT_WARM_UPS
    )
    warm = measured("stateful_loss_with_standby", "own")
    assert warm.unavailable_partition_s < 0.3 * best
    assert warm.worst_outage_ms < 10_000 + 3_000
