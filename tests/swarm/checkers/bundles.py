"""Check resources that belong together: they have one owner (`Warmup.co_partition`).

`in_bundles` prepares records for checkers that count moves or warm-ups: in its records all parts of
a bundle are one resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    ProcessStarted,
    RoundDecided,
    RoundRefused,
    WarmupsChanged,
)


def are_always_together(
    telemetry: Sequence[Envelope], co_partition: Sequence[Sequence[str]]
) -> bool:
    """Return whether each process subscribes to all topics of each list or to none."""
    started = {one.record.topics for one in telemetry if isinstance(one.record, ProcessStarted)}
    return all(
        len({topic in subscribed for topic in topics}) == 1
        for topics in co_partition
        for subscribed in started
    )


def check_bundles(
    telemetry: Sequence[Envelope], co_partition: Sequence[Sequence[str]]
) -> Iterator[Violation]:
    """Yield bundles whose parts a round assigns to several members.

    A refused round moves nothing, so it leaves a bundle as it is.
    """
    label = {topic: topics[0] for topics in co_partition for topic in topics}
    decided = Counter(one.generation for one in telemetry if isinstance(one.record, RoundDecided))
    refused = {one.generation for one in telemetry if isinstance(one.record, RoundRefused)}
    owners: dict[tuple[int, str, int], str] = {}
    for one in telemetry:
        if not isinstance(one.record, AssignmentReceived):
            continue
        if decided[one.generation] != 1 or one.generation in refused:
            continue
        for name, index in one.record.gained | one.record.kept:
            if name in label:
                key = (one.generation, label[name], int(index))
                # A static member that returns gets its assignment under another member id.
                other = owners.setdefault(key, one.client)
                if other != one.client:
                    message = f"{name}-{index} goes to {one.client}, its bundle to {other}"
                    yield Violation(checker="bundles", at_ms=one.at_ms, message=message)


def in_bundles(
    telemetry: Sequence[Envelope], co_partition: Sequence[Sequence[str]]
) -> Sequence[Envelope]:
    """Return the records with all parts of a bundle as one resource, a part of its first topic.

    A bundle is cancelled when the member warms up none of its parts any more. If a topic shrinks,
    only the vanished parts are cancelled.
    """
    found: list[Envelope] = []
    parts: dict[str, ResourceSet] = {}
    for one in telemetry:
        record = _labelled(one.record, co_partition)
        if isinstance(one.record, WarmupsChanged):
            ended = one.record.moved | one.record.cancelled | one.record.failed
            left = (parts.get(one.client, EMPTY) | one.record.begun | one.record.warm) - ended
            parts[one.client] = left
            cancelled = record.cancelled - of_bundles(left, co_partition)
            record = attrs.evolve(record, cancelled=cancelled)
        elif isinstance(one.record, ProcessStarted):
            parts.pop(one.client, None)
        found.append(attrs.evolve(one, record=record))
    return found


def _labelled(record: Any, co_partition: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401 - any kind
    changes = {
        field.name: of_bundles(value, co_partition)
        for field in attrs.fields(type(record))
        if isinstance(value := getattr(record, field.name), ResourceSet) and value
    }
    return attrs.evolve(record, **changes) if changes else record


def of_bundles(resources: ResourceSet, co_partition: Sequence[Sequence[str]]) -> ResourceSet:
    """Return the resources with all parts of a bundle as one, a part of its first topic."""
    label = {topic: topics[0] for topics in co_partition for topic in topics}
    if label.keys().isdisjoint(resources.names):
        return resources
    return ResourceSet.from_pairs(
        [Resource(label.get(name, name), index) for name, index in resources]
    )
