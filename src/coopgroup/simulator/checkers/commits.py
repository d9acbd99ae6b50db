"""Check that committed offsets never decrease.

The only exception is a late commit: from the former life of a member that kept its identity, or on
a connection that was held up for longer than a lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.world import Violation, late_commit_of
from coopgroup.telemetry import Envelope, FaultInjected, OffsetsCommitted


def check_commits(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """Yield commits that the group coordinator accepted although the offset decreased.

    A member that keeps its identity is not fenced from the requests of its former life, and no
    member is fenced from a commit of its own generation. Such a late commit may lower the offsets
    of this member, but not those of another member.
    """
    newest: dict[Resource, tuple[int, str]] = {}
    for number, envelope in enumerate(telemetry):
        record = envelope.record
        if not isinstance(record, OffsetsCommitted):
            continue
        member = envelope.member
        is_late = number > 0 and _is_late_commit(telemetry[number - 1], envelope)
        for resource, offset in zip(record.resources, record.offsets, strict=True):
            before, by = newest.get(resource, (0, ""))
            newest[resource] = offset, member
            if offset < before and not (is_late and by == member):
                name, index = resource
                yield Violation(
                    checker="commits",
                    at_ms=envelope.at_ms,
                    message=f"{name}-{index} goes back from {before} to {offset}, by {member}",
                )


def lowered(telemetry: Sequence[Envelope]) -> ResourceSet:
    """Return the resources whose last commit was such a late one: its offset may be too low."""
    last: dict[Resource, bool] = {}
    for said, commit in pairwise(telemetry):
        if isinstance(commit.record, OffsetsCommitted):
            last |= dict.fromkeys(commit.record.resources, _is_late_commit(said, commit))
    return ResourceSet.from_pairs(one for one, is_late in last.items() if is_late)


def _is_late_commit(said: Envelope, commit: Envelope) -> bool:
    return said.at_ms == commit.at_ms and said.record == FaultInjected(
        description=late_commit_of(commit.member)
    )
