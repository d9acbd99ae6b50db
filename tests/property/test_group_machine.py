"""Hypothesis plays a group: several sessions, a model coordinator, and any event.

Each rule is followed by a safety check for every instant until then. At the end all faults are
repaired, and the group must come to rest. `test_group_swarm` plays more and longer runs; this
machine shrinks them.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coopgroup.member import MemberState
from coopgroup.simulator.checkers import check_instants
from coopgroup.simulator.host.process import Process
from coopgroup.simulator.scenario import Choice, Identity
from coopgroup.simulator.transcript import Transcript
from coopgroup.simulator.world.brokers import NODES
from tests.support.group_swarm import (
    PROCESSES_MAX,
    STORY_LINES_MAX,
    set_topics,
    settle,
    small_group,
)

POLICIES = st.sampled_from(
    (
        Choice(name="simple"),
        Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 700}),
        Choice(
            name="incremental",
            options={
                "scheduled_rebalance_timeout_ms": 700,
                "max_moves_per_round": 1,
                "move_interval_ms": 100,
            },
        ),
    )
)
TOPICS = st.sampled_from((("T",), ("T",), ("T", "U"), ("U",)))
TIMES_MS = st.sampled_from((1, 5, 20, 60, 150, 400, 700, 1_600))
DOWN_MS = st.sampled_from((0, 20, 200, 800))
CHOICE = st.integers(min_value=0, max_value=PROCESSES_MAX - 1)


class GroupMachine(RuleBasedStateMachine):
    """A group whose events Hypothesis chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = small_group(seed=0, policy=Choice(name="simple"))
        self.transcript = Transcript()
        self.started = 0

    @initialize(
        seed=st.integers(0, 1_000),
        policy=POLICIES,
        loss=st.sampled_from((0.0, 0.0, 0.05)),
        delay_ms_max=st.sampled_from((2, 10, 40)),
        slow=st.sampled_from((0.0, 0.3)),
        assignor=st.sampled_from(("sticky", "lag-aware")),
        count=st.integers(1, 4),
    )
    def begin(
        self,
        *,
        seed: int,
        policy: Choice,
        loss: float,
        delay_ms_max: int,
        slow: float,
        assignor: str,
        count: int,
    ) -> None:
        """Draw the fault rates, and start some processes."""
        self.simulation = small_group(
            seed=seed,
            policy=policy,
            assignor=assignor,
            loss=loss,
            delay_ms_max=delay_ms_max,
            slow=slow,
            slow_ms_max=2_000,
            no_metadata=loss,
        )
        self.simulation.world.transcript = self.transcript
        set_topics(self.simulation, {"T": 4, "U": 2})
        for _ in range(count):
            self.start(topics=("T",), static=False)

    def one(self, choice: int) -> Process:
        """Draw a living process."""
        alive = self.simulation.alive
        return alive[choice % len(alive)]

    def start(self, *, topics: tuple[str, ...], static: bool) -> None:
        self.started += 1
        identity = Identity.STATIC if static else Identity.NONE
        self.simulation.start(f"p{self.started}", topics, identity=identity)

    def story(self, violations: object) -> str:
        """Return the violation and the events until then."""
        return "\n".join([str(violations), *self.transcript.lines[-STORY_LINES_MAX:]])

    @precondition(lambda self: len(self.simulation.alive) < PROCESSES_MAX)
    @rule(topics=TOPICS, static=st.booleans())
    def start_process(self, *, topics: tuple[str, ...], static: bool) -> None:
        self.start(topics=topics, static=static)

    @rule(duration_ms=TIMES_MS)
    def pass_time(self, duration_ms: int) -> None:
        self.simulation.run(duration_ms)

    @precondition(lambda self: self.simulation.alive)
    @rule(choice=CHOICE)
    def leave(self, choice: int) -> None:
        self.one(choice).close()

    @precondition(lambda self: self.simulation.alive)
    @rule(choice=CHOICE)
    def crash(self, choice: int) -> None:
        self.one(choice).crash()

    @precondition(lambda self: self.simulation.alive)
    @rule(choice=CHOICE, down_ms=st.sampled_from((1, 200, 1_500)))
    def bounce(self, choice: int, down_ms: int) -> None:
        """Kill a process and restart it, with the same static id if it has one."""
        self.simulation.bounce(self.one(choice), down_ms)

    @precondition(lambda self: self.simulation.alive)
    @rule(choice=CHOICE)
    def stall(self, choice: int) -> None:
        """Let an application exceed `max.poll.interval.ms`."""
        self.one(choice).stall()

    @precondition(lambda self: self.simulation.alive)
    @rule(choice=CHOICE)
    def freeze_or_thaw(self, choice: int) -> None:
        """Send SIGSTOP, or SIGCONT to a frozen process."""
        process = self.one(choice)
        if process.paused:
            process.resume()
        else:
            process.pause()

    @precondition(lambda self: self.simulation.alive)
    @rule(choice=CHOICE, for_ms=TIMES_MS)
    def cut_off(self, choice: int, for_ms: int) -> None:
        """Cut the network of a process for some time."""
        self.simulation.cut(self.one(choice), for_ms)

    @rule(node=st.sampled_from(NODES), down_ms=DOWN_MS)
    def move_coordinator(self, node: int, down_ms: int) -> None:
        """Move the coordinator, or restart it after some time."""
        self.simulation.move_coordinator(node, down_ms)

    @rule(partitions=st.integers(1, 6), others=st.integers(0, 3))
    def change_metadata(self, partitions: int, others: int) -> None:
        """Add or remove partitions and whole topics."""
        set_topics(self.simulation, {"T": partitions, "U": others})

    @invariant()
    def is_safe(self) -> None:
        """No partition has two owners, commits ascend, retained resources are not interrupted."""
        violations = (
            *self.simulation.world.violations,
            *check_instants(
                self.simulation.world.telemetry,
                stop_max_ms=self.simulation.config.rebalance_timeout_ms,
            ),
        )
        assert violations == (), self.story(violations)

    @invariant()
    def nobody_fails(self) -> None:
        """None of these events is an error that a retry cannot repair."""
        alive = [p for p in self.simulation.alive if not p.is_static]
        assert {p.name: p.failed for p in alive if p.failed} == {}
        assert MemberState.FAILED not in {p.session.member.state for p in alive}

    def teardown(self) -> None:
        """Repair all faults: the group comes to rest."""
        violations = settle(self.simulation)
        assert violations == (), self.story(violations)


@pytest.mark.stateful
@pytest.mark.timeout(600)
def test_group_whatever_happens_is_safe_and_comes_to_rest() -> None:
    run_state_machine_as_test(GroupMachine, settings=settings(stateful_step_count=25))
