"""The contestant coopgroup: assignors by name, `lag-aware (group)` with that scope.

`+claims` times the work that other contestants do in their one call: resolve the claims, assign,
and make a set of partitions for each member. `claims_of` and `snapshot_of` are preparation, and not
timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from coopgroup.assignors import Assignor, create_assignor
from coopgroup.model import resolve_claims
from tests.benchmarks.assigning.groups import (
    Group,
    Int32Array,
    claims_of,
    drawn_lags,
    racks_by_name,
    snapshot_of,
)
from tests.benchmarks.assigning.work import Prepared, serve

__all__ = ["prepare"]

WITH_CLAIMS: Final = "+claims"


def prepare(group: Group, name: str) -> Prepared:
    """Return the call that is timed."""
    plain, _, scope = name.removesuffix(WITH_CLAIMS).rstrip(")").partition(" (")
    assignor = create_assignor(plain, {"scope": scope} if scope else {})
    timed = _whole(group, assignor) if name.endswith(WITH_CLAIMS) else _alone(group, assignor)
    return timed, _as_answer


def _alone(group: Group, assignor: Assignor) -> Callable[[], object]:
    snapshot, lags = snapshot_of(group), drawn_lags(group.owner.size)
    return lambda: assignor.assign(snapshot, lags)


def _whole(group: Group, assignor: Assignor) -> Callable[[], object]:
    claims, existing = claims_of(group)
    racks, lags = racks_by_name(group), drawn_lags(group.owner.size)

    def assigned() -> object:
        snapshot = resolve_claims(claims, existing, racks)
        target = assignor.assign(snapshot, lags)
        shares = snapshot.by_member(target)
        assert len(shares) == len(claims)
        return target

    return assigned


def _as_answer(result: object) -> Int32Array:
    assert isinstance(result, np.ndarray)
    return result


if __name__ == "__main__":
    serve(prepare)
