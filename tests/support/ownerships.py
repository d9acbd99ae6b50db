"""Who worked on which resource of topic t, from a list of intervals."""

from collections.abc import Iterable

import numpy as np

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.ownership import Ownership

Interval = tuple[int, int, int, int]  # resource, owner, begin, end


def ownership_of(
    intervals: Iterable[Interval], *, until_ms: int, resources: int = 3, owners: int = 3
) -> Ownership:
    """Return the ownership of `t` from intervals in any order."""
    ordered = sorted(intervals, key=lambda one: (one[0], one[2]))
    rows = np.array(ordered, dtype=np.int64).reshape(-1, 4)
    return Ownership(
        resources=ResourceSet({"t": range(resources)}),
        clients=tuple(f"c-{number}" for number in range(owners)),
        resource=rows[:, 0].astype(np.int32),
        owner=rows[:, 1].astype(np.int32),
        start_ms=rows[:, 2],
        end_ms=rows[:, 3],
        begin_ms=0,
        until_ms=until_ms,
    )
