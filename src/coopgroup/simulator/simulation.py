"""`Simulation`: a world with brokers, a network, a load and processes.

Tests and deployments drive it: start, close, crash, pause and resume processes, move the group
coordinator, change topics, advance time, end faults. Nothing here decides when things happen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
from attrs import define, field

from coopgroup.core.member import ErrorCode, GroupProtocol, MemberConfig
from coopgroup.core.member.effects import Lane
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import OffsetCommitRequest
from coopgroup.core.model.resource_set import Int64Array
from coopgroup.core.model.traits import Traits
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupCoordinator, GroupState
from coopgroup.simulator.host.application import Application
from coopgroup.simulator.host.local_state import LocalState
from coopgroup.simulator.host.process import PastLife, Process
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.scenario import Bell, Cost, Identity, Span
from coopgroup.simulator.world import World
from coopgroup.simulator.world.bell import SimulatedBell
from coopgroup.simulator.world.brokers import Brokers
from coopgroup.simulator.world.costs import Costs
from coopgroup.simulator.world.load import Load
from coopgroup.simulator.world.network import Network
from coopgroup.telemetry import OffsetsCommitted

# Time between two checks whether a healed group has settled.
_LOOK_MS = 100
# A process supervisor restarts a process that must not continue.
_RESTART_MS = 50
_NO_LEASE_MS = 1 << 40


@define(kw_only=True, eq=False)
class Simulation:
    """A group in virtual time.

    Attributes:
        processes: every process, including restarts, in the order of their starts.
        kept: state directory of each process: the identity of its last run, and its memory as
            leader.
        guests: the last process of each name whose consumer speaks KIP-848.
        bell: rings between the processes, None without them.
        commit_interval_ms: time between the commits of a process, 0 for no periodic commits.
        fatal_codes: error codes that the run gives to a member on purpose, and that no retry can
            repair; its process is then restarted.
        host_class: class of the processes; the swarm has one with the work of named resources.
    """

    host_class: ClassVar[type[Process]] = Process

    config: MemberConfig
    run_settings: RunSettings
    world: World
    network: Network = field(init=False)
    brokers: Brokers = field(init=False)
    load: Load = field(factory=Load)
    costs: Costs = field(init=False)
    bell: SimulatedBell | None = None
    commit_interval_ms: int = 5_000
    fatal_codes: set[int] = field(factory=set)
    processes: list[Process] = field(factory=list)
    guests: dict[str, Process] = field(factory=dict)
    kept: dict[str, PastLife] = field(factory=dict)
    _by_name: dict[str, Process] = field(factory=dict)
    # Partitions of a commit with their positions in the load: the same ones are committed
    # repeatedly.
    _committed: dict[tuple[tuple[str, int], ...], tuple[ResourceSet, Int64Array]] = field(
        factory=dict
    )

    @classmethod
    def create(
        cls,
        *,
        config: MemberConfig,
        run_settings: RunSettings,
        seed: int = 0,
        delay_ms: Span | None = None,
        loss: float = 0.0,
        costs: tuple[Cost, ...] = (),
        commit_interval_ms: int = 5_000,
        coordinator: GroupCoordinator | None = None,
    ) -> Simulation:
        """Build a simulation."""
        world = World(seed=seed, group_id=config.group_id)
        made = cls(
            config=config,
            run_settings=run_settings,
            world=world,
            commit_interval_ms=commit_interval_ms,
        )
        made.network = Network(
            world=world,
            delay_ms=Span(1, 1) if delay_ms is None else delay_ms,
            request_loss=loss,
            answer_loss=loss,
        )
        made.brokers = Brokers(
            world=world,
            coordinator=coordinator or GroupCoordinator(settings=broker_settings(config)),
            reply=made.network.reply,
            break_off=made.network.fail,
            index_min=config.index_min,
        )
        made.network.brokers = made.brokers
        made.brokers.coordinator.on_commit = made._on_commit
        made.costs = Costs(world.dice("costs"), costs)
        return made

    def hang_bell(self, times: Bell) -> None:
        """Let processes that start from now on ring, and hear rings."""
        self.config = attrs.evolve(self.config, has_bell=True)
        self.bell = SimulatedBell(world=self.world, times=times, listeners=lambda: self.alive)

    # --- processes -----------------------------------------------------------------------------

    def start(
        self,
        name: str,
        topics: tuple[str, ...],
        *,
        identity: Identity = Identity.NONE,
        capacity_per_s: float = math.inf,
        skew_ppm: int = 0,
        keeps_state: bool = False,
        traits: Traits | None = None,
        protocol: GroupProtocol = GroupProtocol.CLASSIC,
    ) -> Process:
        """Start a process; an earlier one of the same name must have ended."""
        config = self.config if traits is None else attrs.evolve(self.config, traits=traits)
        if identity is Identity.STATIC:
            config = attrs.evolve(config, instance_id=name)
        if identity is Identity.STATE_DIR:
            config = attrs.evolve(config, keeps_identity=True)
        if protocol is GroupProtocol.CONSUMER:
            config = self._of_kip848(config, name)
        process = self.host_class(
            world=self.world,
            network=self.network,
            brokers=self.brokers,
            run_settings=self.run_settings,
            name=name,
            config=config,
            topics=topics,
            skew_ppm=skew_ppm,
            past=self.kept.get(name, PastLife()),
            on_failure=self._on_failure,
            on_keep=partial(self._keep, name),
            on_ring=(lambda: None) if self.bell is None else self.bell.ring,
        )
        before = self._by_name.get(name) if keeps_state else None
        has_state = keeps_state or warmup_of(self.run_settings.policy) is not None
        ready = EMPTY if before is None else before.application.state.ready
        state = LocalState(is_kept=has_state, on_disk=keeps_state, ready=ready)
        process.application = self._application(process, capacity_per_s, state)
        self.processes.append(process)
        self._by_name[name] = process
        process.start()
        return process

    def _of_kip848(self, config: MemberConfig, name: str) -> MemberConfig:
        """Return the settings of a member of KIP-848; the broker has its session timeout."""
        settings = self.brokers.coordinator.settings
        return attrs.evolve(
            config,
            protocol=GroupProtocol.CONSUMER,
            own_id=f"{name}-{self.world.number()}",
            session_timeout_ms=settings.consumer_session_timeout_ms,
            heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        )

    def visit(
        self, name: str, topics: tuple[str, ...], capacity_per_s: float = math.inf
    ) -> Process:
        """Start a process of another client of KIP-848; an earlier one must have ended.

        Its member is that of coopgroup without a lease and without a bell. After a pause or a cut
        it could work on partitions of a new owner, so a simulation has neither. It tells the broker
        twice its time to stop, so it gives up a slow stop before the broker gives it up.
        """
        config = attrs.evolve(
            self._of_kip848(self.config, name),
            has_bell=False,
            session_timeout_ms=_NO_LEASE_MS,
            rebalance_timeout_ms=2 * self.config.rebalance_timeout_ms,
        )
        process = Process(
            world=self.world,
            network=self.network,
            brokers=self.brokers,
            run_settings=attrs.evolve(self.run_settings, awaits_commits=True),
            name=name,
            config=config,
            topics=topics,
            on_failure=self._on_failure,
        )
        process.application = self._application(process, capacity_per_s, LocalState())
        self.guests[name] = process
        process.start()
        return process

    def _application(
        self, process: Process, capacity_per_s: float, state: LocalState
    ) -> Application:
        return Application(
            process=process,
            load=self.load,
            costs=self.costs,
            callback_ms=self.run_settings.callback_ms,
            commit_interval_ms=self.commit_interval_ms,
            capacity_per_s=capacity_per_s,
            state=state,
        )

    def _keep(self, name: str, past: PastLife) -> None:
        self.kept[name] = past

    def start_again(self, before: Process) -> Process | None:
        """Start a process again after its end; return None if it is alive, or another client's."""
        last = self._by_name.get(before.name)
        if last is None or last.alive:
            return None
        return self.start(
            before.name,
            before.topics,
            identity=before.identity,
            capacity_per_s=before.application.capacity_per_s,
            skew_ppm=before.skew_ppm,
            keeps_state=before.application.state.on_disk,
            traits=before.config.traits,
            protocol=before.config.protocol,
        )

    def bounce(self, process: Process, down_ms: int) -> None:
        """Kill a process and start it again later."""
        if process.alive:
            process.crash()
            self.world.later(down_ms, self.start_again, process)

    def process(self, name: str) -> Process | None:
        """Return the last process of a name, or None; one with KIP-848 is among the `guests`."""
        return self._by_name.get(name)

    @property
    def alive(self) -> list[Process]:
        """Return the living processes in the order of their starts."""
        return [process for process in self._by_name.values() if process.alive]

    @property
    def guests_alive(self) -> list[Process]:
        """Return the living processes that speak KIP-848."""
        return [process for process in self.guests.values() if process.alive]

    @property
    def leader(self) -> Process | None:
        """Return the process of the leader, as the group coordinator sees it."""
        leader_id = self.brokers.coordinator.group.leader_id
        found = (p for p in self.alive if p.session.member.member_id == leader_id)
        return next(found, None) if leader_id else None

    # --- surroundings --------------------------------------------------------------------------

    def move_coordinator(self, node_id: int, down_ms: int = 0) -> None:
        """Let another broker take over the group, after `down_ms` if the old one died."""
        self.brokers.move(node_id, down_ms)
        if down_ms:
            self.network.break_all()

    def cut(self, process: Process, for_ms: int) -> None:
        """Cut a process off from all brokers for some time."""
        self.world.fault(f"{process.name} is cut off for {for_ms} ms")
        self.network.cut(process.name, for_ms)

    def hold_up(self, process: Process, lane: Lane, for_ms: int) -> None:
        """Block one connection of a process for some time."""
        connection = lane.value
        self.world.fault(f"{process.name}'s {connection} connection is held up for {for_ms} ms")
        self.network.hold_up(process.name, lane, for_ms)

    def set_topic(self, name: str, partitions: int, rate_per_s: Sequence[float] = ()) -> None:
        """Set the number of a topic's partitions; leaders notice it a little later."""
        before = self.brokers.topics.get(name, 0)
        self.change_load(
            partial(self._set_load, name, before, partitions, tuple(rate_per_s)),
        )
        self.brokers.set_partitions(name, partitions)
        if self.world.now_ms:
            words = f"topic {name} has {partitions} partitions"
            self.world.fault(f"of {name} there are {partitions}" if self.load.weighs else words)
        for process in self.alive:
            process.notice()

    def set_rate(self, topic: str, partitions: tuple[int, ...], rate_per_s: float) -> None:
        """Set the rate of some partitions, in records per second."""
        resources = ResourceSet({topic: partitions})
        now_ms = self.world.now_ms
        self.change_load(lambda: self.load.set_rate(resources, rate_per_s, now_ms))

    def change_load(self, change: Callable[[], None]) -> None:
        """Change production or capacity, after all positions are up to date."""
        working = [process.application for process in self.alive]
        working += [process.application for process in self.guests_alive]
        for application in working:
            application.settle()
        change()
        self._committed.clear()
        for application in working:
            application.renumber()

    def _set_load(self, name: str, before: int, after: int, rates: tuple[float, ...]) -> None:
        now_ms = self.world.now_ms
        if after < before:
            self.load.delete(name, now_ms)
            before = 0
        if after > before:
            # Resources that begin with a connector itself have no records.
            first = before or self.config.index_min
            rates = rates or (0.0,) * (after - before)
            self.load.produce(name, first, (0.0,) * (before - first) + rates, now_ms)

    # --- time ----------------------------------------------------------------------------------

    def run(self, duration_ms: int) -> None:
        """Advance the time."""
        self.world.run(self.world.now_ms + duration_ms)

    def heal(self) -> None:
        """End all faults and resume paused processes."""
        self.world.fault("all faults end")
        self.network.heal()
        if self.bell is not None:
            self.bell.times = attrs.evolve(self.bell.times, loss=0.0, false_every_ms=0)
        self.run_settings.no_metadata = 0.0
        self.costs.slow = 0.0
        self.run_settings.mishaps = None
        for process in self.alive:
            process.resume()

    def is_at_rest(self) -> bool:
        """Return whether the group has settled: nothing will change without a new event."""
        group = self.brokers.coordinator.group
        alive = self.alive
        if group.state is not (GroupState.STABLE if alive else GroupState.EMPTY):
            return not alive  # only sessions of dead members are left to expire
        seated = len(group.seats) == len(alive)
        # The answer that tells a member of KIP-848 its new epoch may be on its way.
        told = all(one.is_led or one.session.member.generation == group.generation for one in alive)
        return seated and told and all(process.is_at_rest for process in alive)

    def run_until_rest(self, within_ms: int, quiet_ms: int) -> bool:
        """Advance the time until the group is settled for `quiet_ms`; return whether it is."""
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
        # ascending by partition, like all requests
        offsets = tuple([row[2] for row in request.offsets])
        pairs = tuple([row[:2] for row in request.offsets])
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
        """Handle a failed member: restart a fenced static member; other failures are bugs.

        A fail-over of the group coordinator can forget the newest member id of a static member.
        """
        is_fenced = code == ErrorCode.FENCED_INSTANCE_ID and process.is_static
        if is_fenced or code in self.fatal_codes:
            process.later(1, self.bounce, process, _RESTART_MS)
        else:
            self.world.object_to("failure", f"{process.name} failed: {process.failed}")


def broker_settings(config: MemberConfig, **changes: Any) -> CoordinatorSettings:  # noqa: ANN401 - any setting
    """Return the settings of a broker whose members of KIP-848 have the times of a group.

    Args:
        config: settings of the other members.
        changes: other fields of `CoordinatorSettings`.
    """
    return CoordinatorSettings(
        consumer_session_timeout_ms=config.session_timeout_ms,
        consumer_heartbeat_interval_ms=config.heartbeat_interval_ms,
        **changes,
    )
