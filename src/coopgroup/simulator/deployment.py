"""`Deployment`: play a scenario by starting its processes and triggering its events.

All events are queued in advance, in the order of the scenario. Names are resolved when an event
happens. A name without a living process (an ended process, a missing leader) is ignored.
"""

from __future__ import annotations

from typing import Final, assert_never

from attrs import define, field

from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.causes import Cause
from coopgroup.simulator.host.process import Process
from coopgroup.simulator.scenario import (
    LEADER,
    AddPartitions,
    Capacity,
    Client,
    Close,
    CoordinatorLost,
    CoordinatorMoved,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Event,
    Flap,
    HandOver,
    How,
    MemberSet,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Scenario,
    Topic,
    Weight,
)
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.world.brokers import NODES

_ENDS: Final = {Crash: How.CRASH, Close: How.CLOSE, HandOver: How.HAND_OVER}


@define
class _Place:
    """A process of the scenario, alive or not.

    Attributes:
        wanted: whether to start it again when it is down.
    """

    members: MemberSet
    skew_ppm: int
    wanted: bool = True


@define(eq=False)
class Deployment:
    """The processes of a scenario and their events."""

    scenario: Scenario
    simulation: Simulation
    _places: dict[str, _Place] = field(factory=dict)
    _counts: dict[str, int] = field(factory=dict)
    _capacities: dict[str, float] = field(factory=dict)

    def plan(self) -> None:
        """Queue all events."""
        world, scenario = self.simulation.world, self.scenario
        for topic in scenario.topics:
            self._create(topic)
        for members in scenario.members:
            self._counts[members.name] = len(members.processes)
            for number, name in enumerate(members.processes):
                at_ms = members.start_ms + number * members.start_every_ms
                world.at(at_ms, self._start, members, name)
        for event in scenario.events:
            world.at(event.at_ms, self._play, event)
        world.at(scenario.duration_ms, self._end_faults)

    def _end_faults(self) -> None:
        self.simulation.network.heal()
        for process in self.simulation.alive:
            process.resume()

    # --- who is meant --------------------------------------------------------------------------

    def _named(self, name: str) -> list[Process]:
        simulation = self.simulation
        if name == LEADER:
            leader = simulation.leader
            return [] if leader is None else [leader]
        if name in self._counts and name not in self._places:
            return [p for n in self._names_of(name) for p in self._named(n)]
        process = simulation.guests.get(name) or simulation.process(name)
        return [] if process is None or not process.alive else [process]

    def _names_of(self, name: str) -> list[str]:
        """Return all processes of a set, living or not, or the process of that name."""
        if name in self._places or name not in self._counts:
            return [name]
        members = next(one for one in self.scenario.members if one.name == name)
        return [members.process(number) for number in range(1, self._counts[name] + 1)]

    # --- starts and ends -----------------------------------------------------------------------

    def _start(self, members: MemberSet, name: str) -> None:
        skew = members.clock_skew_ppm
        dice = self.simulation.world.dice("skews")
        self._places[name] = _Place(members, dice.randint(skew.low, skew.high))
        self._start_again(name)

    def _start_again(self, name: str) -> None:
        place = self._places[name]
        if not place.wanted or self._named(name):
            return
        members = place.members
        capacity = self._capacities.get(members.name, members.capacity_per_s)
        capacity = self._capacities.get(name, capacity)
        if members.client is Client.KIP_848:
            self.simulation.visit(name, members.topics, capacity)
            return
        self.simulation.start(
            name,
            members.topics,
            identity=members.identity,
            capacity_per_s=capacity,
            skew_ppm=place.skew_ppm,
            keeps_state=members.keeps_state,
            traits=members.traits,
            protocol=members.protocol,
        )

    def _end(self, process: Process, how: How, back_after_ms: int | None) -> None:
        if back_after_ms is not None:
            process.on_end = lambda: self.simulation.world.later(
                back_after_ms, self._start_again, process.name
            )
        else:
            self._places[process.name].wanted = False
        if how is How.CRASH:
            process.crash()
        elif how is How.HAND_OVER and isinstance(process, Process):  # `checks` refuses others
            process.hand_over()
        else:
            process.close()

    # --- events --------------------------------------------------------------------------------

    def _play(self, event: Event) -> None:
        match event:
            case Crash() | Close() | HandOver():
                for process in self._named(event.member):
                    self._end(process, _ENDS[type(event)], event.back_after_ms)
            case Pause():
                self._pause(event)
            case RollingRestart():
                self._roll(event)
            case Scale():
                self._scale(event)
            case Flap():
                self._flap(event, event.member, event.times)
            case _:
                self._play_surroundings(event)

    def _pause(self, event: Pause) -> None:
        for process in self._named(event.member):
            if isinstance(process, Process):  # `checks` refuses others
                process.pause()
                self.simulation.world.later(event.for_ms, process.resume)

    def _roll(self, event: RollingRestart) -> None:
        names = list(dict.fromkeys(one for name in event.members for one in self._names_of(name)))
        for first in range(0, len(names), event.batch):
            batch = names[first : first + event.batch]
            delay_ms = first // event.batch * event.every_ms
            self.simulation.world.later(delay_ms, self._restart, batch, event)

    def _restart(self, names: list[str], event: RollingRestart) -> None:
        for name in names:
            for process in self._named(name):
                self._end(process, event.how, event.down_ms)

    def _scale(self, event: Scale) -> None:
        world = self.simulation.world
        members = next(one for one in self.scenario.members if one.name == event.members)
        before, self._counts[members.name] = self._counts[members.name], event.to
        for step, number in enumerate(range(before + 1, event.to + 1)):
            world.later(step * event.every_ms, self._start, members, members.process(number))
        for step, number in enumerate(range(before, event.to, -1)):
            world.later(step * event.every_ms, self._remove, members.process(number), event.how)

    def _remove(self, name: str, how: How) -> None:
        self._places[name].wanted = False
        for process in self._named(name):
            self._end(process, how, None)

    def _flap(self, event: Flap, name: str, times: int) -> None:
        for process in self._named(name):
            self._end(process, event.how, event.down_ms)
            if times > 1:
                pace_ms = event.down_ms + event.up_ms
                self.simulation.world.later(pace_ms, self._flap, event, process.name, times - 1)

    def _play_surroundings(
        self,
        event: Cut
        | CoordinatorLost
        | CoordinatorMoved
        | AddPartitions
        | CreateTopic
        | DeleteTopic
        | Rate
        | Weight
        | Capacity,
    ) -> None:
        simulation = self.simulation
        match event:
            case Cut():
                for process in [p for name in event.members for p in self._named(name)]:
                    simulation.cut(process, event.for_ms)
            case CoordinatorLost():
                simulation.move_coordinator(self._next_node(), event.for_ms)
            case CoordinatorMoved():
                simulation.move_coordinator(self._next_node())
            case Capacity():
                self._set_capacity(event)
            case _:
                self._change_topics(event)

    def _change_topics(
        self, event: AddPartitions | CreateTopic | DeleteTopic | Rate | Weight
    ) -> None:
        simulation = self.simulation
        match event:
            case AddPartitions():
                before = simulation.brokers.topics.get(event.topic, 0)
                count = before + len(event.rate_per_s)
                simulation.set_topic(event.topic, count, event.rate_per_s)
                self._weigh(event.topic, before, event.weights)
            case CreateTopic():
                self._create(event.topic)
            case DeleteTopic():
                simulation.set_topic(event.topic, 0)
            case Rate():
                self._set_rate(event)
            case Weight():
                self._set_weight(event)
            case _:
                assert_never(event)

    def _create(self, topic: Topic) -> None:
        self.simulation.set_topic(topic.name, topic.partitions, topic.rate_per_s)
        self._weigh(topic.name, 0, topic.weights)

    def _weigh(self, name: str, first: int, weights: tuple[int, ...]) -> None:
        """Set the weights of new resources of a name, from a number on, if there are any."""
        if weights:
            new = ResourceSet({name: range(first, first + len(weights))})
            self.simulation.load.weigh(new, weights)

    def _next_node(self) -> int:
        at = NODES.index(self.simulation.brokers.coordinator.node_id)
        return NODES[(at + 1) % len(NODES)]

    def _set_rate(self, event: Rate) -> None:
        simulation = self.simulation
        partitions = event.partitions
        if partitions is None:
            partitions = tuple(range(simulation.brokers.topics.get(event.topic, 0)))
        simulation.world.fault(f"topic {event.topic} gets {event.rate_per_s:g} records/s")
        simulation.set_rate(event.topic, partitions, event.rate_per_s)

    def _set_weight(self, event: Weight) -> None:
        """Change weights; readers of the catalogue notice this like new resources."""
        simulation, name = self.simulation, event.topic
        partitions = event.partitions
        if partitions is None:
            partitions = tuple(range(simulation.brokers.topics.get(name, 0)))
        simulation.load.weigh(ResourceSet({name: partitions}), (event.weight,) * len(partitions))
        simulation.world.fault(f"each of {len(partitions)} of {name} weighs {event.weight}")
        leader = simulation.leader
        if leader is not None:
            leader.later(
                leader.run_settings.notice_ms.high,
                leader.give,
                RejoinRequested(reason=Cause.WEIGHTS_CHANGED),
            )

    def _set_capacity(self, event: Capacity) -> None:
        for name in event.members:
            words = f"{name} works off {event.capacity_per_s:g} records/s"
            self.simulation.world.fault(words)
            if name != LEADER:
                self._capacities[name] = event.capacity_per_s
            for process in self._named(name):
                process.application.settle()
                process.application.capacity_per_s = event.capacity_per_s
