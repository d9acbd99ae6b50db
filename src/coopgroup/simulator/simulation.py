"""`Simulation`: a world with brokers, a network, a load and processes, and what may happen to them.

This is what tests and deployments drive: start, close, crash, pause and resume processes, move the
group coordinator, change topics, let time pass, heal. Nothing here decides what happens when.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import attrs
from attrs import define, field

from coopgroup.member import ErrorCode, MemberConfig
from coopgroup.model import ResourceSet
from coopgroup.simulator.application import Application
from coopgroup.simulator.brokers import Brokers
from coopgroup.simulator.coordinator import GroupCoordinator, GroupState
from coopgroup.simulator.costs import Costs
from coopgroup.simulator.load import Load
from coopgroup.simulator.network import Network
from coopgroup.simulator.process import Habits, Process, Seen
from coopgroup.simulator.scenario import Cost, Identity, Span
from coopgroup.simulator.world import World
from coopgroup.telemetry import OffsetsCommitted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopgroup.member.effects import Lane
    from coopgroup.member.kept_identity import KeptIdentity
    from coopgroup.model.group_api import OffsetCommitRequest
    from coopgroup.model.resource_set import Int64Array

__all__ = ["Simulation"]

# How often it is looked whether a healed group has come to rest.
_LOOK_MS = 100
# A process that must not go on is started again by whatever keeps processes running.
_RESTART_MS = 50


@define(kw_only=True, eq=False)
class Simulation:
    """A group in virtual time.

    Attributes:
        config: of every member, but for its static id.
        habits: of all processes.
        world: time, dice, telemetry.
        network: connections.
        brokers: group coordinator and topics.
        load: the data plane.
        costs: times to stop and restore.
        commit_interval_ms: pace of commits by the clock, 0 for none.
        processes: every life of every process, in the order in which they began.
        kept: the state directory of each process: who it was in its last life, and what it saw if
            it led then.
    """

    config: MemberConfig
    habits: Habits
    world: World
    network: Network = field(init=False)
    brokers: Brokers = field(init=False)
    load: Load = field(factory=Load)
    costs: Costs = field(init=False)
    commit_interval_ms: int = 5_000
    processes: list[Process] = field(factory=list)
    kept: dict[str, tuple[KeptIdentity | None, Seen | None]] = field(factory=dict)
    _by_name: dict[str, Process] = field(factory=dict)
    # Partitions of a commit with their places in the load: the same ones come again and again.
    _committed: dict[tuple[tuple[str, int], ...], tuple[ResourceSet, Int64Array]] = field(
        factory=dict
    )

    @classmethod
    def create(
        cls,
        *,
        config: MemberConfig,
        habits: Habits,
        seed: int = 0,
        delay_ms: Span | None = None,
        loss: float = 0.0,
        costs: tuple[Cost, ...] = (),
        commit_interval_ms: int = 5_000,
        coordinator: GroupCoordinator | None = None,
    ) -> Simulation:
        """Put the parts together.

        Args:
            config: of every member.
            habits: of all processes.
            seed: of everything that happens by chance.
            delay_ms: of a request or an answer; None for 1 ms.
            loss: part of the requests, and of the answers, that is lost.
            costs: to stop and restore resources.
            commit_interval_ms: pace of commits by the clock, 0 for none.
            coordinator: another one than the default.
        """
        world = World(seed=seed, group_id=config.group_id)
        made = cls(config=config, habits=habits, world=world, commit_interval_ms=commit_interval_ms)
        made.network = Network(
            world=world,
            delay_ms=Span(1, 1) if delay_ms is None else delay_ms,
            request_loss=loss,
            answer_loss=loss,
        )
        made.brokers = Brokers(
            world=world,
            coordinator=GroupCoordinator() if coordinator is None else coordinator,
            reply=made.network.reply,
            break_off=made.network.fail,
            index_min=config.index_min,
        )
        made.network.brokers = made.brokers
        made.brokers.coordinator.on_commit = made._on_commit
        made.costs = Costs(world.dice("costs"), costs)
        return made

    # --- processes -----------------------------------------------------------------------------

    def start(
        self,
        name: str,
        topics: tuple[str, ...],
        *,
        identity: Identity = Identity.NONE,
        capacity_per_s: float = math.inf,
        skew_ppm: int = 0,
    ) -> Process:
        """Start a process; one of the same name must have ended."""
        config = self.config
        if identity is Identity.STATIC:
            config = attrs.evolve(config, instance_id=name)
        if identity is Identity.STATE_DIR:
            config = attrs.evolve(config, keeps_identity=True)
        kept, seen = self.kept.get(name, (None, None))
        process = Process(
            world=self.world,
            network=self.network,
            brokers=self.brokers,
            habits=self.habits,
            name=name,
            config=config,
            topics=topics,
            skew_ppm=skew_ppm,
            kept=kept,
            seen=seen,
            on_failure=self._on_failure,
            on_keep=partial(self._keep, name),
        )
        process.application = Application(
            process=process,
            load=self.load,
            costs=self.costs,
            callback_ms=self.habits.callback_ms,
            commit_interval_ms=self.commit_interval_ms,
            capacity_per_s=capacity_per_s,
        )
        self.processes.append(process)
        self._by_name[name] = process
        process.start()
        return process

    def _keep(self, name: str, identity: KeptIdentity | None, seen: Seen | None) -> None:
        self.kept[name] = (identity, seen)

    def start_again(self, before: Process) -> Process | None:
        """Start a process again after its end; None where it lives already."""
        if self._by_name[before.name].alive:
            return None
        return self.start(
            before.name,
            before.topics,
            identity=before.identity,
            capacity_per_s=before.application.capacity_per_s,
            skew_ppm=before.skew_ppm,
        )

    def bounce(self, process: Process, down_ms: int) -> None:
        """Kill a process and start it again later."""
        if process.alive:
            process.crash()
            self.world.later(down_ms, self.start_again, process)

    def process(self, name: str) -> Process | None:
        """The newest life of a process, None where it never lived."""
        return self._by_name.get(name)

    @property
    def alive(self) -> list[Process]:
        """Processes that live, in the order in which they began."""
        return [process for process in self._by_name.values() if process.alive]

    @property
    def leader(self) -> Process | None:
        """The process whose member leads the group as the group coordinator sees it."""
        leader_id = self.brokers.coordinator.group.leader_id
        found = (p for p in self.alive if p.session.member.member_id == leader_id)
        return next(found, None) if leader_id else None

    # --- surroundings --------------------------------------------------------------------------

    def move_coordinator(self, node_id: int, down_ms: int = 0) -> None:
        """Another broker takes the group over; after `down_ms`, if the old one died."""
        self.brokers.move(node_id, down_ms)
        if down_ms:
            self.network.break_all()

    def cut(self, process: Process, for_ms: int) -> None:
        """Nothing gets through between a process and the brokers for a while."""
        self.world.fault(f"{process.name} is cut off for {for_ms} ms")
        self.network.cut(process.name, for_ms)

    def hold_up(self, process: Process, lane: Lane, for_ms: int) -> None:
        """Nothing gets through on one connection of a process for a while."""
        connection = lane.value
        self.world.fault(f"{process.name}'s {connection} connection is held up for {for_ms} ms")
        self.network.hold_up(process.name, lane, for_ms)

    def set_topic(self, name: str, partitions: int, rate_per_s: Sequence[float] = ()) -> None:
        """A topic has so many partitions from now on; leaders notice it a little later.

        Args:
            name: of the topic.
            partitions: how many; fewer than before is a topic made anew, 0 none at all.
            rate_per_s: records per second to each new partition, one number a partition; none
                for no records.
        """
        before = self.brokers.topics.get(name, 0)
        self.change_load(
            partial(self._set_load, name, before, partitions, tuple(rate_per_s)),
        )
        if partitions:
            self.brokers.topics[name] = partitions
        else:
            self.brokers.topics.pop(name, None)
        if self.world.now_ms:
            words = f"topic {name} has {partitions} partitions"
            self.world.fault(f"of {name} there are {partitions}" if self.load.weighs else words)
        for process in self.alive:
            process.notice()

    def set_rate(self, topic: str, partitions: tuple[int, ...], rate_per_s: float) -> None:
        """So many records per second go to each of some partitions from now on."""
        resources = ResourceSet({topic: partitions})
        now_ms = self.world.now_ms
        self.change_load(lambda: self.load.set_rate(resources, rate_per_s, now_ms))

    def change_load(self, change: Callable[[], None]) -> None:
        """Change what is produced or worked off: until now it counts as it was."""
        for process in self.alive:
            process.application.settle()
        change()
        self._committed.clear()
        for process in self.alive:
            process.application.renumber()

    def _set_load(self, name: str, before: int, after: int, rates: tuple[float, ...]) -> None:
        now_ms = self.world.now_ms
        if after < before:
            self.load.delete(name, now_ms)
            before = 0
        if after > before:
            # What begins with a connector begins with nothing to produce to.
            first = before or self.config.index_min
            rates = rates or (0.0,) * (after - before)
            self.load.produce(name, first, (0.0,) * (before - first) + rates, now_ms)

    # --- time ----------------------------------------------------------------------------------

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        self.world.run(self.world.now_ms + duration_ms)

    def heal(self) -> None:
        """No more faults; who is paused goes on."""
        self.world.fault("all faults end")
        self.network.heal()
        self.habits.no_metadata = 0.0
        self.costs.slow = 0.0
        for process in self.alive:
            process.resume()

    def is_at_rest(self) -> bool:
        """Whether nothing is to be expected of the group, as long as nothing happens."""
        group = self.brokers.coordinator.group
        alive = self.alive
        if group.state is not (GroupState.STABLE if alive else GroupState.EMPTY):
            return not alive  # sessions of the dead run out, and nobody is there to care
        seated = len(group.seats) == len(alive)
        return seated and all(process.is_at_rest for process in alive)

    def run_until_rest(self, within_ms: int, quiet_ms: int) -> bool:
        """Let time pass until the group has been at rest for a while.

        Args:
            within_ms: how long at most.
            quiet_ms: for how long it has to stay at rest, in the same generation.

        Returns:
            Whether it came to rest.
        """
        end_ms = self.world.now_ms + within_ms
        rest_since: tuple[int, int] | None = None
        while self.world.now_ms < end_ms:
            self.run(_LOOK_MS)
            generation = self.brokers.coordinator.group.generation
            if not self.is_at_rest():
                rest_since = None
            elif rest_since is None or rest_since[1] != generation:
                rest_since = (self.world.now_ms, generation)
            elif self.world.now_ms - rest_since[0] >= quiet_ms:
                return True
        return False

    # --- what processes and brokers tell -------------------------------------------------------

    def _on_commit(self, request: OffsetCommitRequest) -> None:
        offsets = tuple(
            row[2] for row in request.offsets
        )  # ascending by partition, as all requests
        pairs = tuple(row[:2] for row in request.offsets)
        known = self._committed.get(pairs)
        if known is None:
            resources = ResourceSet.from_pairs(pairs)
            known = self._committed[pairs] = (resources, self.load.numbers(resources))
        resources, numbers = known
        self.load.note_commit(numbers, offsets)
        self.world.write(
            OffsetsCommitted(resources=resources, offsets=offsets),
            member=request.member_id,
            generation=request.generation,
        )

    def _on_failure(self, process: Process, code: int) -> None:
        """A member failed: a static one that was fenced starts again, anything else is a bug.

        A fail-over of the group coordinator can forget the newest id of a static member.
        """
        if code == ErrorCode.FENCED_INSTANCE_ID and process.is_static:
            process.later(1, self.bounce, process, _RESTART_MS)
        else:
            self.world.object_to("failure", f"{process.name} failed: {process.failed}")
