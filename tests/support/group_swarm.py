"""Groups under random faults, each from one seed: what a run is, drawn, played and checked.

Every seed first draws how badly things go (swarm testing), then plays, then heals everything and
lets virtual time pass until the group is at rest. All that is checked stands in
`coopgroup.simulator.checkers`; a run has no violations, or it prints its seed and its story.
"""

import random
from typing import Final

import attrs

from coopgroup.assignors.registry import create_assignor
from coopgroup.member import MemberConfig
from coopgroup.policies.registry import create_policy
from coopgroup.simulator.brokers import NODES
from coopgroup.simulator.checkers import Expectations, check_run
from coopgroup.simulator.process import Habits, Process
from coopgroup.simulator.scenario import Choice, Cost, Identity, Span
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.transcript import Transcript
from coopgroup.simulator.world import Violation

CONFIG: Final = MemberConfig(
    group_id="g",
    session_timeout_ms=600,
    rebalance_timeout_ms=1_500,
    heartbeat_interval_ms=150,
    retry_backoff_ms=20,
    retry_backoff_max_ms=100,
    request_timeout_ms=300,
)
HEALED_WITHIN_MS: Final = 9_000
"""A session, two rebalance time-outs of a member that nobody waits for, and some."""
QUIET_MS: Final = 1_000
RATE_PER_S: Final = 50.0
PROCESSES_MAX: Final = 5
STORY_LINES_MAX: Final = 80
SUBSCRIPTIONS: Final = (("T",), ("T",), ("T", "U"), ("U",))
ACTS: Final = (
    "start",
    "start static",
    "leave",
    "crash",
    "bounce",
    "stall",
    "pause",
    "resume",
    "cut",
    "move coordinator",
    "restart coordinator",
    "change metadata",
)


def small_group(
    *,
    seed: int,
    policy: Choice,
    assignor: str = "sticky",
    config: MemberConfig = CONFIG,
    loss: float = 0.0,
    delay_ms_max: int = 5,
    slow: float = 0.0,
    slow_ms_max: int = 400,
    no_metadata: float = 0.0,
) -> Simulation:
    """A group whose time-outs are short, so that much happens in little virtual time."""
    habits = Habits(
        assignor=create_assignor(assignor),
        policy=create_policy(policy.name, policy.options),
        lead_ms=Span(1, slow_ms_max if slow else 10),
        retry_ms=200,
        jitter_ms=10,
        no_metadata=no_metadata,
    )
    simulation = Simulation.create(
        config=config,
        habits=habits,
        seed=seed,
        delay_ms=Span(1, delay_ms_max),
        loss=loss,
        costs=(Cost(stop_ms=Span(1, 10), restore_ms=Span(0, 10)),),
        commit_interval_ms=100,
    )
    simulation.costs.slow, simulation.costs.slow_ms = slow, Span(1, slow_ms_max)
    return simulation


def set_topics(simulation: Simulation, counts: dict[str, int]) -> None:
    """Topics and partitions appear or vanish."""
    for name in sorted({*counts, *simulation.brokers.topics}):
        count = counts.get(name, 0)
        before = simulation.brokers.topics.get(name, 0)
        if count != before:
            fresh = count - before if count > before else count
            simulation.set_topic(name, count, (RATE_PER_S,) * fresh)


def settle(simulation: Simulation) -> tuple[Violation, ...]:
    """Heal everything, let the group come to rest, and say what was wrong with the whole run.

    Nothing is produced any more: as long as lags change, so may the target of an assignor that goes
    by them, and with it what rest would be.
    """
    policy = simulation.habits.policy
    simulation.habits.lead_ms = Span(1, 10)
    simulation.heal()
    for name, count in simulation.brokers.topics.items():
        simulation.set_rate(name, tuple(range(count)), 0)
    calm_from_ms = simulation.world.now_ms
    delay_ms = getattr(policy, "scheduled_rebalance_timeout_ms", None)
    ration = getattr(policy, "ration", None)
    more_ms = 2 * (delay_ms or 0) + (10 * ration.interval_ms if ration else 0)
    simulation.run_until_rest(HEALED_WITHIN_MS + more_ms, QUIET_MS)
    end_ms = simulation.world.now_ms
    topics = {topic for process in simulation.alive for topic in process.topics}
    expected = Expectations(
        owned=simulation.brokers.existing().restrict_names(topics),
        calm_from_ms=calm_from_ms,
        quiet_from_ms=end_ms - QUIET_MS + 1,
        end_ms=end_ms,
        slack_ms=HEALED_WITHIN_MS,
        delay_ms=delay_ms,
        max_moves_per_round=ration.moves_max if ration else None,
    )
    found = check_run(simulation.world.telemetry, expected)
    return (*simulation.world.violations, *found)


def drawn_policy(chance: random.Random) -> Choice:
    """One of the policies, with short times."""
    delay_ms = chance.choice((0, 300, 1_500))
    match chance.choice(("simple", "deferred", "incremental")):
        case "deferred":
            options = {"scheduled_rebalance_timeout_ms": delay_ms}
            return Choice(name="deferred", options=options)
        case "incremental":
            return Choice(
                name="incremental",
                options={
                    "scheduled_rebalance_timeout_ms": delay_ms,
                    "max_moves_per_round": chance.choice((1, 2)),
                    "move_interval_ms": chance.choice((0, 200)),
                },
            )
        case _:
            return Choice(name="simple")


@attrs.define(kw_only=True)
class Swarm:
    """Draws what happens next; which kinds of things can happen at all is drawn once.

    Attributes:
        seed: everything follows from it.
        simulation: the group.
        chance: its dice.
        acts: what can happen in this run.
        started: count of processes so far.
    """

    seed: int
    simulation: Simulation
    chance: random.Random
    acts: tuple[str, ...]
    started: int = 0

    @classmethod
    def from_seed(cls, seed: int, policy: Choice | None = None) -> "Swarm":
        """Draw a run.

        Args:
            seed: of everything that happens by chance.
            policy: None for any.
        """
        chance = random.Random(f"swarm-{seed}")
        config = attrs.evolve(CONFIG, rebalance_timeout_ms=chance.choice((600, 1_500, 3_000)))
        drawn = drawn_policy(chance)
        simulation = small_group(
            seed=seed,
            policy=drawn if policy is None else policy,
            assignor="sticky" if chance.random() < 0.7 else "lag-aware",
            config=config,
            loss=chance.choice((0, 0, 0.02, 0.1)),
            delay_ms_max=chance.choice((2, 10, 40)),
            slow=chance.choice((0, 0.2, 0.5)),
            slow_ms_max=chance.choice((100, 400, 2_000)),
            no_metadata=chance.choice((0, 0, 0.1)),
        )
        acts = tuple(act for act in ACTS if chance.random() < 0.6) or ACTS
        swarm = cls(seed=seed, simulation=simulation, chance=chance, acts=acts)
        set_topics(simulation, {"T": chance.randint(1, 6), "U": chance.randint(1, 3)})
        return swarm

    def play(self) -> tuple[Violation, ...]:
        """Some processes, then some acts, with some time between them; then peace."""
        chance, simulation = self.chance, self.simulation
        for _ in range(chance.randint(1, 4)):
            self.start(Identity.NONE)
        for _ in range(chance.randint(3, 12)):
            simulation.run(chance.choice((5, 30, 100, 300, 900)))
            self.act(chance.choice(self.acts))
        simulation.run(chance.choice((5, 300)))
        return settle(simulation)

    def act(self, act: str) -> None:
        """One thing happens."""
        simulation, chance = self.simulation, self.chance
        match act:
            case "start":
                self.start(Identity.NONE)
            case "start static":
                self.start(Identity.STATIC)
            case "move coordinator":
                simulation.move_coordinator(chance.choice(NODES))
            case "restart coordinator":
                simulation.move_coordinator(chance.choice(NODES), chance.choice((20, 200, 800)))
            case "change metadata":
                others = {"U": 2} if chance.random() < 0.7 else {}
                set_topics(simulation, {"T": chance.randint(1, 6), **others})
            case _ if simulation.alive:
                self.happen_to(chance.choice(simulation.alive), act)
            case _:
                pass

    def happen_to(self, process: Process, act: str) -> None:
        """One thing happens to one process."""
        match act:
            case "leave":
                process.close()
            case "crash":
                process.crash()
            case "bounce":
                self.simulation.bounce(process, self.chance.choice((1, 200, 1_500)))
            case "stall":
                process.stall()
            case "cut":
                self.simulation.cut(process, self.chance.choice((50, 500, 2_000)))
            case "pause":
                process.pause()
            case _:
                process.resume()

    def start(self, identity: Identity) -> None:
        """One more process."""
        if len(self.simulation.alive) < PROCESSES_MAX:
            self.started += 1
            topics = self.chance.choice(SUBSCRIPTIONS)
            self.simulation.start(f"p{self.started}", topics, identity=identity)


def story(seed: int, violations: tuple[Violation, ...]) -> str:
    """What went wrong, and what happened until then; plays the run once more."""
    swarm = Swarm.from_seed(seed)
    swarm.simulation.world.transcript = transcript = Transcript()
    swarm.play()
    first = violations[0]
    until = [line for line in transcript.lines if float(line.split()[0]) <= first.at_ms / 1_000]
    policy = swarm.simulation.habits.policy
    return "\n".join(
        [f"SEED={seed} {policy}", *until[-STORY_LINES_MAX:], *(str(one) for one in violations)]
    )
