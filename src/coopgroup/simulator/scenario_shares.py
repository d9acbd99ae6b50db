"""What the group of a scenario shares, and how that changes while it works.

Rules of this file: the word *topic* stands for whatever has a name and parts, as it does in the
simulator: a topic with its partitions, a connector with its tasks, other resources of one name. A
scenario has one kind of them, as a group has in production.
"""

from __future__ import annotations

import enum

from attrs import frozen

__all__ = ["AddPartitions", "CreateTopic", "DeleteTopic", "Rate", "Shares", "Topic", "Weight"]


class Shares(enum.StrEnum):
    """What kind of resources a group shares, by the name of its table in a file."""

    TOPICS = "topics"
    """Partitions, with records."""

    CONNECTORS = "connectors"
    """Connectors, each itself (index -1) and its tasks, with weights."""

    RESOURCES = "resources"
    """Anything that has a name and a number, with weights."""

    @property
    def index_min(self) -> int:
        """The first index of each name."""
        return -1 if self is Shares.CONNECTORS else 0

    @property
    def key(self) -> str:
        """What files call the name of one in an event."""
        return "topic" if self is Shares.TOPICS else "name"


@frozen(kw_only=True)
class Topic:
    """A topic and what is produced to it; or a connector with its tasks, or other named resources.

    Attributes:
        name: of the topic.
        partitions: how many it has; a connector itself, of index -1, is not counted.
        rate_per_s: records produced per second to each partition, one number a partition; 0 where
            nothing is produced.
        weights: of each, in place of its lag for assignors that go by that; empty for topics. A
            connector itself weighs 1.
    """

    name: str
    partitions: int
    rate_per_s: tuple[float, ...]
    weights: tuple[int, ...] = ()


@frozen(kw_only=True)
class AddPartitions:
    """A topic gets more partitions, a connector more tasks.

    Attributes:
        at_ms: when.
        topic: which.
        rate_per_s: records per second to each of the new ones, one number a new partition.
        weights: of each of the new ones; empty for partitions.
    """

    at_ms: int
    topic: str
    rate_per_s: tuple[float, ...]
    weights: tuple[int, ...] = ()


@frozen(kw_only=True)
class CreateTopic:
    """A topic appears that was not there before.

    Attributes:
        at_ms: when.
        topic: its name, partitions and rates.
    """

    at_ms: int
    topic: Topic


@frozen(kw_only=True)
class DeleteTopic:
    """A topic disappears for good.

    Attributes:
        at_ms: when.
        topic: its name.
    """

    at_ms: int
    topic: str


@frozen(kw_only=True)
class Rate:
    """From now on partitions get more or fewer records.

    Attributes:
        at_ms: when.
        topic: which.
        partitions: which of its partitions, ascending; None for all.
        rate_per_s: records per second to each of them.
    """

    at_ms: int
    topic: str
    partitions: tuple[int, ...] | None = None
    rate_per_s: float


@frozen(kw_only=True)
class Weight:
    """From now on resources weigh more or less.

    Attributes:
        at_ms: when.
        topic: the name that they have.
        partitions: which of that name, ascending, a connector itself not among them; None for all.
        weight: of each of them.
    """

    at_ms: int
    topic: str
    partitions: tuple[int, ...] | None = None
    weight: int
