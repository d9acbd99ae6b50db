"""Events of a scenario, as files say them: a shape for each kind."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from coopgroup.simulator import scenario as values
from coopgroup.simulator.scenario import AddPartitions, CreateTopic, Event, How, Topic
from coopgroup.simulator.scenario_problem import Path
from coopgroup.simulator.scenario_topics import for_each, read_count, read_rates
from coopgroup.simulator.toml_shapes import (
    NOTHING,
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
    """The keys of `create_topic` that have to be there."""

    at_ms: int
    topic: str
    partitions: int
    rate_per_s: float | tuple[float, ...]


@frozen(kw_only=True)
class _MorePartitions:
    """The keys of `add_partitions` that have to be there."""

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


_ENDED: Final = {"at_ms": integer, "member": string, "back_after_ms": integer}

_EVENTS: Final[Mapping[str, Shape]] = {
    "add_partitions": Shape(
        _MorePartitions,
        {"at_ms": integer, "topic": string, "count": read_count, "rate_per_s": read_rates},
        _add_partitions,
    ),
    "capacity": Shape(
        values.Capacity, {"at_ms": integer, "members": names, "capacity_per_s": number}
    ),
    "close": Shape(values.Close, _ENDED),
    "coordinator_lost": Shape(values.CoordinatorLost, {"at_ms": integer, "for_ms": integer}),
    "coordinator_moved": Shape(values.CoordinatorMoved, {"at_ms": integer}),
    "crash": Shape(values.Crash, _ENDED),
    "create_topic": Shape(
        _NewTopic,
        {"at_ms": integer, "topic": string, "partitions": read_count, "rate_per_s": read_rates},
        _create_topic,
    ),
    "cut": Shape(values.Cut, {"at_ms": integer, "members": names, "for_ms": integer}),
    "delete_topic": Shape(values.DeleteTopic, {"at_ms": integer, "topic": string}),
    "flap": Shape(
        values.Flap,
        {"at_ms": integer, "member": string, "up_ms": integer}
        | {"down_ms": integer, "times": integer, "how": word(How)},
    ),
    "pause": Shape(values.Pause, {"at_ms": integer, "member": string, "for_ms": integer}),
    "rate": Shape(
        values.Rate,
        {"at_ms": integer, "topic": string, "partitions": integers, "rate_per_s": number},
    ),
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

EVENT_KINDS: Final[Mapping[str, tuple[str, ...]]] = types.MappingProxyType(
    {kind: tuple(shape.readers) for kind, shape in _EVENTS.items()}
)
"""Keys of each kind of event, but for `kind` itself."""


def read_event(path: Path, value: Any) -> Event:  # noqa: ANN401
    """Read one event, of any kind."""
    row = dict(table(path, value))
    kind = row.pop("kind", NOTHING)
    if not isinstance(kind, str) or kind not in _EVENTS:
        raise Refusal((*path, "kind"), kind, f"one of {', '.join(_EVENTS)}")
    event: Event = _EVENTS[kind](path, row)
    return event
