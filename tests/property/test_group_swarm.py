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

from tests.support.group_checkers import check_at_rest, check_instant
from tests.support.group_harness import CONFIG, NODES, Faults, GroupHarness

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


class Swarm:
    """Draws what happens next."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"swarm-{seed}")
        self.harness = drawn_harness(self.chance, seed)
        self.names = 0
        acts = ("join", "static", "leave", "crash", "bounce", "stall", "pause", "resume", "move",
                "restart", "metadata")
        self.acts = [act for act in acts if self.chance.random() < 0.6] or ["join"]

    def play(self) -> None:
        harness = self.harness
        for _ in range(self.chance.randint(1, 3)):
            self.act("join")
        for _ in range(self.chance.randint(3, 12)):
            harness.run(self.chance.choice((5, 30, 100, 300, 900)))
            self.act(self.chance.choice(self.acts))
        harness.run(self.chance.choice((5, 300)))

    def act(self, act: str) -> None:
        harness, chance = self.harness, self.chance
        alive = harness.alive
        one = chance.choice(alive) if alive else None
        if act in ("join", "static"):
            if len(alive) < PROCESSES_MAX:
                self.names += 1
                harness.start(f"p{self.names}", chance.choice(SUBSCRIPTIONS), static=act == "static")
        elif act == "move":
            harness.move_coordinator(chance.choice([n for n in NODES if n != harness.node]))
        elif act == "restart":
            harness.move_coordinator(chance.choice(NODES), chance.choice((20, 200, 800)))
        elif act == "metadata":
            harness.change_metadata({"T": chance.randint(1, 6), **({"U": 2} if chance.random() < 0.7 else {})})
        elif one is None:
            return
        elif act == "leave":
            harness.leave(one)
        elif act == "crash":
            harness.crash(one)
        elif act == "bounce":
            harness.crash(one)
            config = one.session.member.config
            topics = one.session.member.topics
            harness.later(chance.choice((1, 200, 1500)), lambda: topics and harness.start(one.name, topics, static=config.instance_id is not None))
        elif act == "stall":
            if not one.paused:
                harness.stall(one)
        elif act == "pause":
            harness.pause(one)
        elif act == "resume":
            if one.paused:
                harness.resume(one)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_group_when_faults_end_is_at_rest(seed: int) -> None:
    """Never two owners, whatever happens; all owned once, and quiet, soon after it ended."""
    swarm = Swarm(seed)
    harness = swarm.harness
    swarm.play()
    harness.heal()
    harness.run(6_000)
    check_at_rest(harness)
    generation = harness.coordinator.generation
    harness.run(1_000)
    assert harness.coordinator.generation == generation
    check_at_rest(harness)
