"""Hypothesis plays a group: several sessions, a model coordinator, and everything that can happen.

Safety is checked after every event (`check_instant`); at the end everything is healed, and the
group must come to rest. `test_group_swarm` plays more and longer runs; this machine shrinks them.
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
from tests.support.group_checkers import check_heals, check_instant
from tests.support.group_harness import NODES, Faults, GroupHarness, Process

PROCESSES_MAX = 5
TOPICS = st.sampled_from((("T",), ("T",), ("T", "U"), ("U",)))
TIMES_MS = st.sampled_from((1, 5, 20, 60, 150, 400, 700, 1_600))
DOWN_MS = st.sampled_from((0, 20, 200, 800))
CHOICE = st.integers(min_value=0, max_value=PROCESSES_MAX - 1)


class GroupMachine(RuleBasedStateMachine):
    """A group whose fate Hypothesis decides."""

    def __init__(self) -> None:
        """Begin without a member."""
        super().__init__()
        self.harness = GroupHarness()
        self.started = 0

    @initialize(
        seed=st.integers(0, 1_000),
        lost=st.sampled_from((0.0, 0.0, 0.05)),
        delay_ms_max=st.sampled_from((2, 10, 40)),
        slow=st.sampled_from((0.0, 0.3)),
        sticky=st.booleans(),
        count=st.integers(1, 4),
    )
    def begin(
        self, *, seed: int, lost: float, delay_ms_max: int, slow: float, sticky: bool, count: int
    ) -> None:
        """Draw how badly things go, and start some processes."""
        faults = Faults(
            lost_request=lost,
            lost_answer=lost,
            delay_ms_max=delay_ms_max,
            slow_revoke=slow,
            slow_ms_max=2_000,
            no_metadata=lost,
            hasty_revoke=slow,
            late_commit=slow,
        )
        self.harness = GroupHarness(
            seed=seed,
            faults=faults,
            topics={"T": 4, "U": 2},
            sticky=sticky,
            check=check_instant,
        )
        for _ in range(count):
            self.start(topics=("T",), static=False)

    def one(self, choice: int) -> Process:
        """A living process."""
        alive = self.harness.alive
        return alive[choice % len(alive)]

    def start(self, *, topics: tuple[str, ...], static: bool) -> None:
        """One more process."""
        self.started += 1
        self.harness.start(f"p{self.started}", topics, static=static)

    @precondition(lambda self: len(self.harness.alive) < PROCESSES_MAX)
    @rule(topics=TOPICS, static=st.booleans())
    def start_process(self, *, topics: tuple[str, ...], static: bool) -> None:
        """A process starts."""
        self.start(topics=topics, static=static)

    @rule(duration_ms=TIMES_MS)
    def pass_time(self, duration_ms: int) -> None:
        """Time passes."""
        self.harness.run(duration_ms)

    @precondition(lambda self: self.harness.alive)
    @rule(choice=CHOICE)
    def leave(self, choice: int) -> None:
        """A consumer is closed."""
        self.harness.leave(self.one(choice))

    @precondition(lambda self: self.harness.alive)
    @rule(choice=CHOICE)
    def crash(self, choice: int) -> None:
        """A process is killed."""
        self.harness.crash(self.one(choice))

    @precondition(lambda self: self.harness.alive)
    @rule(choice=CHOICE, down_ms=st.sampled_from((1, 200, 1_500)))
    def bounce(self, choice: int, down_ms: int) -> None:
        """A process is killed and comes back, with the same static id if it has one."""
        self.harness.bounce(self.one(choice), down_ms)

    @precondition(lambda self: self.harness.alive)
    @rule(choice=CHOICE)
    def stall(self, choice: int) -> None:
        """An application exceeds `max.poll.interval.ms`."""
        self.harness.stall(self.one(choice))

    @precondition(lambda self: self.harness.alive)
    @rule(choice=CHOICE)
    def freeze_or_thaw(self, choice: int) -> None:
        """SIGSTOP, or SIGCONT for one that is frozen."""
        process = self.one(choice)
        if process.paused:
            self.harness.resume(process)
        else:
            self.harness.pause(process)

    @rule(node=st.sampled_from(NODES), down_ms=DOWN_MS)
    def move_coordinator(self, node: int, down_ms: int) -> None:
        """The coordinator moves, or restarts after a while."""
        self.harness.move_coordinator(node, down_ms)

    @rule(partitions=st.integers(1, 6), others=st.integers(0, 3))
    def change_metadata(self, partitions: int, others: int) -> None:
        """Partitions appear or vanish, and whole topics with them."""
        self.harness.change_metadata({"T": partitions, **({"U": others} if others else {})})

    @invariant()
    def is_safe(self) -> None:
        """Never two owners, commits ascend, retained resources are left alone."""
        check_instant(self.harness)

    @invariant()
    def nobody_fails(self) -> None:
        """None of all this is an error that no retry mends."""
        alive = [p for p in self.harness.alive if not p.is_static]
        assert {p.name: p.failed for p in alive if p.failed} == {}
        assert MemberState.FAILED not in {p.session.member.state for p in alive}

    def teardown(self) -> None:
        """Heal everything: the group comes to rest."""
        check_heals(self.harness)


@pytest.mark.stateful
@pytest.mark.timeout(600)
def test_group_whatever_happens_is_safe_and_comes_to_rest() -> None:
    """Rules in any order, then peace."""
    run_state_machine_as_test(GroupMachine, settings=settings(stateful_step_count=25))
