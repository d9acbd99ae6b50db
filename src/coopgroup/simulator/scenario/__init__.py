"""A scenario: a group, its load, its environment, and the events during the run.

All values are frozen and use the terms of the scenario file (docs: simulator). Times are in virtual
ms from the start of the run, rates in records per second. The values do not contain behaviour:
`deployment` plays the events, `file` reads the values. Each value checks its own bounds when it is
made; `checks` holds the rules between values.

A run has two parts. All events happen within `duration_ms`. The following `settle_ms` are free of
faults and restarts, and by their end the group must have converged. Production never stops.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import Attribute, evolve, field, frozen
from attrs.validators import optional

from coopgroup.core.member.config import GroupProtocol
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.traits import Traits
from coopgroup.errors import ConfigurationError
from coopgroup.reading import OneOrMore, are_traits, between

__all__ = [
    "BY_BROKER",
    "LEADER",
    "PROCESSES_MAX",
    "AddPartitions",
    "Bell",
    "Capacity",
    "Choice",
    "Client",
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
    "HandOver",
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

RESOURCES_MAX: Final = 1_000_000
"""Limit of resources in a scenario, for example the partitions of all topics together."""

RATE_MAX_PER_S: Final = 10**9
"""Limit of records per second of one partition, so that every offset fits in an int64."""


class Shares(enum.StrEnum):
    """The kind of resources that a group shares, by the name of its table in a file."""

    TOPICS = "topics"
    """Partitions, with records."""

    CONNECTORS = "connectors"
    """Connectors: each connector (index -1) and its tasks, with weights."""

    RESOURCES = "resources"
    """Resources with a name and a number, with weights."""

    @property
    def index_min(self) -> int:
        """The first index of each name."""
        return -1 if self is Shares.CONNECTORS else 0

    @property
    def key(self) -> str:
        """The key of a resource name in the events of a file."""
        return "topic" if self is Shares.TOPICS else "name"


def _name(_: object, attribute: Attribute[str], value: str) -> None:
    if not value:
        raise ConfigurationError(attribute.name, value, "a name")


def rates(_: object, attribute: Attribute[Any], value: float | tuple[float, ...]) -> None:
    """Validate a rate, or the rate of each partition."""
    for rate in value if isinstance(value, tuple) else (value,):
        if not 0 <= rate <= RATE_MAX_PER_S:
            expected = f"a finite number from 0 to {RATE_MAX_PER_S}"
            raise ConfigurationError(attribute.name, rate, expected)


def one_for_each(count: str, *, may_be_empty: bool = False) -> Any:  # noqa: ANN401 - validator
    """Return a validator for a list with one number per part; the field `count` has their count."""

    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        parts = getattr(owner, count)
        if may_be_empty and not value:
            return
        if isinstance(value, tuple) and len(value) != parts:
            expected = f"as many numbers as {count} ({parts})"
            raise ConfigurationError(attribute.name, list(value), expected)

    return check


@frozen(kw_only=True)
class Topic:
    """A topic and its production, a connector with its tasks, or other named resources.

    Attributes:
        partitions: partition count; a connector itself, of index -1, does not count.
        rate_per_s: records produced per second to each partition, one number per partition; 0 for
            no production.
        weights: weight of each, used by assignors that need weights instead of lags; empty for
            topics. A connector itself weighs 1.
    """

    name: str = field(validator=_name)
    partitions: int = field(validator=between(1, RESOURCES_MAX))
    rate_per_s: tuple[float, ...] = field(validator=[one_for_each("partitions"), rates])
    weights: tuple[int, ...] = field(
        default=(), validator=[one_for_each("partitions", may_be_empty=True), between(0)]
    )


@frozen(kw_only=True)
class AddPartitions:
    """A topic gets more partitions, or a connector more tasks.

    Attributes:
        rate_per_s: records per second to each new partition, one number per partition.
        weights: weight of each new resource; empty for partitions.
    """

    at_ms: int = field(validator=between(0))
    topic: str
    rate_per_s: tuple[float, ...] = field(validator=rates)
    weights: tuple[int, ...] = field(default=(), validator=between(0))


@frozen(kw_only=True)
class CreateTopic:
    """A new topic appears, or a connector, perhaps under the name of a deleted one."""

    at_ms: int = field(validator=between(0))
    topic: Topic


@frozen(kw_only=True)
class DeleteTopic:
    """A topic is deleted and never comes back, or a connector is deleted."""

    at_ms: int = field(validator=between(0))
    topic: str


@frozen(kw_only=True)
class Rate:
    """From now on partitions get more or fewer records.

    Attributes:
        partitions: indices of its partitions, ascending; None for all.
    """

    at_ms: int = field(validator=between(0))
    topic: str
    partitions: tuple[int, ...] | None = None
    rate_per_s: float = field(validator=rates)


@frozen(kw_only=True)
class Weight:
    """From now on resources weigh more or less.

    Attributes:
        partitions: indices, ascending, without a connector itself; None for all.
    """

    at_ms: int = field(validator=between(0))
    topic: str
    partitions: tuple[int, ...] | None = None
    weight: int = field(validator=between(0))


LEADER: Final = "leader"
"""Replaces a process name: the process whose member leads the group at the time of the event."""

PROCESSES_MAX: Final = 10_000
"""Limit of processes in a scenario."""

_PPM: Final = 1_000_000


class Identity(enum.StrEnum):
    """How a returning process proves its identity."""

    NONE = "none"
    STATIC = "static"
    STATE_DIR = "state-dir"


class Client(enum.StrEnum):
    """What a process uses: coopgroup, or another client with `group.protocol=consumer` (KIP-848).

    The other client has no lease, no bell, and no identity.
    """

    COOPGROUP = "coopgroup"
    KIP_848 = "kip-848"


class How(enum.StrEnum):
    """How a process ends: it closes its consumer, hands over before it closes, or is killed."""

    CLOSE = "close"
    CRASH = "crash"
    HAND_OVER = "hand-over"


@frozen
class Span:
    """An integer range with both limits included; each use draws one number."""

    low: int
    high: int


def _span(_: object, attribute: Attribute[Span], value: Span) -> None:
    in_bounds = between(1 - _PPM if attribute.name == "clock_skew_ppm" else 0)
    in_bounds(_, attribute, value.low)
    in_bounds(_, attribute, value.high)
    if value.high < value.low:
        shown = [value.low, value.high]
        raise ConfigurationError(attribute.name, shown, "the smaller number before the larger")


def _capacity(_: object, attribute: Attribute[float], value: float) -> None:
    if not value > 0:
        raise ConfigurationError(attribute.name, value, "a number greater than 0, or inf")


def _loss(_: object, attribute: Attribute[float], value: float) -> None:
    if not 0 <= value < 1:
        expected = "a number from 0 up to but not including 1"
        raise ConfigurationError(attribute.name, value, expected)


def _set_name(_: object, attribute: Attribute[str], value: str) -> None:
    if not value or value == LEADER:
        raise ConfigurationError(attribute.name, value, f"a name other than {LEADER!r}")


@frozen(kw_only=True)
class Choice:
    """A policy or an assignor by name, with options."""

    name: str
    options: Mapping[str, object] = field(factory=dict, hash=False)

    def __str__(self) -> str:
        """Return the choice as the command line takes it."""
        pairs = [f"{key}={_word(value)}" for key, value in _flat(self.options)]
        return f"{self.name}:{','.join(pairs)}" if pairs else self.name


BY_BROKER: Final = Choice(name=GroupProtocol.CONSUMER.value)
"""In the place of a policy: the broker assigns, to members with `group.protocol=consumer`."""


def _flat(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield all options, those of an option with dots: `warmup.timeout_ms`."""
    for key, value in sorted(options.items()):
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@frozen(kw_only=True)
class Group:
    """Configuration shared by all members of the group.

    Attributes:
        session_timeout_ms: silence after which the group coordinator removes a member.
        rebalance_timeout_ms: how long the group coordinator waits for members to rejoin.
        window_heartbeat_interval_ms: the same during a delay or a revocation.
        commit_interval_ms: time between commits of a member; 0 for commits on stops only.
    """

    policy: Choice = Choice(name="simple")
    assignor: Choice = Choice(name="sticky")
    session_timeout_ms: int = field(default=45_000, validator=between(1))
    rebalance_timeout_ms: int = field(default=300_000, validator=between(1))
    heartbeat_interval_ms: int = field(default=3_000, validator=between(1))
    window_heartbeat_interval_ms: int = field(default=250, validator=between(1))
    commit_interval_ms: int = field(default=5_000, validator=between(0))


@frozen(kw_only=True)
class MemberSet:
    """A set of identical processes, as a deployment starts them.

    Attributes:
        name: name of the set. Its processes are called NAME-1, NAME-2 and so on. If `count` is
            None, there is one process, called NAME, and the set cannot be scaled.
        topics: subscribed topics, including topics that are created later. Members of a group of
            named resources subscribe to all of them.
        protocol: group protocol of members of coopgroup: with KIP-848 the broker assigns.
        capacity_per_s: records that a process handles per second, over all its partitions;
            infinite for no limit.
        start_every_ms: time between the starts of two processes; 0 starts all together.
        clock_skew_ppm: how much the clock of each process runs fast (negative: slow), in
            millionths; drawn once for each process.
        keeps_state: whether a process that returns finds the state of its resources on its disk.
        traits: what assignor and policy are told about each process.
    """

    name: str = field(validator=_set_name)
    count: int | None = field(default=None, validator=between(0))
    topics: tuple[str, ...]
    client: Client = Client.COOPGROUP
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    identity: Identity = Identity.NONE
    capacity_per_s: float = field(default=math.inf, validator=_capacity)
    start_ms: int = field(default=0, validator=between(0))
    start_every_ms: int = field(default=0, validator=between(0))
    clock_skew_ppm: Span = field(default=Span(0, 0), validator=_span)
    keeps_state: bool = False
    traits: Traits = field(factory=dict, validator=are_traits, hash=False)

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of the processes at the start, in starting order."""
        if self.count is None:
            return (self.name,)
        return tuple(self.process(number) for number in range(1, self.count + 1))

    def process(self, number: int) -> str:
        """Return the name of one process of a set with a count; `number` starts at 1."""
        return f"{self.name}-{number}"


@frozen(kw_only=True)
class Cost:
    """The time that a handover of resources takes; each time is drawn anew for each resource.

    Attributes:
        resources: affected resources; None for all resources without a cost of their own.
        stop_ms: from the revocation to the end of work.
        commit_ms: to flush and commit, after the stop.
        restore_ms: from the assignment to the first handled record, or the time of a warm-up.
        return_ms: as `restore_ms`, if no other process has worked on the resource since this one
            did, for example after a restart; None for `restore_ms`.
        warm_restore_ms: from the assignment to the first handled record, if the state is local.
    """

    resources: ResourceSet | None = None
    stop_ms: Span = field(default=Span(0, 0), validator=_span)
    commit_ms: Span = field(default=Span(0, 0), validator=_span)
    restore_ms: Span = field(default=Span(0, 0), validator=_span)
    return_ms: Span | None = field(default=None, validator=optional(_span))
    warm_restore_ms: Span = field(default=Span(0, 0), validator=_span)


@frozen(kw_only=True)
class Network:
    """The network between every process and the group coordinator.

    Attributes:
        delay_ms: of a request or an answer, one way; each connection keeps its order.
        loss: fraction of the requests and answers that is lost together with its connection, at
            least 0 and less than 1.
    """

    delay_ms: Span = field(default=Span(1, 1), validator=_span)
    loss: float = field(default=0.0, validator=_loss)


@frozen(kw_only=True)
class Bell:
    """Rings that tell members of a round ahead of their heartbeats.

    Attributes:
        delay_ms: time from a ring until a process hears it.
        loss: fraction of the rings that a process does not hear, at least 0 and less than 1.
        false_every_ms: mean time between rings without a round; 0 for none.
    """

    delay_ms: Span = field(default=Span(2, 4), validator=_span)
    loss: float = field(default=0.0, validator=_loss)
    false_every_ms: int = field(default=0, validator=between(0))


# --- events -------------------------------------------------------------------------------------
# `member` is the name of a process or LEADER. `members` are names of sets or processes, in the
# order of their turns. The name of a set means all its processes at that moment.


@frozen(kw_only=True)
class Crash:
    """A process is killed; its work is neither committed nor given up.

    Attributes:
        back_after_ms: time until a new process of the same name starts; None for never.
    """

    at_ms: int = field(validator=between(0))
    member: str
    back_after_ms: int | None = field(default=None, validator=between(0))


@frozen(kw_only=True)
class Close:
    """A process closes its consumer and ends.

    A dynamic member leaves the group. A member that can prove its identity later behaves as in
    production.

    Attributes:
        back_after_ms: time from its end to its next start; None for never.
    """

    at_ms: int = field(validator=between(0))
    member: str
    back_after_ms: int | None = field(default=None, validator=between(0))


@frozen(kw_only=True)
class HandOver:
    """A process gives its resources to the group, and closes when it has none left.

    Attributes:
        back_after_ms: time from its end to its next start; None for never.
    """

    at_ms: int = field(validator=between(0))
    member: str
    back_after_ms: int | None = field(default=None, validator=between(0))


@frozen(kw_only=True)
class Pause:
    """A process is paused, as under SIGSTOP, and resumes without knowing of the pause."""

    at_ms: int = field(validator=between(0))
    member: str
    for_ms: int = field(validator=between(1))


@frozen(kw_only=True)
class RollingRestart:
    """Processes end and come back, in batches.

    Attributes:
        down_ms: time from the end of a process to its next start.
        every_ms: time from the end of a batch to the end of the next batch.
    """

    at_ms: int = field(validator=between(0))
    members: OneOrMore[str]
    down_ms: int = field(validator=between(0))
    every_ms: int = field(validator=between(0))
    batch: int = field(default=1, validator=between(1))
    how: How = How.CLOSE


@frozen(kw_only=True)
class Scale:
    """A set grows by new processes, or shrinks by the processes with the highest numbers.

    Attributes:
        every_ms: time between two processes; 0 for all together.
    """

    at_ms: int = field(validator=between(0))
    members: str
    to: int = field(validator=between(0, PROCESSES_MAX))
    every_ms: int = field(default=0, validator=between(0))
    how: How = How.CLOSE


@frozen(kw_only=True)
class Flap:
    """A process ends and comes back again and again.

    Attributes:
        up_ms: time from each start to the next end.
        down_ms: time from each end to the next start.
    """

    at_ms: int = field(validator=between(0))
    member: str
    up_ms: int = field(validator=between(1))
    down_ms: int = field(validator=between(0))
    times: int = field(validator=between(1))
    how: How = How.CRASH


@frozen(kw_only=True)
class Cut:
    """Processes and the group coordinator cannot reach each other."""

    at_ms: int = field(validator=between(0))
    members: OneOrMore[str]
    for_ms: int = field(validator=between(1))


@frozen(kw_only=True)
class CoordinatorLost:
    """The broker with the group coordinator dies; another broker loads the group later."""

    at_ms: int = field(validator=between(0))
    for_ms: int = field(validator=between(1))


@frozen(kw_only=True)
class CoordinatorMoved:
    """Another broker becomes the group coordinator without a gap; the old broker tells clients."""

    at_ms: int = field(validator=between(0))


@frozen(kw_only=True)
class Capacity:
    """From now on processes work faster or slower, including processes that start later."""

    at_ms: int = field(validator=between(0))
    members: OneOrMore[str]
    capacity_per_s: float = field(validator=_capacity)


Event: TypeAlias = (
    Crash
    | Close
    | HandOver
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
    """All inputs of a run except the seed.

    Attributes:
        name: short name, derived from the file name.
        duration_ms: length of the part with events.
        settle_ms: length of the undisturbed part that follows.
        costs: times of a handover; at most one cost without resources.
        bell: the bell of the group, None without one.
        policies: options of policies that are chosen by name alone.
    """

    name: str = "scenario"
    description: str = ""
    duration_ms: int = field(validator=between(1))
    settle_ms: int = field(default=60_000, validator=between(0))
    group: Group = Group()
    shares: Shares = Shares.TOPICS
    topics: tuple[Topic, ...]
    members: tuple[MemberSet, ...]
    costs: tuple[Cost, ...] = ()
    network: Network = Network()
    bell: Bell | None = None
    events: tuple[Event, ...] = ()
    policies: tuple[Choice, ...] = ()

    @property
    def end_ms(self) -> int:
        """When the run ends."""
        return self.duration_ms + self.settle_ms

    @property
    def move_ms(self) -> float:
        """Mean time to restore a partition: the price of a move to a process without its state."""
        sizes = {topic.name: topic.partitions for topic in self.topics}
        rest, total = max(1, sum(sizes.values())), 0.0
        others = 0.0
        count = rest
        for cost in self.costs:
            mean_ms = (cost.restore_ms.low + cost.restore_ms.high) / 2
            if cost.resources is None:
                others = mean_ms
                continue
            named = sum(name in sizes for name, _ in cost.resources)
            rest, total = rest - named, total + named * mean_ms
        return (total + max(0, rest) * others) / count

    @property
    def returns_pay(self) -> bool:
        """Whether a process that returns to a partition restores it as long as a newcomer."""
        return all(cost.return_ms is None for cost in self.costs) and not any(
            members.keeps_state for members in self.members
        )

    def with_policy(self, choice: Choice) -> Scenario:
        """Return the scenario with another policy.

        `BY_BROKER` gives all members of coopgroup the group protocol of KIP-848 instead.
        """
        members = self.members
        if choice == BY_BROKER:
            members = tuple(
                evolve(one, protocol=GroupProtocol.CONSUMER)
                if one.client is Client.COOPGROUP
                else one
                for one in members
            )
        return evolve(self, group=evolve(self.group, policy=choice), members=members)

    def policy_named(self, name: str) -> Choice:
        """Return the policy of that name with its options in this scenario."""
        known = (*self.policies, self.group.policy)
        return next((choice for choice in known if choice.name == name), Choice(name=name))
