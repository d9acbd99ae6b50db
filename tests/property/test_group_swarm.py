"""Groups under random faults, each from one seed: safe at any instant, at rest once healed.

Every seed first draws how badly things go (swarm testing), then plays, then heals everything and
lets virtual time pass. A failure prints its seed and the story; to see it again:

    pytest tests/property/test_group_swarm.py -k "[17]"

`SWARM_SEEDS` and `SWARM_FIRST_SEED` in the environment choose others.
"""

import os
import random

import attrs
import pytest

from tests.support.group_checkers import check_heals, check_instant
from tests.support.group_harness import CONFIG, NODES, Faults, GroupHarness, Process

FIRST_SEED = int(os.environ.get("SWARM_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("SWARM_SEEDS", "300"))
PROCESSES_MAX = 5
SUBSCRIPTIONS = (("T",), ("T",), ("T", "U"), ("U",))


def drawn_harness(chance: random.Random, seed: int) -> GroupHarness:
    """A group with faults of its own."""
    faults = Faults(
        lost_request=chance.choice((0, 0, 0.02, 0.1)),
        lost_answer=chance.choice((0, 0, 0.02, 0.1)),
        delay_ms_max=chance.choice((2, 10, 40)),
        slow_revoke=chance.choice((0, 0.2, 0.5)),
        slow_ms_max=chance.choice((100, 400, 2_000)),
        no_metadata=chance.choice((0, 0, 0.1)),
        hasty_revoke=chance.choice((0, 0.5)),
        late_commit=chance.choice((0, 0.5)),
    )
    config = attrs.evolve(CONFIG, rebalance_timeout_ms=chance.choice((600, 1_500, 3_000)))
    return GroupHarness(
        seed=seed,
        config=config,
        faults=faults,
        topics={"T": chance.randint(1, 6), "U": chance.randint(1, 3)},
        sticky=chance.random() < 0.7,
        check=check_instant,
    )


ACTS = (
    "start",
    "start static",
    "leave",
    "crash",
    "bounce",
    "stall",
    "pause",
    "resume",
    "move coordinator",
    "restart coordinator",
    "change metadata",
)


@attrs.define(kw_only=True)
class Swarm:
    """Draws what happens next; which kinds of things can happen at all is drawn once.

    Attributes:
        harness: the group.
        chance: its dice.
        acts: what can happen in this run.
        started: count of processes so far.
    """

    harness: GroupHarness
    chance: random.Random
    acts: tuple[str, ...]
    started: int = 0

    @classmethod
    def from_seed(cls, seed: int) -> "Swarm":
        """Everything follows from the seed."""
        chance = random.Random(f"swarm-{seed}")
        harness = drawn_harness(chance, seed)
        acts = tuple(act for act in ACTS if chance.random() < 0.6) or ACTS
        return cls(harness=harness, chance=chance, acts=acts)

    def play(self) -> None:
        """Some processes, then some acts, with some time between them."""
        for _ in range(self.chance.randint(1, 4)):
            self.start(static=False)
        for _ in range(self.chance.randint(3, 12)):
            self.harness.run(self.chance.choice((5, 30, 100, 300, 900)))
            self.act(self.chance.choice(self.acts))
        self.harness.run(self.chance.choice((5, 300)))

    def act(self, act: str) -> None:
        """One thing happens."""
        harness, chance = self.harness, self.chance
        match act:
            case "start":
                self.start(static=False)
            case "start static":
                self.start(static=True)
            case "move coordinator":
                harness.move_coordinator(chance.choice(NODES))
            case "restart coordinator":
                harness.move_coordinator(chance.choice(NODES), chance.choice((20, 200, 800)))
            case "change metadata":
                others = {"U": 2} if chance.random() < 0.7 else {}
                harness.change_metadata({"T": chance.randint(1, 6), **others})
            case _ if harness.alive:
                self.happen_to(chance.choice(harness.alive), act)
            case _:
                pass

    def happen_to(self, process: Process, act: str) -> None:
        """One thing happens to one process."""
        harness = self.harness
        match act:
            case "leave":
                harness.leave(process)
            case "crash":
                harness.crash(process)
            case "bounce":
                harness.bounce(process, self.chance.choice((1, 200, 1_500)))
            case "stall":
                harness.stall(process)
            case "pause":
                harness.pause(process)
            case _:
                harness.resume(process)

    def start(self, *, static: bool) -> None:
        """One more process."""
        if len(self.harness.alive) < PROCESSES_MAX:
            self.started += 1
            topics = self.chance.choice(SUBSCRIPTIONS)
            self.harness.start(f"p{self.started}", topics, static=static)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_group_when_faults_end_is_at_rest(seed: int) -> None:
    """Never two owners, whatever happens; all owned once, and quiet, soon after it ended."""
    swarm = Swarm.from_seed(seed)
    swarm.play()
    check_heals(swarm.harness)
