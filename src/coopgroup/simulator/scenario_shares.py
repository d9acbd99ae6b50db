"""The resources that the group of a scenario shares, and their changes during the run.

As elsewhere in the simulator, *topic* means any name with parts. It is a topic with its partitions,
a connector with its tasks, or other resources of one name. A scenario has a single kind of
resources, as a group has in production.
"""

from __future__ import annotations

import enum

from attrs import frozen

__all__ = ["AddPartitions", "CreateTopic", "DeleteTopic", "Rate", "Shares", "Topic", "Weight"]


class Shares(enum.StrEnum):
    """The kind of resources that a group shares, by the name of its table in a file."""

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
        """The key of a resource name in the events of a file."""
        return "topic" if self is Shares.TOPICS else "name"


@frozen(kw_only=True)
class Topic:
    """A topic and its production, a connector with its tasks, or other named resources.

    Attributes:
        name: of the topic.
        partitions: partition count; a connector itself, of index -1, does not count.
        rate_per_s: records produced per second to each partition, one number per partition; 0 for
            no production.
        weights: weight of each, used by assignors that need weights instead of lags; empty for
            topics. A connector itself weighs 1.
    """

    name: str
    partitions: int
    rate_per_s: tuple[float, ...]
    weights: tuple[int, ...] = ()


@frozen(kw_only=True)
class AddPartitions:
    """A topic gets more partitions, or a connector more tasks.

    Attributes:
        at_ms: when.
        topic: name of the topic.
        rate_per_s: records per second to each new partition, one number per partition.
        weights: weight of each new resource; empty for partitions.
    """

    at_ms: int
    topic: str
    rate_per_s: tuple[float, ...]
    weights: tuple[int, ...] = ()


@frozen(kw_only=True)
class CreateTopic:
    """A new topic appears.

    Attributes:
        at_ms: when.
        topic: its name, partitions and rates.
    """

    at_ms: int
    topic: Topic


@frozen(kw_only=True)
class DeleteTopic:
    """A topic is deleted and never comes back.

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
        topic: name of the topic.
        partitions: indices of its partitions, ascending; None for all.
        rate_per_s: records per second to each of these partitions.
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
        topic: name of the resources.
        partitions: indices, ascending, without a connector itself; None for all.
        weight: new weight of each of these resources.
    """

    at_ms: int
    topic: str
    partitions: tuple[int, ...] | None = None
    weight: int
