"""Read scenario files: TOML to a `Scenario`, with errors that name file, key path and value.

A file writes one number where a value has one for each partition, and names the parts of a resource
as people do: partitions, tasks, a count. These tables have classes of their own. All other tables
are the values themselves.

`coopgroup.reading` turns tables into values and checks types and bounds. Afterwards `checks` checks
the scenario as a whole.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import attrs
from attrs import evolve, field, frozen

from coopgroup.core.assignors.weighted import WeightedAssignor
from coopgroup.reading import (
    NOTHING,
    Hook,
    Row,
    StrictConverter,
    between,
    choice_hook,
    in_file,
    is_number,
    located,
    parse_toml,
    read_text,
    structure,
    table_hook,
    wrong,
)
from coopgroup.simulator import scenario as values
from coopgroup.simulator.scenario import (
    RESOURCES_MAX,
    AddPartitions,
    Bell,
    Choice,
    Cost,
    CreateTopic,
    DeleteTopic,
    Event,
    Group,
    MemberSet,
    Network,
    Scenario,
    Shares,
    Span,
    Topic,
    Weight,
    one_for_each,
    rates,
)
from coopgroup.simulator.scenario.checks import check_scenario
from coopgroup.simulator.scenario.times import partition_counts

_Number = TypeVar("_Number", int, float)
_Rates: TypeAlias = float | tuple[float, ...]
_Weights: TypeAlias = int | tuple[int, ...]


def _each(given: _Number | tuple[_Number, ...], count: int) -> tuple[_Number, ...]:
    """Return one number per part; a single number applies to all."""
    return given if isinstance(given, tuple) else (given,) * count


_COUNT: Final = between(1, RESOURCES_MAX)


# --- what a group shares ------------------------------------------------------------------------


@frozen(kw_only=True)
class TopicTable:
    """`[topics.NAME]`."""

    partitions: int = field(validator=_COUNT)
    rate_per_s: _Rates = field(validator=[one_for_each("partitions"), rates])


@frozen(kw_only=True)
class ConnectorTable:
    """`[connectors.NAME]`."""

    tasks: int = field(validator=_COUNT)
    weight: _Weights = field(default=1, validator=[one_for_each("tasks"), between(0)])


@frozen(kw_only=True)
class ResourcesTable:
    """`[resources.NAME]`."""

    count: int = field(validator=_COUNT)
    weight: _Weights = field(default=1, validator=[one_for_each("count"), between(0)])


def named_topic(name: str, table: TopicTable | ConnectorTable | ResourcesTable) -> Topic:
    """Return the topic, connector or other resource of a table."""
    match table:
        case TopicTable(partitions=count):
            return Topic(name=name, partitions=count, rate_per_s=_each(table.rate_per_s, count))
        case ConnectorTable(tasks=count) | ResourcesTable(count=count):
            return Topic(
                name=name,
                partitions=count,
                rate_per_s=(0.0,) * count,
                weights=_each(table.weight, count),
            )


KEYS: Final[Mapping[Shares, tuple[str, ...]]] = types.MappingProxyType(
    {
        kind: tuple(one.name for one in attrs.fields(table))
        for kind, table in (
            (Shares.TOPICS, TopicTable),
            (Shares.CONNECTORS, ConnectorTable),
            (Shares.RESOURCES, ResourcesTable),
        )
    }
)
"""Keys of the tables of each kind."""


# --- events -------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _CreateTopic:
    at_ms: int
    topic: str
    partitions: int = field(validator=_COUNT)
    rate_per_s: _Rates = field(validator=[one_for_each("partitions"), rates])

    def event(self) -> CreateTopic:
        table = TopicTable(partitions=self.partitions, rate_per_s=self.rate_per_s)
        return CreateTopic(at_ms=self.at_ms, topic=named_topic(self.topic, table))


@frozen(kw_only=True)
class _AddPartitions:
    at_ms: int
    topic: str
    count: int = field(validator=_COUNT)
    rate_per_s: _Rates = field(validator=[one_for_each("count"), rates])

    def event(self) -> AddPartitions:
        added = _each(self.rate_per_s, self.count)
        return AddPartitions(at_ms=self.at_ms, topic=self.topic, rate_per_s=added)


@frozen(kw_only=True)
class _CreateResources:
    at_ms: int
    name: str
    count: int = field(validator=_COUNT)
    weight: _Weights = field(default=1, validator=[one_for_each("count"), between(0)])

    def event(self) -> CreateTopic:
        table = ResourcesTable(count=self.count, weight=self.weight)
        return CreateTopic(at_ms=self.at_ms, topic=named_topic(self.name, table))


@frozen(kw_only=True)
class _AddResources:
    at_ms: int
    name: str
    count: int = field(validator=_COUNT)
    weight: _Weights = field(default=1, validator=[one_for_each("count"), between(0)])

    def event(self) -> AddPartitions:
        return AddPartitions(
            at_ms=self.at_ms,
            topic=self.name,
            rate_per_s=(0.0,) * self.count,
            weights=_each(self.weight, self.count),
        )


@frozen(kw_only=True)
class _DeleteResources:
    at_ms: int
    name: str

    def event(self) -> DeleteTopic:
        return DeleteTopic(at_ms=self.at_ms, topic=self.name)


@frozen(kw_only=True)
class _Weight:
    at_ms: int
    name: str
    indices: tuple[int, ...] | None = None
    weight: int

    def event(self) -> Weight:
        return Weight(
            at_ms=self.at_ms, topic=self.name, partitions=self.indices, weight=self.weight
        )


_OF_ALL: Final[dict[str, type]] = {
    "close": values.Close,
    "coordinator_lost": values.CoordinatorLost,
    "coordinator_moved": values.CoordinatorMoved,
    "crash": values.Crash,
    "cut": values.Cut,
    "flap": values.Flap,
    "hand_over": values.HandOver,
    "pause": values.Pause,
    "rolling_restart": values.RollingRestart,
    "scale": values.Scale,
}
_OF_TOPICS: Final[dict[str, type]] = {
    "add_partitions": _AddPartitions,
    "capacity": values.Capacity,
    "create_topic": _CreateTopic,
    "delete_topic": DeleteTopic,
    "rate": values.Rate,
}
_OF_RESOURCES: Final[dict[str, type]] = {
    "add_resources": _AddResources,
    "create_resources": _CreateResources,
    "delete_resources": _DeleteResources,
    "weight": _Weight,
}

EVENT_KINDS: Final[Mapping[str, tuple[str, ...]]] = types.MappingProxyType(
    {
        kind: tuple(one.name for one in attrs.fields(table))
        for kind, table in (_OF_ALL | _OF_TOPICS | _OF_RESOURCES).items()
    }
)
"""Keys of each kind of event, except `kind`."""


def add_event_hooks(converter: StrictConverter, *, has_topics: bool) -> None:
    """Let a converter read events, with topics or with other resources, and numbers for each."""
    kinds = dict(sorted((_OF_ALL | (_OF_TOPICS if has_topics else _OF_RESOURCES)).items()))

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401 - whatever the file has
        if not isinstance(value, dict):
            raise wrong("", value, "a table")
        kind = value.get("kind", NOTHING)
        if not isinstance(kind, str) or kind not in kinds:
            raise wrong("kind", kind, f"one of {', '.join(kinds)}")
        row = {key: item for key, item in value.items() if key != "kind"}
        made: Any = converter.structure(row, kinds[kind])
        return made.event() if hasattr(made, "event") else made

    converter.register_structure_hook(values.Event, read)
    converter.register_structure_hook(_Rates, _one_or_each(converter, float, "a number"))
    converter.register_structure_hook(_Weights, _one_or_each(converter, int, "an integer"))


def _one_or_each(converter: StrictConverter, kind: type, one: str) -> Hook:
    """Return a hook for a single number, or a list with one for each part."""

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if isinstance(value, list):
            return converter.structure(value, tuple[kind, ...])  # type: ignore[valid-type]
        if not (is_number(value) if kind is float else type(value) is int):
            raise wrong("", value, f"{one}, or a list of one for each")
        return converter.structure(value, kind)

    return read


_FILE: Final = "scenario file"


@frozen(kw_only=True)
class _File:
    """A scenario file. `topics`, `connectors` and `resources` exclude each other."""

    description: str = ""
    duration_ms: int
    settle_ms: int = 60_000
    group: Group = field(factory=Group)
    topics: dict[str, TopicTable] = field(factory=dict)
    connectors: dict[str, ConnectorTable] = field(factory=dict)
    resources: dict[str, ResourcesTable] = field(factory=dict)
    members: tuple[MemberSet, ...] = ()
    costs: tuple[Cost, ...] = ()
    network: Network = field(factory=Network)
    bell: Bell | None = None
    events: tuple[Event, ...] = ()
    policies: dict[str, Mapping[str, object]] = field(factory=dict)


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigurationError: the file cannot be read, or does not describe a scenario; the message
            names file and key path.
    """
    return parse_scenario(read_text(Path(path), _FILE), file=str(path))


def parse_scenario(text: str, *, file: str) -> Scenario:
    """Read the text of a scenario file.

    Raises:
        ConfigurationError: the text does not describe a scenario; the message names file and key
            path.
    """
    row = parse_toml(text, file, _FILE)
    with in_file(file):
        scenario = _scenario(row, Path(file).stem)
        check_scenario(scenario)
    return evolve(scenario, events=tuple(sorted(scenario.events, key=lambda event: event.at_ms)))


def _scenario(row: Row, name: str) -> Scenario:
    _check_lists(row)
    shares = _shared_kind(row)
    converter = _TOPICS_FILE if shares is Shares.TOPICS else _RESOURCES_FILE
    tables = _with_subscriptions(row) if shares is Shares.TOPICS else row
    read = structure(converter, tables, _File)
    if "members" not in row:
        raise wrong("members", NOTHING, "[[members]], a table for each set of processes")
    with located(shares):
        topics = tuple(named_topic(name, one) for name, one in getattr(read, shares).items())
    scenario = Scenario(
        name=name,
        description=read.description,
        duration_ms=read.duration_ms,
        settle_ms=read.settle_ms,
        group=read.group,
        shares=shares,
        topics=topics,
        members=read.members,
        costs=read.costs,
        network=read.network,
        bell=read.bell,
        events=read.events,
        policies=tuple(Choice(name=name, options=one) for name, one in read.policies.items()),
    )
    if shares is not Shares.TOPICS:
        scenario = _of_named_resources(scenario, row)
    policy = scenario.group.policy
    if policy.options:
        return scenario
    return evolve(scenario, group=evolve(scenario.group, policy=scenario.policy_named(policy.name)))


def _check_lists(row: Row) -> None:
    """Name the brackets of TOML if a list of tables is a single table."""
    for key in ("members", "costs", "events"):
        if isinstance(row.get(key), dict):
            raise wrong(key, row[key], f"[[{key}]] with double brackets, a list of tables")


def _shared_kind(row: Row) -> Shares:
    kinds = [kind for kind in Shares if kind in row] or [Shares.TOPICS]
    if len(kinds) > 1:
        expected = f"nothing beside {kinds[0]}: a group shares one kind"
        raise wrong(kinds[1], row[kinds[1]], expected)
    return kinds[0]


def _with_subscriptions(row: Row) -> Row:
    """Return the tables with the default of `members.topics`: all topics of the start."""
    topics, members = row.get("topics"), row.get("members")
    if not isinstance(members, list):
        return row
    default = {"topics": list(topics) if isinstance(topics, dict) else []}
    return row | {"members": [default | one if isinstance(one, dict) else one for one in members]}


def _of_named_resources(scenario: Scenario, row: Row) -> Scenario:
    """Apply the defaults for named resources: weighted, and all members take all names."""
    everything = tuple(sorted(partition_counts(scenario)))
    members = tuple(evolve(one, topics=everything) for one in scenario.members)
    group = scenario.group
    if "assignor" not in row.get("group", {}):
        group = evolve(group, assignor=Choice(name=WeightedAssignor.name))
    return evolve(scenario, members=members, group=group)


# --- hooks --------------------------------------------------------------------------------------


def _span(value: Any, _: Any) -> Span:  # noqa: ANN401 - whatever the file has
    limits = value if isinstance(value, list) else [value, value]
    if len(limits) != 2 or not {type(one) for one in limits} <= {int}:
        raise wrong("", value, "an integer or [min, max]")
    return Span(*limits)


def _converter(*, has_topics: bool) -> StrictConverter:
    converter = StrictConverter()
    converter.register_structure_hook(Span, _span)
    converter.register_structure_hook(Choice, choice_hook(Choice, converter))
    add_event_hooks(converter, has_topics=has_topics)
    if not has_topics:
        # Only records have topics, a capacity and a broker that assigns them; members take all
        # named resources.
        hidden = {
            "topics": [],
            "capacity_per_s": math.inf,
            "client": "coopgroup",
            "protocol": "classic",
        }
        converter.register_structure_hook(MemberSet, table_hook(MemberSet, converter, hidden))
    return converter


_TOPICS_FILE: Final = _converter(has_topics=True)
_RESOURCES_FILE: Final = _converter(has_topics=False)
