"""What the group of a scenario shares, as files say it: topics with partitions and rates."""

from __future__ import annotations

from typing import Any

from coopgroup.simulator.scenario import Topic
from coopgroup.simulator.scenario_problem import RESOURCES_MAX, Path
from coopgroup.simulator.toml_shapes import Refusal, Row, integer, list_of, number, read_keys, table

__all__ = ["for_each", "read_count", "read_rates", "read_topics"]


def read_topics(path: Path, value: Any) -> tuple[Topic, ...]:  # noqa: ANN401
    """Read the tables `[topics.NAME]`."""
    rows = table(path, value)
    return tuple(
        _topic((*path, name), table((*path, name), row), name) for name, row in rows.items()
    )


def _topic(path: Path, row: Row, name: str) -> Topic:
    keywords = read_keys(path, row, {"partitions": read_count, "rate_per_s": read_rates}, Topic)
    count = keywords["partitions"]
    return Topic(name=name, partitions=count, rate_per_s=for_each(keywords["rate_per_s"], count))


def read_count(path: Path, value: Any) -> int:  # noqa: ANN401
    """Read how many there are of something that is shared: a slip must not eat the memory."""
    count = integer(path, value)
    if not 1 <= count <= RESOURCES_MAX:
        raise Refusal(path, value, f"an integer from 1 to {RESOURCES_MAX}")
    return count


def read_rates(path: Path, value: Any) -> float | tuple[float, ...]:  # noqa: ANN401
    """Read one number for all partitions, or a list of one for each."""
    if isinstance(value, list):
        rates: tuple[float, ...] = list_of(number)(path, value)
        return rates
    if type(value) not in (int, float):
        raise Refusal(path, value, "a number, or a list of one for each partition")
    return float(value)


def for_each(rates: float | tuple[float, ...], count: int) -> tuple[float, ...]:
    """The rate of each of so many partitions, where one was given for all or one for each."""
    return rates if isinstance(rates, tuple) else (rates,) * count
