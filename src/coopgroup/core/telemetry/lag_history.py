"""`LagHistory`: the lag of each partition over time, sampled by a simulation or a live view."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.core.model import ResourceSet

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]


@frozen(kw_only=True, eq=False)
class LagHistory:
    """Lag of R partitions at S times.

    Attributes:
        times_ms: int64 (S,): sample times, ascending.
        lags: (S, R): uncommitted records, 0 while a partition did not exist; NaN if unknown.
    """

    times_ms: Int64Array
    lags: Int64Array | Float64Array
    resources: ResourceSet
