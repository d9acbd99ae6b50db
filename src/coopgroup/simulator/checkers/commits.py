"""Committed offsets never go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.simulator.world import Violation
from coopgroup.telemetry import OffsetsCommitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.model.resource_set import Resource
    from coopgroup.telemetry import Envelope

__all__ = ["check_commits"]


def check_commits(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """What the group coordinator accepts ascends in every partition."""
    newest: dict[Resource, int] = {}
    for envelope in telemetry:
        record = envelope.record
        if not isinstance(record, OffsetsCommitted):
            continue
        for resource, offset in zip(record.resources, record.offsets, strict=True):
            before = newest.get(resource, 0)
            newest[resource] = offset
            if offset < before:
                name, index = resource
                yield Violation(
                    checker="commits",
                    at_ms=envelope.at_ms,
                    message=f"{name}-{index} goes back from {before} to {offset}, "
                    f"by {envelope.member}",
                )
