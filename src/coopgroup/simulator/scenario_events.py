"""Events in scenario files: one shape for each kind of event."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from coopgroup.simulator import scenario as values
from coopgroup.simulator.scenario import AddPartitions, CreateTopic, Event, How, Shares, Topic
from coopgroup.simulator.scenario_problem import Path
from coopgroup.simulator.scenario_topics import (
    for_each,
    read_count,
    read_rates,
    read_weights,
    weights_of_new,
)
from coopgroup.simulator.toml_shapes import (
    NOTHING,
    Reader,
    Refusal,
    Row,
    Shape,
    integer,
    integers,
    names,
    number,
    string,
    table,
    word,
)

__all__ = ["EVENT_KINDS", "read_event"]


@frozen(kw_only=True)
class _NewTopic:
    """The required keys of `create_topic`."""

    at_ms: int
    topic: str
    partitions: int
    rate_per_s: float | tuple[float, ...]


@frozen(kw_only=True)
class _MorePartitions:
    """The required keys of `add_partitions`."""

    at_ms: int
    topic: str
    count: int
    rate_per_s: float | tuple[float, ...]


def _create_topic(_: Path, keywords: Row) -> CreateTopic:
    count = keywords["partitions"]
    rates = for_each(keywords["rate_per_s"], count)
    topic = Topic(name=keywords["topic"], partitions=count, rate_per_s=rates)
    return CreateTopic(at_ms=keywords["at_ms"], topic=topic)


def _add_partitions(path: Path, keywords: Row) -> AddPartitions:
    count = keywords["count"]
    rates = for_each(keywords["rate_per_s"], count)
    if len(rates) != count:
        expected = f"one number for each of {count} new partitions"
        raise Refusal((*path, "rate_per_s"), list(rates), expected)
    return AddPartitions(at_ms=keywords["at_ms"], topic=keywords["topic"], rate_per_s=rates)


@frozen(kw_only=True)
class _NewResources:
    """The required keys of `create_resources` and `add_resources`."""

    at_ms: int
    name: str
    count: int


@frozen(kw_only=True)
class _Named:
    """The required keys of `delete_resources`."""

    at_ms: int
    name: str


@frozen(kw_only=True)
class _Weighed:
    """The required keys of `weight`."""

    at_ms: int
    name: str
    weight: int


def _create_resources(path: Path, keywords: Row) -> CreateTopic:
    count = keywords["count"]
    weights = weights_of_new(path, keywords, count)
    topic = Topic(
        name=keywords["name"], partitions=count, rate_per_s=(0.0,) * count, weights=weights
    )
    return CreateTopic(at_ms=keywords["at_ms"], topic=topic)


def _add_resources(path: Path, keywords: Row) -> AddPartitions:
    count = keywords["count"]
    return AddPartitions(
        at_ms=keywords["at_ms"],
        topic=keywords["name"],
        rate_per_s=(0.0,) * count,
        weights=weights_of_new(path, keywords, count),
    )


def _delete_resources(_: Path, keywords: Row) -> values.DeleteTopic:
    return values.DeleteTopic(at_ms=keywords["at_ms"], topic=keywords["name"])


def _weigh(_: Path, keywords: Row) -> values.Weight:
    return values.Weight(
        at_ms=keywords["at_ms"],
        topic=keywords["name"],
        partitions=keywords.get("indices"),
        weight=keywords["weight"],
    )


_ENDED: Final = {"at_ms": integer, "member": string, "back_after_ms": integer}

_EVENTS_OF_ALL: Final[dict[str, Shape]] = {
    "close": Shape(values.Close, _ENDED),
    "coordinator_lost": Shape(values.CoordinatorLost, {"at_ms": integer, "for_ms": integer}),
    "coordinator_moved": Shape(values.CoordinatorMoved, {"at_ms": integer}),
    "crash": Shape(values.Crash, _ENDED),
    "cut": Shape(values.Cut, {"at_ms": integer, "members": names, "for_ms": integer}),
    "flap": Shape(
        values.Flap,
        {"at_ms": integer, "member": string, "up_ms": integer}
        | {"down_ms": integer, "times": integer, "how": word(How)},
    ),
    "pause": Shape(values.Pause, {"at_ms": integer, "member": string, "for_ms": integer}),
    "rolling_restart": Shape(
        values.RollingRestart,
        {"at_ms": integer, "members": names, "down_ms": integer}
        | {"every_ms": integer, "batch": integer, "how": word(How)},
    ),
    "scale": Shape(
        values.Scale,
        {"at_ms": integer, "members": string, "to": integer}
        | {"every_ms": integer, "how": word(How)},
    ),
}

_EVENTS_OF_TOPICS: Final[dict[str, Shape]] = {
    "add_partitions": Shape(
        _MorePartitions,
        {"at_ms": integer, "topic": string, "count": read_count, "rate_per_s": read_rates},
        _add_partitions,
    ),
    "capacity": Shape(
        values.Capacity, {"at_ms": integer, "members": names, "capacity_per_s": number}
    ),
    "create_topic": Shape(
        _NewTopic,
        {"at_ms": integer, "topic": string, "partitions": read_count, "rate_per_s": read_rates},
        _create_topic,
    ),
    "delete_topic": Shape(values.DeleteTopic, {"at_ms": integer, "topic": string}),
    "rate": Shape(
        values.Rate,
        {"at_ms": integer, "topic": string, "partitions": integers, "rate_per_s": number},
    ),
}

_NEW_RESOURCES: Final = {
    "at_ms": integer,
    "name": string,
    "count": read_count,
    "weight": read_weights,
}

_EVENTS_OF_RESOURCES: Final[dict[str, Shape]] = {
    "add_resources": Shape(_NewResources, _NEW_RESOURCES, _add_resources),
    "create_resources": Shape(_NewResources, _NEW_RESOURCES, _create_resources),
    "delete_resources": Shape(_Named, {"at_ms": integer, "name": string}, _delete_resources),
    "weight": Shape(
        _Weighed,
        {"at_ms": integer, "name": string, "indices": integers, "weight": integer},
        _weigh,
    ),
}

EVENT_KINDS: Final[Mapping[str, tuple[str, ...]]] = types.MappingProxyType(
    {
        kind: tuple(shape.readers)
        for kind, shape in (_EVENTS_OF_ALL | _EVENTS_OF_TOPICS | _EVENTS_OF_RESOURCES).items()
    }
)
"""Keys of each kind of event, but for `kind` itself."""


def read_event(shares: Shares) -> Reader:
    """Return a reader for all kinds of events that fit the shared resources."""
    own = _EVENTS_OF_TOPICS if shares is Shares.TOPICS else _EVENTS_OF_RESOURCES
    shapes = dict(sorted((_EVENTS_OF_ALL | own).items()))

    def read(path: Path, value: Any) -> Event:  # noqa: ANN401
        row = dict(table(path, value))
        kind = row.pop("kind", NOTHING)
        if not isinstance(kind, str) or kind not in shapes:
            raise Refusal((*path, "kind"), kind, f"one of {', '.join(shapes)}")
        event: Event = shapes[kind](path, row)
        return event

    return read
