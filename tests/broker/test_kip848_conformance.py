"""The simulator's group with members of KIP-848 against a real one: the same story and moves.

Member ids, epochs and the partitions themselves may differ: Kafka's uniform assignor promises
sizes. Compared are the states in which the group comes to rest: how many partitions each member
has, how many of them it had before, and whether the broker assigns.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from attrs import define, field

from coopgroup import CooperativeConsumer
from coopgroup.core.assignors.registry import create_assignor
from coopgroup.core.member import MemberConfig
from coopgroup.core.policies.built_in import create_policy
from coopgroup.simulator.coordinator import GroupCoordinator
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.simulation import Simulation, broker_settings
from coopgroup.testing import KafkaCluster
from tests.support.mixed_group import FAST_BROKER, PARTITIONS, MixedGroup

STORY = (
    ("join", "a"),
    ("visit", "k"),
    ("join", "b"),
    ("leave", "a"),
    ("leave", "k"),
    ("visit", "l"),
    ("visit", "m"),
    ("leave", "b"),
    ("join", "c"),
    ("leave", "l"),
    ("leave", "m"),
)
"""Up to three members, so that their sizes are certain. The group is converted twice each way."""

Shares = Mapping[str, frozenset[int]]


class Player(Protocol):
    """A group that plays a story: a real one, or the simulated one."""

    def play(self, act: str, name: str) -> tuple[Shares, bool | None]:
        """Play an act; return the shares at rest, and whether the broker assigns, if ours say."""
        ...


@define(eq=False)
class Real:
    group: MixedGroup
    ours: dict[str, CooperativeConsumer] = field(factory=dict)
    guests: set[str] = field(factory=set)

    def play(self, act: str, name: str) -> tuple[Shares, bool | None]:
        match act:
            case "join":
                self.ours[name] = self.group.ours(name, "coopgroup")
            case "visit":
                self.group.kip848(name)
                self.guests.add(name)
            case _:
                self.group.stop(name)
                self.ours.pop(name, None)
                self.guests.discard(name)
        self.group.settle(*self.ours, *self.guests)
        self.group.until(lambda: len(self._opinions()) <= 1, "one opinion")
        said = self._opinions()
        shares = {member: frozenset(share) for member, share in self.group.shares().items()}
        return shares, said.pop() if said else None

    def _opinions(self) -> set[bool]:
        return {one.health().broker_assigns for one in self.ours.values()}


@define(eq=False)
class Modelled:
    simulation: Simulation = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = MemberConfig(group_id="g", heartbeat_interval_ms=200, session_timeout_ms=6_000)
        settings = broker_settings(config, assignment_interval_ms=1_000)
        self.simulation = Simulation.create(
            config=config,
            run_settings=RunSettings(
                assignor=create_assignor("sticky"), policy=create_policy("simple")
            ),
            coordinator=GroupCoordinator(settings=settings),
        )
        self.simulation.set_topic("T", PARTITIONS)

    def play(self, act: str, name: str) -> tuple[Shares, bool | None]:
        simulation = self.simulation
        process = simulation.guests.get(name) or simulation.process(name)
        if act == "join":
            simulation.start(name, ("T",))
        elif act == "visit":
            simulation.visit(name, ("T",))
        elif process is not None:
            process.close()
        simulation.run(10_000)
        working = {one.name: one.application.working for one in simulation.alive}
        working |= {one.name: one.application.working for one in simulation.guests_alive}
        shares = {
            member: frozenset(index for _, index in share) for member, share in working.items()
        }
        said = {one.session.member.round.by_broker for one in simulation.alive}
        assert len(said) <= 1
        return shares, said.pop() if said else None


def told(player: Player) -> list[tuple[dict[str, tuple[int, int]], bool | None]]:
    """Return per act: size and kept part of each share, and whether the broker assigns."""
    before: Shares = {}
    rows = []
    for act, name in STORY:
        shares, by_broker = player.play(act, name)
        assert sorted(index for share in shares.values() for index in share) == [*range(PARTITIONS)]
        sizes = {
            member: (len(share), len(share & before.get(member, frozenset())))
            for member, share in sorted(shares.items())
        }
        rows.append((sizes, by_broker))
        before = shares
    return rows


def test_model_moves_partitions_as_the_broker(tmp_path: Path) -> None:
    modelled = told(Modelled())
    with (
        KafkaCluster(properties=FAST_BROKER) as cluster,
        MixedGroup(cluster, None, tmp_path) as group,
    ):
        assert told(Real(group)) == modelled
    said = [by_broker for _, by_broker in modelled]
    assert said == [False, True, True, True, False, True, True, None, True, True, False]
