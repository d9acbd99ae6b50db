"""The swarm with named resources: declines, definitions that change, and restarts.

    run = draw_named(seed)
    played = play(run)          # of the module `play`, as any other run

Each process has the true parts of a `CooperativeGroup`: its `ResourceWork`, its look-up and its
watcher of the catalogue. Only their threads and their clock are the simulation's (`strands`). The
acts are those of a plain run, or of a run with warm-ups, or of a run with places and tags. Further
acts change definitions, delete and create resources, and restart what was refused.

The checks of callbacks object during the run. `declines` and `definitions` judge its end.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from attrs import define, field

from coopgroup.core.member.effects import GrantResources, LoseResources, Send
from coopgroup.core.member.events import (
    LeaveRequested,
    LossHandled,
    WarmSetDeclared,
)
from coopgroup.core.model import EMPTY, Resource, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import JoinGroupRequest, SyncGroupRequest
from coopgroup.errors import Decline, StartFailed
from coopgroup.groups import callbacks, declines, lookup, state, work
from coopgroup.groups.callbacks import Callbacks
from coopgroup.groups.catalogue import INDEX_MIN, Catalogue, GroupResource
from coopgroup.groups.lookup import CatalogueLookup, CatalogueWatcher
from coopgroup.groups.settings import PROTOCOL_NAME, PROTOCOL_TYPE
from coopgroup.groups.state import Wish
from coopgroup.groups.work import ResourceWork, WorkLimits
from coopgroup.simulator.host.process import Process
from coopgroup.simulator.scenario import LEADER
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StopReason,
)
from tests.swarm.places import UnevenSticky, draw_placed, without_bundles
from tests.swarm.ports import Port, TrueApplication, TrueSimulation
from tests.swarm.runs import TOPICS, Act, ActKind, draw
from tests.swarm.strands import VirtualCondition
from tests.swarm.warm import draw_warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coopgroup.core.leader import RoundRequest, TopicMetadata
    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.core.session import DecisionMade, SessionEffect, SessionEvent
    from coopgroup.kafka.membership.ports import Notice
    from coopgroup.telemetry import Envelope, Record
    from tests.swarm.runs import SwarmRun

NAMED: Final = "named"
"""What `SwarmRun.theirs` says of a group of named resources."""
_APART: Final = 4_000_000  # acts that no other run of a soak has
_FALSE: Final = {ActKind.FORGE, ActKind.GARBLE, ActKind.SUBSCRIBE}
_REFRESH_MS: Final = 200
_RETRY_S: Final = 0.05
_FOR_EVER_S: Final = 3_600.0
_PASSING_S: Final = 60.0
_MOVES_MAX: Final = 4  # of a resource, for each process that is alive


# --- what happens ---------------------------------------------------------------------------------


def draw_named(seed: int) -> SwarmRun:
    """Draw a run of a group of named resources."""
    chance = random.Random(f"swarm/{seed}/named")
    run = chance.choice((draw, draw, draw_warm, draw_placed))(seed + _APART)
    kinds = tuple(one for one in (_declines, _definitions, _refusals) if chance.random() < 0.6)
    faults = run.faults
    for kind in kinds or (_declines,):
        faults = attrs.evolve(faults, **kind(chance))
    acts = [_subscribed(act) for act in run.acts if act.kind not in _FALSE]
    for _ in range(chance.choice((1, 3, 6))):
        acts.insert(chance.randint(min(len(acts), 3), len(acts)), _further(chance, acts))
    return attrs.evolve(
        run,
        seed=seed,
        assignor=run.assignor if ":" in run.assignor else chance.choice(("weighted", "sticky")),
        policy=without_bundles(run.policy),
        faults=attrs.evolve(faults, hang=0.0, lie=0.0, keeps_state=False),
        acts=tuple(acts),
        theirs=NAMED,
    )


def _subscribed(act: Act) -> Act:
    """Let every process share all names, with a clock that is right."""
    topics = TOPICS if act.kind is ActKind.START else act.topics
    return attrs.evolve(act, skew_ppm=0, topics=topics)


def _declines(chance: random.Random) -> dict[str, Any]:
    return {
        "declines": chance.choice((0.0, 0.1, 0.4)),
        "decline_ms_max": chance.choice((50, 500, 1_500)),
        "never": chance.choice((0.0, 0.2, 0.5, 1.0)),
    }


def _definitions(chance: random.Random) -> dict[str, Any]:
    return {"unreadable": chance.choice((0.0, 0.2, 0.6))}


def _refusals(chance: random.Random) -> dict[str, Any]:
    return {"refusals": chance.choice((0.0, 0.1)), "raises": chance.choice((0.1, 0.4))}


def _further(chance: random.Random, acts: list[Act]) -> Act:
    names = [act.process for act in acts if act.kind is ActKind.START]
    kind = chance.choice((ActKind.DEFINE, ActKind.DEFINE, ActKind.DEFINE, ActKind.RESTART))
    return Act(
        after_ms=chance.choice((0, 5, 30, 300)),
        kind=kind,
        process=chance.choice((*names, LEADER)) if kind is ActKind.RESTART else "",
        number=chance.choice((1, 2, 9)) if kind is ActKind.DEFINE else 0,
        times=chance.choice((1, 1, 2)) if kind is ActKind.DEFINE else 1,
    )


# --- the catalogue --------------------------------------------------------------------------------


@define(eq=False)
class Topic:
    """The definitions, as a topic has them; each is a number that grows with its changes.

    Attributes:
        existing: returns the resources that exist.
        defined: present definitions.
        since: by resource, (version, definition) of each change.
    """

    existing: Callable[[], ResourceSet]
    version: int = 1
    defined: dict[Resource, int] = field(factory=dict)
    since: dict[Resource, list[tuple[int, int]]] = field(factory=dict)
    _last: int = 0

    def catalogue(self) -> Catalogue:
        """Return the catalogue with all changes of resources until now."""
        existing = self.existing()
        gone = self.defined.keys() - set(existing)
        come = [one for one in existing if one not in self.defined]
        if gone or come:
            self.version += 1
        for one in gone:
            del self.defined[one]
        self._define(come)
        return Catalogue.of(existing, version=self.version, definitions=self.defined)

    def change(self, count: int, dice: random.Random) -> None:
        """Change some definitions."""
        self.catalogue()
        some = sorted(self.defined)
        self.version += 1
        self._define(dice.sample(some, min(count, len(some))))

    def _define(self, resources: Sequence[Resource]) -> None:
        for one in resources:
            self._last += 1
            self.defined[one] = self._last
            self.since.setdefault(one, []).append((self.version, self._last))

    def oldest(self, resource: Resource, version: int) -> int:
        """Return the oldest definition that a reader of this version may use."""
        return max((known for at, known in self.since[resource] if at <= version), default=0)


# --- a process ------------------------------------------------------------------------------------


@define(eq=False)
class _Port(Port):
    """What `ResourceWork` knows of its group.

    Attributes:
        losses: losses that it has not answered.
    """

    is_losing: bool = False
    losses: int = 0

    @property
    def lease_until_s(self) -> float:
        if self.is_losing:
            return -math.inf
        return self.member.hold_until_ms / 1_000 if self.member.owned else math.inf

    def post(self, event: SessionEvent) -> None:
        self.losses -= isinstance(event, LossHandled)
        if self.losses < 0:
            self.process.world.object_to("callbacks", f"{self.process.name} answers a loss twice")
        super().post(event)


@define(kw_only=True, eq=False)
class NamedApplication(TrueApplication):
    """The work of one process, with an application whose callbacks take time, refuse and raise.

    Attributes:
        running: definition with which each resource runs, or follows.
        granted: catalogue version of each grant.
        told: what a leader has read that the process declines, and must not grant. The broker
            answers a second join of a known instance in one generation with the stored assignment.
            So what the process owned at the first join is granted now. A new coordinator begins
            the generation again, and then the second join counts.
        generation: generation of its last join.
        memory: by declined resource, until when.
    """

    group: NamedSimulation
    work: ResourceWork = field(init=False)
    lookup: CatalogueLookup = field(init=False)
    watcher: CatalogueWatcher = field(init=False)
    port: _Port = field(init=False)
    running: dict[Resource, int] = field(factory=dict)
    granted: dict[Resource, int] = field(factory=dict)
    told: ResourceSet = EMPTY
    generation: int = NO_GENERATION
    memory: dict[Resource, int] = field(factory=dict)
    # Records say that their work has begun, and not that it has ended.
    _begun: set[Resource] = field(factory=set)
    # Of the last join that was sent: declined resources, and claims.
    _asked: tuple[ResourceSet, ResourceSet] = (EMPTY, EMPTY)
    _claimed: ResourceSet = EMPTY
    _lost: set[Resource] = field(factory=set)
    _busy: Counter[Resource] = field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        process, faults = self.owner, self.group.faults
        takes_part = "warmup" in self.group.policy_options
        self.port = _Port(process)
        self.lookup = CatalogueLookup(source=self._read, timeout_ms=0, warn=_ignore)
        self.work = ResourceWork(
            callbacks=Callbacks(
                start=partial(self._called, "start"),
                stop=partial(self._called, "stop"),
                lost=partial(self._called, "lost"),
                on_error=None,
                change=partial(self._called, "change") if self.group.follows else None,
                warm=partial(self._called, "warm") if takes_part else None,
                cool=partial(self._called, "cool") if takes_part else None,
            ),
            limits=WorkLimits(
                stop_s=process.config.rebalance_timeout_ms / 1_000,
                retry_s=_RETRY_S,
                retry_max_s=4 * _RETRY_S,
            ),
            pool=cast("Any", SimpleNamespace(submit=self._submit, threads_max=32)),
            reports=cast("Any", SimpleNamespace(submit=lambda call, **_: call())),
            write=self._write,
            warn=_ignore,
            known=lambda: self.lookup.known,
            look_soon=lambda: self.watcher.look_soon(),  # noqa: PLW0108 - it is made below
        )
        self.work._changed = VirtualCondition(process.world, self.sleep)  # noqa: SLF001
        self.work._warmth.changing = self.work._changed  # noqa: SLF001
        self.work.driver = cast("Any", self.port)
        self.port.wake = self._wake
        self.lookup.on_read = self.work.take_catalogue
        self.watcher = CatalogueWatcher(
            lookup=self.lookup,
            refresh_ms=_REFRESH_MS,
            member=lambda: process.session.member,
            leads=lambda: process.leads,
            shared=lambda: EMPTY if process.seen is None else process.seen.partitions,
            post=self.port.post,
        )
        jobs = SimpleNamespace(submit=self._submit_look, close=_ignore)
        self.watcher._worker = cast("Any", jobs)  # noqa: SLF001
        assert faults.decline_ms_max < 1_000 * _PASSING_S

    # --- as its host --------------------------------------------------------------------------

    def start(self) -> None:
        self.watcher.start()

    def grant(self, resources: ResourceSet) -> None:
        self.owned |= resources
        if wrong := resources & self.told:
            self.object_to(f"gets {wrong.to_dict()}, which it declines", "declines")
        version = self.port.member.last_assignment.catalogue_version
        self.granted |= dict.fromkeys(resources, -1 if version is None else version)
        self._lost -= set(resources)
        self._put(GrantResources(resources=resources))

    def joins(self, declined: ResourceSet, claimed: ResourceSet) -> None:
        """Note what a join declines and claims; it is being sent."""
        self._asked = declined, claimed

    def joined(self, generation: int) -> None:
        """Note the generation in the answer to the last join."""
        declined, claimed = self._asked
        if generation == self.generation:
            self.told = (self.told - self._claimed) & declined
        else:
            self.generation, self.told, self._claimed = generation, declined, claimed

    def lose(self) -> None:
        # Other members may own them from now on, even while callbacks still end the work here.
        if self._begun:
            told = ResourceSet.from_pairs(self._begun)
            self._write(ResourcesStopped(resources=told, reason=StopReason.LOST))
        self._lost |= set(self.owned)
        self.port.is_losing, self.port.losses = True, self.port.losses + 1
        self._put(LoseResources(resources=self.owned, cause="lost"))
        self.port.is_losing = False

    def close(self) -> None:
        self.closing = True
        self.watcher.stop()
        self.group.strands.begin(self._close)

    def _close(self) -> None:
        self.work.close(self.owner.config.rebalance_timeout_ms / 1_000)
        self._refresh()
        self.port.post(LeaveRequested(reason="closed"))

    def restart(self) -> None:
        """Start again what this process refused."""
        for resource in sorted(self.memory.keys() | self.work.failed().keys()):
            if self.work.restart(resource):
                self.memory.pop(resource, None)
        self._refresh()

    def _put(self, notice: Notice) -> None:
        self.work.put(notice)
        self._refresh()

    def _wake(self) -> None:
        self.work.wake()
        self._refresh()

    def _refresh(self) -> None:
        """Say what a group at rest is judged by."""
        works = self.work.works()
        # What is lost may be assigned again before its callbacks return.
        self.owned = ResourceSet.from_pairs(
            one.resource for one in works if one.wish is not Wish.END
        )
        self.working = ResourceSet.from_pairs(
            one.resource
            for one in works
            if one.runs and not (one.is_stale or one.is_changed) and one.wish is Wish.RUN
        )
        self.stopping = ResourceSet.from_pairs(one.resource for one in works if one.busy)

    # --- its threads and its clock ------------------------------------------------------------

    def _submit(self, call: Callable[[], None], *, urgency: int = 0) -> None:
        delay_ms = self.process.world.dice("callbacks").randint(0, self.callback_ms.high)
        self.process.later(delay_ms, self.group.strands.begin, partial(self._run, call))

    def _run(self, call: Callable[[], None]) -> None:
        call()
        if self.owner.alive:
            self._refresh()

    def _submit_look(self, call: Callable[[], None], *, after_s: float = 0.0) -> None:
        self.process.later(round(1_000 * after_s), self._look, call)

    def _look(self, call: Callable[[], None]) -> None:
        call()
        self._refresh()

    def _write(self, record: Record) -> None:
        if isinstance(record, ResourcesStarted):
            self._begun |= set(record.resources)
        elif isinstance(record, ResourcesStopped):
            if not self._begun.issuperset(record.resources):
                return  # its membership ended before
            self._begun -= set(record.resources)
        if self.owner.alive:
            self.process.write(record)

    def _read(self, _: int | None) -> Catalogue:
        if self.happens("unreadable"):
            raise OSError("unreadable")
        return self.group.topic.catalogue()

    # --- its callbacks ------------------------------------------------------------------------

    def _called(self, action: str, resource: GroupResource) -> None:
        self._judge(action, resource)
        self._busy[resource] += 1
        try:
            self.sleep(self._duration_ms())
        finally:
            self._busy[resource] -= 1
        if action == "start":
            self._refuse(resource)
        if self.happens("raises"):
            raise ValueError("no")
        if action in {"start", "change"}:
            self.running[resource] = resource.definition
        elif action in {"stop", "lost"}:
            self.running.pop(resource, None)

    def _duration_ms(self) -> int:
        dice, faults = self.process.world.dice("durations"), self.group.faults
        slow = not self.group.is_calm and dice.random() < faults.slow
        return dice.randint(0, faults.slow_ms_max if slow else 10)

    def _refuse(self, resource: GroupResource) -> None:
        if self.group.never_runs(self.process.name, resource):
            self._decline(resource, _FOR_EVER_S)
        if self.happens("declines"):
            self._decline(
                resource, self.process.world.dice("declines").randint(1, self.longest_ms) / 1_000
            )
        if self.happens("refusals"):
            raise StartFailed("never")

    @property
    def longest_ms(self) -> int:
        """Longest time for which a decline that passes is remembered."""
        return self.group.faults.decline_ms_max

    def _decline(self, resource: Resource, for_s: float) -> None:
        self.memory[Resource(*resource)] = self.process.world.now_ms + round(1_000 * for_s)
        raise Decline("not here", for_s=for_s)

    def _judge(self, action: str, given: GroupResource) -> None:
        """Object to a callback that comes at a wrong time, or with a wrong definition."""
        resource, runs = Resource(*given), self.running.get(given)
        if self._busy[resource] and action != "lost":
            self.object_to(f"has two callbacks of {resource} at once: {action}")
        if action == "start":
            if runs is not None:
                self.object_to(f"starts {resource}, which runs")
            if given.definition < self.group.topic.oldest(resource, self.granted[resource]):
                self.object_to(f"starts {resource} with an old definition", "definitions")
            if (
                self.memory.get(resource, 0) > self.process.world.now_ms
                and resource in self.declined
            ):
                self.object_to(f"starts {resource}, which it declines", "declines")
        elif action == "change" and (runs is None or given.definition <= runs):
            self.object_to(f"changes {resource} from {runs} to {given.definition}", "definitions")
        elif action == "stop" and resource in self._lost:
            self.object_to(f"stops {resource}, which others may own")
        elif action == "stop" and given.definition != runs:
            self.object_to(f"stops {resource} with {given.definition} for {runs}", "definitions")
        elif action == "stop" and given.reason == "changed" and self.group.follows:
            self.object_to(f"stops {resource} that changed, beside on_change", "definitions")

    @property
    def declined(self) -> ResourceSet:
        """What it tells its group to decline."""
        return ResourceSet.from_pairs(self.work._declines)  # noqa: SLF001


@define(kw_only=True, eq=False)
class NamedProcess(Process):
    """A process of such a group, which reads members and resources as a `CooperativeGroup`."""

    @property
    def named(self) -> NamedApplication:
        """Its application."""
        return cast("NamedApplication", self.application)

    def start(self) -> None:
        instance_id = self.config.instance_id or ""
        self.write(ProcessStarted(instance_id=instance_id, topics=self.topics))
        if self.named.work.callbacks.warm is not None:
            self.give(WarmSetDeclared(warm=EMPTY))
        self.application.start()

    def notice(self) -> None:
        """Do nothing: the watcher notices changes of the catalogue."""

    def _carry_out(self, effect: SessionEffect) -> None:
        match effect:
            case Send(request=JoinGroupRequest()):
                member = self.session.member
                self.named.joins(member.next_join.declined, member.owned)
            case Send(request=SyncGroupRequest(generation=generation)):
                self.named.joined(generation)
            case _:
                pass
        super()._carry_out(effect)

    def _read_members(self, members: Sequence[JoinedMember]) -> RoundRequest:
        return self.named.lookup.read(members)

    def _metadata(self, request: RoundRequest) -> TopicMetadata | None:
        try:
            return self.named.lookup.metadata(request.topics)
        except LookupError:
            return None

    def _completed(self, decided: DecisionMade) -> DecisionMade:
        return self.named.lookup.complete(decided)


@define(kw_only=True, eq=False)
class NamedSimulation(TrueSimulation):
    """A group of named resources; `prepare` sets its fields.

    Attributes:
        follows: whether applications follow a changed definition without a stop.
    """

    host_class = NamedProcess
    application_class = NamedApplication
    modules = (callbacks, declines, lookup, state, work)
    topic: Topic = field(init=False)
    follows: bool = False

    def prepare(self, run: SwarmRun) -> None:
        super().prepare(run)
        self.topic = Topic(self.brokers.existing)
        self.follows = bool(self.world.dice("follows").getrandbits(1))
        if self.run_settings.assignor.name == "sticky":
            self.run_settings.assignor = UnevenSticky()

    @property
    def policy_options(self) -> Mapping[str, object]:
        """The options of the run's policy."""
        return self.run_of.policy.options

    def never_runs(self, process: str, resource: Resource) -> bool:
        """Return whether a process always declines a resource."""
        chance = random.Random(f"{self.world.seed}/never/{process}/{resource}")
        return chance.random() < self.faults.never

    def act(self, act: Act, process: Process | None) -> None:
        """Change definitions, or restart what a process refused."""
        if act.kind is ActKind.DEFINE:
            for _ in range(act.times):
                self.topic.change(act.number, self.world.dice("definitions"))
        elif process is not None and process.alive and not process.paused:
            cast("NamedProcess", process).named.restart()

    def heal(self) -> None:
        super().heal()
        for process in self.alive:  # an operator starts what has failed for good
            cast("NamedProcess", process).named.restart()

    def is_at_rest(self) -> bool:
        """Return whether the group rests, and no decline passes soon."""
        soon_ms = self.world.now_ms + 1_000 * _PASSING_S
        passing = any(
            self.world.now_ms < until_ms < soon_ms
            for process in self.alive
            for until_ms in cast("NamedProcess", process).named.memory.values()
        )
        return not passing and super().is_at_rest()


def configured(config: Any) -> Any:  # noqa: ANN401 - MemberConfig
    """Return the settings of a member of such a group."""
    return attrs.evolve(
        config, protocol_type=PROTOCOL_TYPE, protocol_name=PROTOCOL_NAME, index_min=INDEX_MIN
    )


# --- the end --------------------------------------------------------------------------------------


def check_named(
    simulation: NamedSimulation, telemetry: Sequence[Envelope], calm_from_ms: int
) -> Iterator[Violation]:
    """Yield what is wrong at rest: resources without an owner, old definitions, loops of moves."""
    end_ms = simulation.world.now_ms
    # A static member that returns without a round gets what is stored. No leader has heard it yet:
    # it gets no more, but it owns what it runs.
    rounds = (one.record for one in reversed(telemetry))
    heard = next((one.members for one in rounds if isinstance(one, RoundDecided)), ())
    alive = [cast("NamedProcess", one).named for one in simulation.alive]
    simulation.topic.catalogue()  # with the last changes
    for resource, newest in simulation.topic.defined.items():
        runs = [one for one in alive if resource in one.running]
        able = [
            one
            for one in alive
            if one.port.member.member_id in heard and resource not in one.declined
        ]
        for one in runs:
            if one.running[resource] != newest:
                message = f"{one.process.name} follows an old definition of {resource}"
                yield Violation(checker="definitions", at_ms=end_ms, message=message)
        if not runs and able and ":" not in simulation.run_of.assignor:
            names = [one.process.name for one in able]
            message = f"{resource} has no owner, and {names} do not decline it"
            yield Violation(checker="declines", at_ms=end_ms, message=message)
    grants = Counter(
        resource
        for one in telemetry
        if isinstance(one.record, AssignmentReceived) and one.at_ms >= calm_from_ms
        for resource in one.record.gained
    )
    for resource, count in grants.items():
        if count > _MOVES_MAX * (len(alive) + 1):
            message = f"{resource} was given {count} times after the last fault"
            yield Violation(checker="declines", at_ms=end_ms, message=message)


def _ignore(*_: object, **__: object) -> None:
    """Do nothing."""
