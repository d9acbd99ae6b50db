"""The swarm with other clients: runs of mixed groups, and checks for them.

    run = draw_mixed(seed)
    played = play(run)          # of the module `play`, as any other run

Other clients (`foreign`) have no lease. Their messages are therefore never lost or late, because a
resulting failure could be an error of theirs. Members of coopgroup get all faults as in other runs.

In each run the other clients support one protocol, or both protocols of Java's default list.
Members of coopgroup list their own protocol and one of these. On the way to coopgroup, coopgroup
comes first in this list, and on the way back it comes second. After all faults have ended the group
must come to rest twice. The first time the other clients are present, with any protocol. Then they
leave, and the group must use the coopgroup protocol.

    run = draw_kip848(seed)

In these runs the other clients are members of KIP-848 (`Process`), so the broker assigns
while they are in the group. If the group becomes a consumer group right after a round that failed,
the broker may give away what a member owns. No client can prevent that, so such partitions are not
checked.
"""

from __future__ import annotations

import enum
import random
import re
from typing import TYPE_CHECKING, Final

import attrs
from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.simulator.checkers import check_commits, check_pairs, check_single_owner
from coopgroup.simulator.coordinator import GroupState
from coopgroup.simulator.scenario import Choice, Identity
from coopgroup.simulator.world import Violation
from tests.swarm.foreign import COOPERATIVE, ForeignProcess
from tests.swarm.hostile import HOSTILE, Lies
from tests.swarm.runs import TOPICS, Act, ActKind, Faults, SwarmRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation

KIP_848: Final = "kip-848"
"""Stands for members of KIP-848 in place of the protocols of other clients."""

_INTERVALS_MS: Final = (0, 1_000)
_PROTOCOLS: Final = (COOPERATIVE, COOPERATIVE, "range", f"range,{COOPERATIVE}")
_GAPS_MS: Final = (0, 5, 30, 100, 300, 700)
_FOR_MS: Final = (50, 300, 700)
_DOWN_MS: Final = (0, 0, 50, 300)
_HAND_OVER_MS: Final = 400
_PROCESSES_MAX: Final = 6
_ACTS_MAX: Final = 12
_HASTY_PART: Final = 0.3


class Client(enum.StrEnum):
    """The client that a starting process uses."""

    OURS = ""
    """Ours; in a mixed group on the way to our protocol: it comes first in its list."""

    BACK = "back"
    """Ours on the way back: the protocol of the others comes first in its list."""

    OTHER = "other"
    """Of another client."""


# --- what happens ---------------------------------------------------------------------------------


def draw_mixed(seed: int) -> SwarmRun:
    """Draw a run of a group with members of coopgroup and of other clients."""
    hasty = random.Random(f"swarm/mixed/{seed}/hasty")
    if hasty.random() < _HASTY_PART:
        return _draw_hasty(seed, hasty)
    return _draw(seed, random.Random(f"swarm/mixed/{seed}"))


def draw_kip848(seed: int) -> SwarmRun:
    """Draw a run of a group with members of coopgroup and of KIP-848."""
    chance = random.Random(f"swarm/kip-848/{seed}")
    draw = _draw_hasty if chance.random() < _HASTY_PART else _draw
    return attrs.evolve(draw(seed, chance), theirs=KIP_848)


def _draw(seed: int, chance: random.Random) -> SwarmRun:
    policy = Choice(name="simple")
    if chance.random() < 0.5:
        policy = Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 300})
    slow = chance.choice((0.0, 0.0, 0.3))
    return SwarmRun(
        seed=seed,
        policy=policy,
        theirs=chance.choice(_PROTOCOLS),
        faults=Faults(
            delay_ms_max=chance.choice((2, 10, 40)),
            slow=slow,
            slow_ms_max=400 if slow else 100,
            lead_ms_max=chance.choice((10, 10, 200)),
            awaits_commits=chance.random() < 0.5,
        ),
        acts=tuple(_Author(chance).acts()),
        healed_after_ms=chance.choice(_GAPS_MS),
    )


def _draw_hasty(seed: int, chance: random.Random) -> SwarmRun:
    """Draw a run with changes of members during a round in Kafka's cooperative protocol.

    Another client joins, and partitions must be revoked for it. Meanwhile a member of coopgroup
    changes its subscription, stalls, or dies and comes back. Other draws combine these events once
    in thousands of runs. A separate random generator keeps the other draws unchanged.
    """
    acts = [
        Act(kind=ActKind.RESIZE, topics=("T",), number=chance.randint(3, 6)),
        Act(kind=ActKind.RESIZE, topics=("U",), number=chance.randint(2, 4)),
    ]
    ours = [f"p{number}" for number in range(1, chance.randint(2, 3))]
    for name in ours:
        identity = chance.choice((Identity.STATIC, *Identity))
        client = chance.choice((Client.OURS, Client.BACK))
        start = Act(kind=ActKind.START, process=name, topics=TOPICS)
        acts.append(attrs.evolve(start, identity=identity, client=client))
    # In some runs another client starts first and therefore leads.
    place = chance.choice((2, len(acts)))
    other = Act(kind=ActKind.START, topics=TOPICS, client=Client.OTHER)
    acts.insert(place, attrs.evolve(other, process="f0"))
    for number in range(1, chance.randint(2, 4)):
        acts.append(attrs.evolve(other, process=f"f{number}", after_ms=chance.choice((400, 700))))
        acts.append(_change_of_course(chance, chance.choice(ours)))
    return SwarmRun(
        seed=seed,
        theirs=chance.choice((COOPERATIVE, COOPERATIVE, f"range,{COOPERATIVE}")),
        faults=Faults(
            delay_ms_max=chance.choice((10, 40)),
            slow=0.5,
            commit_interval_ms=30,
            awaits_commits=chance.random() < 0.5,
        ),
        acts=tuple(acts),
        healed_after_ms=chance.choice((0, 300)),
    )


def _change_of_course(chance: random.Random, name: str) -> Act:
    kind = chance.choice((ActKind.SUBSCRIBE, ActKind.STALL, ActKind.CRASH))
    act = Act(after_ms=chance.randint(80, 480), kind=kind, process=name)
    if kind is ActKind.SUBSCRIBE:
        return attrs.evolve(act, topics=chance.choice((("T",), ("U",), TOPICS)))
    return attrs.evolve(act, for_ms=chance.choice((1, 50)) if kind is ActKind.CRASH else 0)


class _Author:
    """Writes the acts; it tracks the processes that exist if no fault interferes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._clients: dict[str, Client] = {}
        self._started = 0

    def acts(self) -> Iterator[Act]:
        """Yield topics, a few starts, and then random acts."""
        chance = self._chance
        kinds = [kind for kind in _KINDS if chance.random() < 0.6] or [ActKind.CLOSE]
        for topic in TOPICS:
            yield self._resize(topic, 0)
        for _ in range(2):
            yield self._start(0)
        for _ in range(chance.randint(3, _ACTS_MAX)):
            gap_ms = chance.choice(_GAPS_MS)
            if chance.random() < 0.5:
                yield self._start(gap_ms)
            else:
                yield from self._something(chance.choice(kinds), gap_ms)

    def _something(self, kind: ActKind, gap_ms: int) -> Iterator[Act]:
        chance = self._chance
        name = chance.choice(sorted(self._clients))
        if kind is ActKind.UPSET and self._clients[name] is Client.OTHER:
            return  # see the module's docstring
        if kind is ActKind.RESIZE:
            yield self._resize(chance.choice(TOPICS), gap_ms)
        elif kind in {ActKind.CLOSE, ActKind.CRASH}:
            yield self._end(kind, name, gap_ms)
        elif kind is ActKind.SUBSCRIBE and chance.random() < 0.5:
            yield Act(after_ms=gap_ms, kind=kind, process=name)  # subscribe to no topics: hand over
            yield self._end(ActKind.CLOSE, name, _HAND_OVER_MS, for_good=True)
        elif kind is ActKind.SUBSCRIBE:
            topics = chance.choice(_SUBSCRIPTIONS)
            yield Act(after_ms=gap_ms, kind=kind, process=name, topics=topics)
        elif kind is ActKind.UPSET:
            yield Act(
                after_ms=gap_ms,
                kind=kind,
                process=name,
                request=chance.choice(("JoinGroup", "SyncGroup", "Heartbeat")),
                mishap=chance.choice(("REQUEST_LOST", "ANSWER_LOST", "REFUSED", "DELAYED")),
                number=chance.choice((14, 27)),
                for_ms=chance.choice(_FOR_MS),
                times=chance.choice((1, 4)),
            )
        else:
            yield Act(after_ms=gap_ms, kind=kind, process=name, for_ms=chance.choice(_FOR_MS))

    def _start(self, gap_ms: int) -> Act:
        chance = self._chance
        if len(self._clients) >= _PROCESSES_MAX:
            return self._end(ActKind.CLOSE, chance.choice(sorted(self._clients)), gap_ms)
        self._started += 1
        name = f"p{self._started}"
        client = chance.choice((Client.OURS, Client.OURS, Client.BACK, Client.OTHER, Client.OTHER))
        self._clients[name] = client
        identity = Identity.NONE
        if client is not Client.OTHER:
            identity = chance.choice((Identity.NONE, Identity.NONE, *Identity))
        topics = chance.choice(_SUBSCRIPTIONS)
        return Act(
            after_ms=gap_ms,
            kind=ActKind.START,
            process=name,
            topics=topics,
            identity=identity,
            client=client,
        )

    def _end(self, kind: ActKind, name: str, gap_ms: int, *, for_good: bool = False) -> Act:
        back_ms = self._chance.choice(_DOWN_MS)
        if for_good or not back_ms or self._clients[name] is Client.OTHER:
            back_ms = 0
            del self._clients[name]
        if not self._clients:
            self._clients[name] = Client.OURS  # it has ended, so acts on it have no effect
        return Act(after_ms=gap_ms, kind=kind, process=name, for_ms=back_ms)

    def _resize(self, topic: str, gap_ms: int) -> Act:
        count = self._chance.randint(1, 6) if topic == "T" else self._chance.randint(1, 3)
        return Act(after_ms=gap_ms, kind=ActKind.RESIZE, topics=(topic,), number=count)


_SUBSCRIPTIONS: Final = (("T",), ("T",), ("T", "U"))
_KINDS: Final = (
    ActKind.CLOSE,
    ActKind.CRASH,
    ActKind.STALL,
    ActKind.PAUSE,
    ActKind.CUT,
    ActKind.SUBSCRIBE,
    ActKind.UPSET,
    ActKind.RESIZE,
)


# --- the others in a run --------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class Guests:
    """Processes of other clients in a group of coopgroup.

    Attributes:
        simulation: the group.
        theirs: protocols of the other clients, joined by commas; "" without other clients.
        processes: by name, including ended processes.
        vanished: resources that did not exist for a time.
    """

    simulation: Simulation
    theirs: str
    processes: dict[str, ForeignProcess | Process] = field(factory=dict)
    vanished: ResourceSet = EMPTY

    def __attrs_post_init__(self) -> None:
        """Let some brokers make a target only once in a while, as Kafka from 4.3 on."""
        if not self.theirs:
            return  # the run has such a broker, or its members know no targets
        group, seed = self.simulation.brokers.coordinator.group, self.simulation.world.seed
        interval_ms = _INTERVALS_MS[seed % len(_INTERVALS_MS)]
        group.settings = attrs.evolve(group.settings, assignment_interval_ms=interval_ms)

    def start(self, act: Act) -> bool:
        """Start a process of another client, or set the protocols of the next coopgroup member.

        Returns:
            Whether the process uses another client.
        """
        simulation, theirs = self.simulation, tuple(self.theirs.split(","))
        if act.client == Client.OTHER:
            if self.theirs == KIP_848:
                self.processes[act.process] = simulation.visit(act.process, act.topics)
                return True
            before = self.processes.get(act.process)
            if self.theirs == HOSTILE and before is not None and before.alive:
                return True
            lies, names = None, theirs
            if self.theirs == HOSTILE:
                dice = simulation.world.dice(f"hostile {act.process}")
                ways = dict(way.split("=") for way in act.lies.split())
                lies, names = Lies(simulation, dice, ways), (simulation.config.protocol_name,)
            foreign = ForeignProcess(simulation, act.process, act.topics, names, lies)
            self.processes[act.process] = foreign
            foreign.start()
            return True
        if self.theirs and self.theirs != HOSTILE:
            names = ("coopgroup", COOPERATIVE if self.theirs == KIP_848 else theirs[-1])
            goes_back = act.client == Client.BACK
            simulation.config = attrs.evolve(
                simulation.config,
                protocols=names[::-1] if goes_back else names,
                eager=goes_back and names[1] != COOPERATIVE,
            )
        return False

    def end(self, act: Act) -> bool:
        """End a process of another client; return whether a process of that name exists."""
        process = self.processes.get(act.process)
        if process is None:
            return False
        if act.kind is ActKind.CLOSE:
            process.close()
        elif act.kind is ActKind.CRASH:
            process.crash()
        return True

    @property
    def alive(self) -> list[ForeignProcess | Process]:
        """Living processes, in starting order."""
        return [process for process in self.processes.values() if process.alive]

    def is_at_rest(self) -> bool:
        """Return whether every subscribed resource has an owner, and all members are idle."""
        simulation, guests = self.simulation, self.alive
        ours = [process for process in simulation.alive if process.topics]
        idle = [process for process in simulation.alive if not process.topics]
        group = simulation.brokers.coordinator.group
        owned = [process.session.member.owned for process in ours]
        owned += [process.owned for process in guests]
        topics = {topic for process in ours for topic in process.topics}
        topics |= {topic for process in guests for topic in process.topics}
        wanted = simulation.brokers.existing().restrict_names(topics)
        return (
            group.state is (GroupState.STABLE if topics else GroupState.EMPTY)
            and len(group.seats) == len(ours) + len(guests)
            and all(process.is_at_rest for process in ours)
            # they stay outside the group
            and not any(process.session.member.owned for process in idle)
            and all(process.is_at_rest for process in guests)
            and sum(map(len, owned)) == len(wanted)
            and ResourceSet.union_all([ResourceSet(), *owned]) == wanted
        )

    def settle(
        self, until_rest: Callable[[Callable[[], bool]], bool], *, plain: bool
    ) -> tuple[Violation, ...]:
        """Let the group come to rest with and without other clients, then check the whole run.

        Args:
            until_rest: lets time pass until a condition has held for a while; returns whether it
                did.
            plain: whether all members had the same subscription all the time.
        """
        simulation = self.simulation
        found: list[Violation] = []
        if not until_rest(self.is_at_rest):
            found.append(self._restless("with other clients"))
        for process in self.alive:
            process.close()
        if simulation.alive:
            if not until_rest(self.is_at_rest):
                found.append(self._restless("without other clients"))
            found += self._check_protocol()
        found += [*simulation.world.violations, *self._check_telemetry(plain=plain)]
        forgotten = self.simulation.brokers.coordinator.forgotten
        names = {f"{name}-{index}" for name, index in forgotten}
        found = [one for one in found if not names & set(re.findall(r"\w+-\d+", one.message))]
        return tuple(sorted(found, key=lambda one: one.at_ms))

    def _restless(self, when: str) -> Violation:
        simulation = self.simulation
        held = {process.name: process.session.member.owned for process in simulation.alive}
        held |= {process.name: process.owned for process in self.alive}
        shares = {name: owned.to_dict() for name, owned in held.items()}
        state = simulation.brokers.coordinator.group.state
        message = f"no rest {when}: {state}, {shares}"
        return Violation(checker="rest", at_ms=simulation.world.now_ms, message=message)

    def _check_protocol(self) -> Iterator[Violation]:
        """Yield a violation if all members prefer coopgroup, but the group uses another."""
        simulation = self.simulation
        spoken = simulation.brokers.coordinator.group.protocol_name
        members = [process for process in simulation.alive if process.topics]
        wanted = {process.config.protocols[0] for process in members}
        if wanted == {"coopgroup"} and spoken != "coopgroup":
            message = f"the group of ours speaks {spoken}"
            yield Violation(checker="protocol", at_ms=simulation.world.now_ms, message=message)

    def _check_telemetry(self, *, plain: bool) -> Iterator[Violation]:
        """Yield double owners, wrong starts and stops of coopgroup members, and disorderly commits.

        Starts and stops are checked only in the cooperative protocol with unchanged subscriptions.
        No leader orders the stops before an eager round or after a smaller subscription.
        """
        telemetry = self.simulation.world.telemetry
        # A group of KIP-848 knows partitions by the id of their topic. If a topic is made again,
        # the broker gives its partitions away at once, and their old owners hear of it later.
        again = tuple(f"{name}-{index} is with " for name, index in self.vanished)
        for found in check_single_owner(telemetry):
            if self.theirs != KIP_848 or not found.message.startswith(again):
                yield found
        ours = [envelope for envelope in telemetry if envelope.client not in self.processes]
        yield from check_commits(ours)
        if self.theirs in {COOPERATIVE, KIP_848} and plain:
            yield from check_pairs(ours, stop_max_ms=self.simulation.config.rebalance_timeout_ms)
