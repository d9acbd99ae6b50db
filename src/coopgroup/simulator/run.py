"""`simulate`: play a scenario with a policy, an assignor and a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from attrs import frozen

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.registry import create_assignor
from coopgroup.core.member import MemberConfig
from coopgroup.core.policies.built_in import SimplePolicy, create_policy
from coopgroup.core.policies.policy import Policy
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.simulator.checkers import Expectations, check_run
from coopgroup.simulator.coordinator import GroupCoordinator
from coopgroup.simulator.deployment import Deployment
from coopgroup.simulator.hand_overs import HandOvers
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.measures import Measures, measure, window_begin_ms
from coopgroup.simulator.scenario import BY_BROKER, Choice, Group, Scenario
from coopgroup.simulator.simulation import Simulation, broker_settings
from coopgroup.simulator.transcript import Transcript
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import Envelope

_SAMPLES: Final = 300
_SAMPLE_MS_MIN: Final = 100
# At the end of a run the group must have been settled for this part of the settling time, or for
# the following time.
_QUIET_SHARE: Final = 8
_QUIET_MS_MAX: Final = 5_000
_EAGER: Final = "eager"
_ASSIGNMENT_INTERVAL_MS: Final = 1_000


@frozen(kw_only=True, eq=False)
class Run:
    """A simulated run.

    Attributes:
        scenario: the scenario, with the policy and the assignor of the run.
        telemetry: all records in order of time, in virtual ms.
        transcript: readable lines; empty if not wanted.
    """

    scenario: Scenario
    policy: str
    assignor: str
    seed: int
    telemetry: tuple[Envelope, ...]
    transcript: tuple[str, ...]
    violations: tuple[Violation, ...]
    lag: LagHistory
    measures: Measures

    @property
    def begin_ms(self) -> int:
        """Begin of the window that the measures cover; needs the telemetry."""
        return window_begin_ms(self.scenario, self.telemetry)


def simulate(
    scenario: Scenario,
    *,
    policy: Policy | Choice | str | None = None,
    assignor: Assignor | Choice | str | None = None,
    seed: int | None = None,
    transcript: bool = False,
) -> Run:
    """Play a scenario.

    Args:
        scenario: the scenario.
        policy: replaces the scenario's policy: a policy, a `Choice` of name and options, or a name.
            A name alone gets the scenario's options for it. `BY_BROKER`, or its name, gives the
            members the group protocol `consumer` instead.
        assignor: replaces the scenario's assignor, in the same forms.
        seed: seed of all random events, None for 0.
        transcript: whether to write readable lines, which takes time.

    Raises:
        ConfigurationError: a policy, an assignor or an option is unknown, or the settings of the
            group contradict each other.
    """
    scenario = _with_choices(scenario, policy, assignor)
    seed = 0 if seed is None else seed
    group = scenario.group
    when = _created(group.policy) if policy is None or isinstance(policy, Choice | str) else policy
    where = (
        create_assignor(group.assignor.name, group.assignor.options)
        if assignor is None or isinstance(assignor, Choice | str)
        else assignor
    )
    config = attrs.evolve(member_config(group), index_min=scenario.shares.index_min)
    broker = broker_settings(config, assignment_interval_ms=_ASSIGNMENT_INTERVAL_MS)
    simulation = Simulation.create(
        config=config,
        run_settings=RunSettings(assignor=where, policy=when),
        seed=seed,
        delay_ms=scenario.network.delay_ms,
        loss=scenario.network.loss,
        costs=scenario.costs,
        commit_interval_ms=group.commit_interval_ms,
        coordinator=GroupCoordinator(settings=broker),
    )
    if scenario.bell is not None:
        simulation.hang_bell(scenario.bell)
    written = Transcript() if transcript else None
    # It observes the run in place of a transcript, and forwards every event to the transcript.
    simulation.world.transcript = HandOvers(simulation, written)
    Deployment(scenario, simulation).plan()
    _play(scenario, simulation)
    telemetry = tuple(simulation.world.telemetry)
    lag = simulation.load.history()
    found = check_run(telemetry, _expectations(scenario, when, simulation))
    broken = sorted((*simulation.world.violations, *found), key=lambda one: one.at_ms)
    return Run(
        scenario=scenario,
        policy=group.policy.name,
        assignor=group.assignor.name,
        seed=seed,
        telemetry=telemetry,
        transcript=() if written is None else tuple(written.lines),
        violations=tuple(broken),
        lag=lag,
        measures=measure(scenario, telemetry, lag),
    )


def member_config(group: Group) -> MemberConfig:
    """Return the configuration of a member.

    The eager baseline needs members that give up everything before they join.
    """
    return MemberConfig(
        group_id="group",
        session_timeout_ms=group.session_timeout_ms,
        rebalance_timeout_ms=group.rebalance_timeout_ms,
        heartbeat_interval_ms=group.heartbeat_interval_ms,
        window_heartbeat_interval_ms=group.window_heartbeat_interval_ms,
        eager=group.policy.name == _EAGER,
    )


def _with_choices(
    scenario: Scenario,
    policy: Policy | Choice | str | None,
    assignor: Assignor | Choice | str | None,
) -> Scenario:
    if policy is not None:
        scenario = scenario.with_policy(_choice_of(policy, scenario.policy_named))
    group = scenario.group
    if assignor is not None:
        own = group.assignor
        group = attrs.evolve(
            group,
            assignor=_choice_of(
                assignor, lambda name: own if own.name == name else Choice(name=name)
            ),
        )
    return attrs.evolve(scenario, group=group)


def _created(choice: Choice) -> Policy:
    """Return the policy of a choice; no member asks for one where the broker assigns."""
    if choice == BY_BROKER:
        return SimplePolicy()
    return create_policy(choice.name, choice.options)


def _choice_of(given: Policy | Assignor | Choice | str, named: Callable[[str], Choice]) -> Choice:
    """Return the choice of a run; an object is shown by its attribute `name`."""
    if isinstance(given, str):
        return named(given)
    return given if isinstance(given, Choice) else Choice(name=given.name)


def _play(scenario: Scenario, simulation: Simulation) -> None:
    step_ms = max(_SAMPLE_MS_MIN, -(-scenario.end_ms // _SAMPLES))
    for at_ms in (*range(0, scenario.end_ms, step_ms), scenario.end_ms):
        simulation.world.run(at_ms)
        simulation.load.sample(at_ms)


def _expectations(scenario: Scenario, policy: Policy, simulation: Simulation) -> Expectations:
    topics = {topic for process in simulation.alive for topic in process.topics}
    topics |= {topic for process in simulation.guests_alive for topic in process.topics}
    quiet_ms = min(_QUIET_MS_MAX, scenario.settle_ms // _QUIET_SHARE)
    group = scenario.group
    return Expectations(
        owned=simulation.brokers.existing().restrict_names(topics),
        quiet_from_ms=scenario.end_ms - quiet_ms,
        end_ms=scenario.end_ms,
        slack_ms=group.session_timeout_ms + 2 * group.rebalance_timeout_ms,
        stop_max_ms=group.rebalance_timeout_ms,
        is_eager=policy.name == _EAGER,
        with_rounds=not simulation.guests and all(one.is_led for one in simulation.processes),
    )
