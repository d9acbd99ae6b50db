"""`Warmup`: the options of warm-ups, the same for every policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

import attrs
from attrs import field, frozen

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

_OPTION_MAX: Final = 2**31 - 1
_TOPICS_MIN: Final = 2


def _count(_: Warmup, attribute: Attribute[int], value: int) -> None:
    least = 0 if attribute.name == "standbys" else 1
    if type(value) is not int or not least <= value <= _OPTION_MAX:
        raise ConfigurationError(
            f"{attribute.name} of warmup", value, f"an integer from {least} to {_OPTION_MAX}"
        )


def _topics_of(value: object) -> tuple[str, ...] | None:
    """Return the topics of one bundle; None if the value is no list of two topics or more."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return None
    topics = tuple(value)
    if len(topics) < _TOPICS_MIN or not all(isinstance(one, str) and one for one in topics):
        return None
    return topics


def _read_bundles(value: object) -> tuple[tuple[str, ...], ...]:
    """Return the co-partitioned topics, which files give as lists of lists."""
    rows = None
    if not isinstance(value, str | bytes) and isinstance(value, Iterable):
        rows = [_topics_of(one) for one in value]
    bundles = tuple(one for one in rows or () if one is not None)
    topics = list(chain.from_iterable(bundles))
    if rows is None or len(bundles) != len(rows):
        expected = 'lists of two topics or more, for example [("orders", "payments")]'
        raise ConfigurationError("co_partition of warmup", value, expected)
    for topic in sorted(set(topics)):
        if topics.count(topic) > 1:
            expected = f"each topic once; {topic!r} occurs {topics.count(topic)} times"
            raise ConfigurationError("co_partition of warmup", value, expected)
    return bundles


@frozen(kw_only=True)
class Warmup:
    """Move a resource only when its new owner is warm, and keep standbys.

    Attributes:
        max_concurrent: how many cold warm-ups run in the group at the same time. Kafka Streams runs
            2, because each of its rebalances hurts. Our rounds cost retained resources nothing, so
            only the load of restoring counts: 8 by default.
        per_member: how many cold warm-ups one member runs at the same time. With 2, the default,
            a member always restores, and its first resources still move early.
        timeout_ms: how long a warm-up may run, in ms. 10 minutes by default, the probing interval
            of Kafka Streams. Choose several times the longest restore. Then the resource moves to
            the cold member: the group always reaches its balance, and no move is worse than without
            warm-ups. A standby that times out is cancelled. A warm-up that its member declines ends
            at once: another resource is tried, and if there is none, this one moves cold.
        standbys: how many members stay warm for each resource beside its owner.
        co_partition: topics whose partitions belong together, for example
            `[("orders", "payments")]`. Partition i of each listed topic is one bundle: a bundle has
            one owner, and it warms up and moves as a whole. Balance, ration and limits count
            bundles. This applies to all members, also to those without warm-ups. See module
            `bundles` for topics that differ.

    Raises:
        ConfigurationError: a count is not an integer in range, or `co_partition` is no list of
            lists of two topics or more, each topic once.
    """

    max_concurrent: int = field(default=8, validator=_count)
    per_member: int = field(default=2, validator=_count)
    timeout_ms: int = field(default=600_000, validator=_count)
    standbys: int = field(default=0, validator=_count)
    co_partition: tuple[tuple[str, ...], ...] = field(default=(), converter=_read_bundles)


def read_warmup(value: object) -> Warmup | None:
    """Return the option of a policy, which files and the command line give as an object.

    Raises:
        ConfigurationError: the value is not an object with known keys.
    """
    if value is None or isinstance(value, Warmup):
        return value
    if not isinstance(value, Mapping):
        raise ConfigurationError("warmup", value, "an object with options, or null")
    known = sorted(attribute.name for attribute in attrs.fields(Warmup))
    for name in sorted(map(str, value)):
        if name not in known:
            raise ConfigurationError("option of warmup", name, f"one of {', '.join(known)}")
    options: dict[str, object] = dict(value)
    return Warmup(**options)  # type: ignore[arg-type] # the validators check the types


def warmup_of(policy: object) -> Warmup | None:
    """Return the option of a policy: its attribute `warmup`, if it has one."""
    option = getattr(policy, "warmup", None)
    return option if isinstance(option, Warmup) else None
