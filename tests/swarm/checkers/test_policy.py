"""The rules of a policy, on a whole run."""

import attrs

from coopgroup.simulator import Choice, Group, MemberSet, Scale, Scenario, Topic, simulate
from tests.swarm.checkers.policy import check_policy_of

SCENARIO = Scenario(
    duration_ms=60_000,
    group=Group(policy=Choice(name="simple"), assignor=Choice(name="sticky")),
    topics=(Topic(name="T", partitions=12, rate_per_s=(1.0,) * 12),),
    members=(MemberSet(name="w", count=3, topics=("T",)),),
    events=(Scale(at_ms=20_000, members="w", to=4),),
)


def test_policy_that_breaks_its_rule_is_found() -> None:
    """The run of a policy without a ration is judged as a run of a policy with one."""
    run = simulate(SCENARIO)
    assert (*run.violations, *check_policy_of(run)) == ()
    options = {"max_moves_per_round": 1, "move_interval_ms": 1_000}
    group = attrs.evolve(SCENARIO.group, policy=Choice(name="incremental", options=options))
    lying = attrs.evolve(run, scenario=attrs.evolve(run.scenario, group=group))
    assert {one.checker for one in check_policy_of(lying)} == {"ration"}
