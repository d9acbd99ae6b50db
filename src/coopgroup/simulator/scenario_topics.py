"""Shared resources in scenario files: topics, connectors or other resources."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from coopgroup.simulator.scenario import Shares, Topic
from coopgroup.simulator.scenario_problem import RESOURCES_MAX, Path
from coopgroup.simulator.toml_shapes import (
    Reader,
    Refusal,
    Row,
    integer,
    list_of,
    number,
    read_keys,
    table,
)

__all__ = [
    "KEYS",
    "for_each",
    "read_count",
    "read_rates",
    "read_shared",
    "read_weights",
    "shared_kind",
    "weights_of_new",
]

_WEIGHT: Final = 1


def shared_kind(row: Row) -> Shares:
    """Return the kind of resources in a file; the default is topics."""
    kinds = [kind for kind in Shares if kind in row] or [Shares.TOPICS]
    if len(kinds) > 1:
        expected = f"nothing beside {kinds[0]}: a group shares one kind"
        raise Refusal((kinds[1],), row[kinds[1]], expected)
    return kinds[0]


def read_shared(kind: Shares) -> Reader:
    """Return a reader of the tables `[topics.NAME]`, or of the tables of another kind."""
    one = {Shares.TOPICS: _topic, Shares.CONNECTORS: _connector, Shares.RESOURCES: _other}[kind]

    def read(path: Path, value: Any) -> tuple[Topic, ...]:  # noqa: ANN401
        return tuple(
            one((*path, name), table((*path, name), row), name)
            for name, row in table(path, value).items()
        )

    return read


def _topic(path: Path, row: Row, name: str) -> Topic:
    keywords = read_keys(path, row, _READERS[Shares.TOPICS], Topic)
    count = keywords["partitions"]
    return Topic(name=name, partitions=count, rate_per_s=for_each(keywords["rate_per_s"], count))


@frozen(kw_only=True)
class _Connector:
    """The required keys of a connector."""

    tasks: int
    weight: int = _WEIGHT


@frozen(kw_only=True)
class _Resources:
    """The required keys of other resources."""

    count: int
    weight: int = _WEIGHT


def _connector(path: Path, row: Row, name: str) -> Topic:
    keywords = read_keys(path, row, _READERS[Shares.CONNECTORS], _Connector)
    return _named(path, name, keywords["tasks"], keywords)


def _other(path: Path, row: Row, name: str) -> Topic:
    keywords = read_keys(path, row, _READERS[Shares.RESOURCES], _Resources)
    return _named(path, name, keywords["count"], keywords)


def _named(path: Path, name: str, count: int, keywords: Row) -> Topic:
    weights = weights_of_new(path, keywords, count)
    return Topic(name=name, partitions=count, rate_per_s=(0.0,) * count, weights=weights)


def weights_of_new(path: Path, keywords: Row, count: int) -> tuple[int, ...]:
    """Weights of the resources; a single number applies to all of them."""
    weights: int | tuple[int, ...] = keywords.get("weight", _WEIGHT)
    if isinstance(weights, int):
        return (weights,) * count
    if len(weights) != count:
        raise Refusal((*path, "weight"), list(weights), f"one integer for each of {count}")
    return weights


def read_count(path: Path, value: Any) -> int:  # noqa: ANN401
    """Read the number of resources; a limit prevents that a typing error exhausts the memory."""
    count = integer(path, value)
    if not 1 <= count <= RESOURCES_MAX:
        raise Refusal(path, value, f"an integer from 1 to {RESOURCES_MAX}")
    return count


def read_rates(path: Path, value: Any) -> float | tuple[float, ...]:  # noqa: ANN401
    """Read one number for all partitions, or a list with one for each."""
    if isinstance(value, list):
        rates: tuple[float, ...] = list_of(number)(path, value)
        return rates
    if type(value) not in (int, float):
        raise Refusal(path, value, "a number, or a list of one for each partition")
    return number(path, value)


def read_weights(path: Path, value: Any) -> int | tuple[int, ...]:  # noqa: ANN401
    """Read one integer for all resources, or a list with one for each."""
    if isinstance(value, list):
        weights: tuple[int, ...] = list_of(integer)(path, value)
        return weights
    if type(value) is not int:
        raise Refusal(path, value, "an integer, or a list of one for each")
    return integer(path, value)


def for_each(rates: float | tuple[float, ...], count: int) -> tuple[float, ...]:
    """Return the rate of each partition; a single number applies to all."""
    return rates if isinstance(rates, tuple) else (rates,) * count


_READERS: Final[Mapping[Shares, Mapping[str, Reader]]] = {
    Shares.TOPICS: {"partitions": read_count, "rate_per_s": read_rates},
    Shares.CONNECTORS: {"tasks": read_count, "weight": read_weights},
    Shares.RESOURCES: {"count": read_count, "weight": read_weights},
}

KEYS: Final[Mapping[Shares, tuple[str, ...]]] = types.MappingProxyType(
    {kind: tuple(readers) for kind, readers in _READERS.items()}
)
"""Keys of the tables of each kind."""
