"""Tables of a scenario file that differ from the values of a scenario, each as an attrs class.

A file writes one number where a value has one for each partition, and names the parts of a resource
as people do: partitions, tasks, a count. All other tables are the values themselves.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

import attrs
from attrs import field, frozen

from coopgroup.reading import NOTHING, Hook, StrictConverter, between, is_number, wrong
from coopgroup.simulator import scenario as values
from coopgroup.simulator.scenario.shares import (
    RESOURCES_MAX,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Shares,
    Topic,
    Weight,
    one_for_each,
    rates,
)

__all__ = [
    "EVENT_KINDS",
    "KEYS",
    "ConnectorTable",
    "ResourcesTable",
    "TopicTable",
    "add_event_hooks",
    "named_topic",
]

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
