"""The resources that the group of a scenario shares, and their changes during the run.

As elsewhere in the simulator, *topic* means any name with parts. It is a topic with its partitions,
a connector with its tasks, or other resources of one name. A scenario has a single kind of
resources, as a group has in production.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from attrs import Attribute, field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.reading import between

__all__ = [
    "RATE_MAX_PER_S",
    "RESOURCES_MAX",
    "AddPartitions",
    "CreateTopic",
    "DeleteTopic",
    "Rate",
    "Shares",
    "Topic",
    "Weight",
    "one_for_each",
    "rates",
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
    """A new topic appears."""

    at_ms: int = field(validator=between(0))
    topic: Topic


@frozen(kw_only=True)
class DeleteTopic:
    """A topic is deleted and never comes back."""

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
