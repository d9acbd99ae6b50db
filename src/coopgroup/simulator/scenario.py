"""A scenario: a group, its load, its surroundings, and what happens to it.

Rules of this file: frozen values only, in the words of the scenario file (docs: scenarios); every
time is in virtual ms from the begin of the run, every rate in records per second. A value knows
nothing of how it is played: `deployment` plays the events, `scenario_file` reads the values.

A run has two parts. For `duration_ms` everything happens that the scenario says. Then, for
`settle_ms`, nothing is cut, lost or restarted any more, and by its end the group has to have
converged. Production goes on all the time.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from coopgroup.model import ResourceSet
from coopgroup.simulator.scenario_shares import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Rate,
    Shares,
    Topic,
    Weight,
)

__all__ = [
    "LEADER",
    "AddPartitions",
    "Capacity",
    "Choice",
    "Close",
    "CoordinatorLost",
    "CoordinatorMoved",
    "Cost",
    "Crash",
    "CreateTopic",
    "Cut",
    "DeleteTopic",
    "Event",
    "Flap",
    "Group",
    "How",
    "Identity",
    "MemberSet",
    "Network",
    "Pause",
    "Rate",
    "RollingRestart",
    "Scale",
    "Scenario",
    "Shares",
    "Span",
    "Topic",
    "Weight",
]

LEADER: Final = "leader"
"""In place of a process's name: the one whose member leads the group when the event strikes."""


class Identity(enum.StrEnum):
    """By what a process that comes back proves who it was."""

    NONE = "none"
    STATIC = "static"
    STATE_DIR = "state-dir"


class How(enum.StrEnum):
    """How a process ends: it closes its consumer and leaves the group, or it is killed."""

    CLOSE = "close"
    CRASH = "crash"


@frozen
class Span:
    """Numbers from `low` to `high`, both included, of which one is drawn each time."""

    low: int
    high: int


@frozen(kw_only=True)
class Choice:
    """A policy or an assignor by name, with options.

    Attributes:
        name: as the registry knows it.
        options: keyword arguments of its factory.
    """

    name: str
    options: Mapping[str, object] = field(factory=dict, hash=False)

    def __str__(self) -> str:
        """As the command line takes it: `NAME`, or `NAME:KEY=VALUE,KEY=VALUE`."""
        pairs = [f"{key}={_word(value)}" for key, value in sorted(self.options.items())]
        return f"{self.name}:{','.join(pairs)}" if pairs else self.name


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@frozen(kw_only=True)
class Group:
    """How the members of the group are configured, all alike.

    Attributes:
        policy: when resources move.
        assignor: where they go.
        session_timeout_ms: silence after which the group coordinator removes a member.
        rebalance_timeout_ms: how long the group coordinator waits for members to rejoin.
        heartbeat_interval_ms: time between heartbeats of a member.
        window_heartbeat_interval_ms: the same while a delay runs or something is being stopped.
        commit_interval_ms: time between commits of a member; 0 for commits on stops only.
    """

    policy: Choice = Choice(name="simple")
    assignor: Choice = Choice(name="sticky")
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    window_heartbeat_interval_ms: int = 250
    commit_interval_ms: int = 5_000


@frozen(kw_only=True)
class MemberSet:
    """Processes that are alike, as a deployment starts them.

    Attributes:
        name: of the set. Its processes are called NAME-1, NAME-2 and so on; where `count` is None
            there is one, called NAME itself, and it cannot be scaled.
        count: processes at the begin, or None.
        topics: what they subscribe to; may name topics that are created later. Members of a group
            of named resources take them all.
        identity: by what a process that comes back proves who it was.
        capacity_per_s: records that a process works off per second, over all its partitions;
            infinite for as many as there are.
        start_ms: when the first process starts.
        start_every_ms: time from the start of one process to that of the next; 0 for all at once.
        clock_skew_ppm: by how much the clock of each process runs fast (slow where negative), in
            millionths; drawn once for each process.
    """

    name: str
    count: int | None = None
    topics: tuple[str, ...]
    identity: Identity = Identity.NONE
    capacity_per_s: float = math.inf
    start_ms: int = 0
    start_every_ms: int = 0
    clock_skew_ppm: Span = Span(0, 0)

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of the processes at the begin, in the order in which they start."""
        if self.count is None:
            return (self.name,)
        return tuple(self.process(number) for number in range(1, self.count + 1))

    def process(self, number: int) -> str:
        """Name of one process of a set with a count, counted from 1."""
        return f"{self.name}-{number}"


@frozen(kw_only=True)
class Cost:
    """What it takes to hand resources over, each on its own and drawn anew each time.

    Attributes:
        resources: for which; None for all that no other cost names.
        stop_ms: from the revocation to the end of work.
        commit_ms: to flush and commit, after the stop.
        restore_ms: from the assignment to the first record worked off.
    """

    resources: ResourceSet | None = None
    stop_ms: Span = Span(0, 0)
    commit_ms: Span = Span(0, 0)
    restore_ms: Span = Span(0, 0)


@frozen(kw_only=True)
class Network:
    """Between every process and the group coordinator.

    Attributes:
        delay_ms: of a request or an answer, one way; the order of a connection is kept.
        loss: part of the requests and answers that is lost together with its connection, from 0
            up to but not including 1.
    """

    delay_ms: Span = Span(1, 1)
    loss: float = 0.0


# --- events -------------------------------------------------------------------------------------
# `member` is the name of a process or LEADER; `members` are names of sets or processes, in the
# order in which they are taken; a set stands for all its processes at that moment.


@frozen(kw_only=True)
class Crash:
    """A process is killed; what it worked on is neither committed nor given up.

    Attributes:
        at_ms: when.
        member: which process.
        back_after_ms: time until it starts again, as a new process of the same name; None for
            never.
    """

    at_ms: int
    member: str
    back_after_ms: int | None = None


@frozen(kw_only=True)
class Close:
    """A process closes its consumer and ends.

    A consumer without proof of identity leaves the group; one that can prove it when it comes
    back does what production does.

    Attributes:
        at_ms: when.
        member: which process.
        back_after_ms: time from its end until it starts again; None for never.
    """

    at_ms: int
    member: str
    back_after_ms: int | None = None


@frozen(kw_only=True)
class Pause:
    """A process stands still, as under SIGSTOP, and goes on as if nothing had been.

    Attributes:
        at_ms: when.
        member: which process.
        for_ms: how long.
    """

    at_ms: int
    member: str
    for_ms: int


@frozen(kw_only=True)
class RollingRestart:
    """Processes end and come back, some at a time.

    Attributes:
        at_ms: when the first batch ends.
        members: which, first to last.
        down_ms: time from the end of a process to its new start.
        every_ms: time from the end of one batch to the end of the next.
        batch: processes that go at once.
        how: how they end.
    """

    at_ms: int
    members: tuple[str, ...]
    down_ms: int
    every_ms: int
    batch: int = 1
    how: How = How.CLOSE


@frozen(kw_only=True)
class Scale:
    """A set grows by new processes, or shrinks by those with the highest numbers.

    Attributes:
        at_ms: when the first one starts or ends.
        members: name of a set with a count.
        to: processes afterwards.
        every_ms: time from one process to the next; 0 for all at once.
        how: how they end, if the set shrinks.
    """

    at_ms: int
    members: str
    to: int
    every_ms: int = 0
    how: How = How.CLOSE


@frozen(kw_only=True)
class Flap:
    """A process ends and comes back again and again.

    Attributes:
        at_ms: when it ends for the first time.
        member: which process.
        up_ms: time from each start to the next end.
        down_ms: time from each end to the next start.
        times: how often it ends.
        how: how it ends.
    """

    at_ms: int
    member: str
    up_ms: int
    down_ms: int
    times: int
    how: How = How.CRASH


@frozen(kw_only=True)
class Cut:
    """Processes cannot reach the group coordinator, nor it them.

    Attributes:
        at_ms: when.
        members: which, or LEADER among them.
        for_ms: how long.
    """

    at_ms: int
    members: tuple[str, ...]
    for_ms: int


@frozen(kw_only=True)
class CoordinatorLost:
    """The broker that is the group coordinator dies; another one loads the group after a while.

    Attributes:
        at_ms: when.
        for_ms: how long there is no group coordinator.
    """

    at_ms: int
    for_ms: int


@frozen(kw_only=True)
class CoordinatorMoved:
    """Another broker becomes the group coordinator without a gap; the old one says so.

    Attributes:
        at_ms: when.
    """

    at_ms: int


@frozen(kw_only=True)
class Capacity:
    """From now on processes work faster or slower, those that start later included.

    Attributes:
        at_ms: when.
        members: which.
        capacity_per_s: records per second of each.
    """

    at_ms: int
    members: tuple[str, ...]
    capacity_per_s: float


Event: TypeAlias = (
    Crash
    | Close
    | Pause
    | RollingRestart
    | Scale
    | Flap
    | Cut
    | CoordinatorLost
    | CoordinatorMoved
    | AddPartitions
    | CreateTopic
    | DeleteTopic
    | Rate
    | Weight
    | Capacity
)


@frozen(kw_only=True)
class Scenario:
    """Everything that a run needs but the seed.

    Attributes:
        name: short name, of the file for one that was read.
        description: what it shows, for people.
        duration_ms: how long things happen.
        settle_ms: how long the run goes on after that, undisturbed.
        group: how the members are configured.
        shares: what kind of resources the group shares.
        topics: those at the begin.
        members: processes at the begin, as sets.
        costs: what it takes to hand resources over; at most one without resources.
        network: between processes and group coordinator.
        events: what happens, in order of time.
        policies: options that policies have in this scenario if they are chosen by name alone.
    """

    name: str = "scenario"
    description: str = ""
    duration_ms: int
    settle_ms: int = 60_000
    group: Group = Group()
    shares: Shares = Shares.TOPICS
    topics: tuple[Topic, ...]
    members: tuple[MemberSet, ...]
    costs: tuple[Cost, ...] = ()
    network: Network = Network()
    events: tuple[Event, ...] = ()
    policies: tuple[Choice, ...] = ()

    @property
    def end_ms(self) -> int:
        """When the run ends."""
        return self.duration_ms + self.settle_ms

    def policy_named(self, name: str) -> Choice:
        """The policy of that name with the options that it has in this scenario."""
        known = (*self.policies, self.group.policy)
        return next((choice for choice in known if choice.name == name), Choice(name=name))
