"""`simulate`: the same run for the same seed; other policies and assignors by name."""

import attrs
import pytest

from coopgroup.assignors import RangeAssignor
from coopgroup.errors import ConfigurationError
from coopgroup.policies import DeferredPolicy, EagerPolicy
from coopgroup.simulator import Scenario, simulate
from coopgroup.simulator import run as run_module
from coopgroup.simulator.hand_overs import HandOvers
from coopgroup.simulator.scenario import (
    AddPartitions,
    Choice,
    Crash,
    Group,
    Identity,
    MemberSet,
    Network,
    Span,
    Topic,
)
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.transcript import Transcript
from coopgroup.telemetry import to_json

SCENARIO = Scenario(
    duration_ms=20_000,
    settle_ms=20_000,
    group=Group(session_timeout_ms=2_000, rebalance_timeout_ms=4_000, heartbeat_interval_ms=500),
    topics=(Topic(name="T", partitions=6, rate_per_s=(20.0,) * 6),),
    members=(MemberSet(name="w", count=3, topics=("T",)),),
    network=Network(delay_ms=Span(1, 20), loss=0.02),
    events=(Crash(at_ms=6_000, member="w-1", back_after_ms=3_500),),
    policies=(Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 5_000}),),
)


def test_simulate_twice_is_the_same_run() -> None:
    one, other = (simulate(SCENARIO, seed=3, transcript=True) for _ in range(2))
    assert one.transcript == other.transcript
    assert list(map(to_json, one.telemetry)) == list(map(to_json, other.telemetry))
    assert one.measures == other.measures
    assert simulate(SCENARIO, seed=4, transcript=True).transcript != one.transcript


def test_simulate_takes_objects() -> None:
    policy, assignor = DeferredPolicy(scheduled_rebalance_timeout_ms=5_000), RangeAssignor()
    run = simulate(SCENARIO, policy=policy, assignor=assignor)
    named = simulate(SCENARIO, policy="deferred", assignor="range")
    assert (run.policy, run.assignor) == ("deferred", "range")
    assert run.measures == named.measures
    eager = simulate(SCENARIO, policy=EagerPolicy())
    assert eager.measures == simulate(SCENARIO, policy="eager").measures


def test_simulate_with_a_policy_by_name_takes_the_options_of_the_scenario() -> None:
    simple, deferred = simulate(SCENARIO), simulate(SCENARIO, policy="deferred")
    assert (simple.policy, deferred.policy) == ("simple", "deferred")
    options = deferred.scenario.group.policy.options
    assert options == {"scheduled_rebalance_timeout_ms": 5_000}
    assert deferred.measures.moved == 0 < simple.measures.moved
    assert (simple.violations, deferred.violations) == ((), ())


@pytest.mark.parametrize(("policy", "assignor"), [("eventual", None), (None, "random")])
def test_simulate_when_a_name_is_unknown_is_refused(
    policy: str | None, assignor: str | None
) -> None:
    with pytest.raises(ConfigurationError, match="expected one of"):
        simulate(SCENARIO, policy=policy, assignor=assignor)


def test_simulate_when_settings_contradict_each_other_is_refused() -> None:
    group = attrs.evolve(SCENARIO.group, rebalance_timeout_ms=1_000)
    with pytest.raises(ConfigurationError):
        simulate(attrs.evolve(SCENARIO, group=group))


def test_violations_of_a_run_are_found() -> None:
    """A group without time to settle is not at rest."""
    events = (Crash(at_ms=19_900, member="w-1"),)
    run = simulate(attrs.evolve(SCENARIO, events=events, settle_ms=1_000))
    assert {one.checker for one in run.violations} == {"rest"}


def missed(identity: Identity, added_ms: int) -> Scenario:
    """The leader comes back with its identity and without a round, and partitions are added."""
    return Scenario(
        duration_ms=60_000,
        settle_ms=60_000,
        group=Group(
            policy=Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 20_000}),
            session_timeout_ms=10_000,
        ),
        topics=(Topic(name="T", partitions=6, rate_per_s=(20.0,) * 6),),
        members=(MemberSet(name="w", count=3, topics=("T",), identity=identity),),
        events=(
            Crash(at_ms=30_000, member="leader", back_after_ms=2_000),
            AddPartitions(at_ms=added_ms, topic="T", rate_per_s=(20.0,) * 6),
        ),
    )


@pytest.mark.parametrize("added_ms", [31_000, 50_000], ids=["while it was away", "afterwards"])
@pytest.mark.parametrize("identity", [Identity.STATE_DIR, Identity.STATIC])
def test_leader_that_came_back_without_a_round_still_looks_after_its_topics(
    identity: Identity, added_ms: int
) -> None:
    """The known topics are in its state directory. A static leader looks them up (KIP-814).

    It compares the metadata with the catalogue of its former life, kept or in the note.
    """
    run = simulate(missed(identity, added_ms), seed=1)
    assert run.violations == ()
    assert run.measures.moved == 0 or added_ms == 31_000


def test_run_watches_what_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[HandOvers] = []

    def watch(simulation: Simulation, transcript: Transcript | None) -> HandOvers:
        watched.append(HandOvers(simulation, transcript))
        return watched[-1]

    monkeypatch.setattr(run_module, "HandOvers", watch)
    simulate(SCENARIO, seed=1)
    (only,) = watched
    listens: object = only.simulation.world.transcript
    assert listens is only
