"""What a member could never start, so that it does not keep it warm either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model.pairs import NO_KEYS, refusals

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import Int64Array


def barred(group: GroupSnapshot, assignor: Assignor) -> Int64Array:
    """Return the pairs of a resource and a member that could not start it, ascending.

    They matter for warm-ups only; there are none if no member takes part in them.
    """
    if not any(member.warms for member in group.members):
        return NO_KEYS
    misfits = getattr(assignor, "misfits", None)
    unfit = None if misfits is None else misfits(group)
    return np.union1d(refusals(group), NO_KEYS if unfit is None else np.flatnonzero(unfit.T))
