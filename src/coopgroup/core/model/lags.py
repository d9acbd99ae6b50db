"""`Lags`: the lags that a leader knows, for assignors and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.model.resource_set import EMPTY, ResourceSet
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import Int64Array


@frozen(kw_only=True, eq=False)
class Lags:
    """Lag of each resource of a set.

    Attributes:
        resources: N resources, in any relation to those of the group; what the group lacks is
            passed over, and what is missing here counts as 0.
        values: int64 (N,): end offset minus committed offset, in the order of `resources`.
        arrivals_per_s: float64 (N,): records that come in to each in a second, 0 where that is
            not known; None where nothing is known of it.
    """

    resources: ResourceSet
    values: Int64Array
    arrivals_per_s: Float64Array | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse figures that do not fit the resources.

        Raises:
            ConfigurationError: there is not one figure per resource.
        """
        for name, figures in (("lags", self.values), ("arrivals", self.arrivals_per_s)):
            if figures is not None and figures.shape != (len(self.resources),):
                raise ConfigurationError(
                    name, f"{figures.size} figures", f"{len(self.resources)}, one per resource"
                )

    @classmethod
    def from_mapping(cls, lag_by_index: Mapping[str, Mapping[int, int]]) -> Lags:
        """Pack lags given by name and index."""
        resources = ResourceSet(lag_by_index)
        values = [lag_by_index[name][index] for name, index in resources]
        return cls(resources=resources, values=np.array(values, dtype=np.int64))

    def aligned(self, resources: ResourceSet) -> Int64Array:
        """The figures in the order of another set.

        Args:
            resources: R resources.

        Returns:
            int64 (R,): 0 where unknown, and where a truncated log left a committed offset behind
            the end.
        """
        if resources == self.resources:
            return np.maximum(self.values, 0)
        lags = np.zeros(len(resources), dtype=np.int64)
        if not self.resources:
            return lags
        positions = resources.positions(self.resources)
        known = positions >= 0
        lags[positions[known]] = np.maximum(self.values[known], 0)
        return lags

    def aligned_arrivals(self, resources: ResourceSet) -> Float64Array | None:
        """The rates of arrival in the order of another set.

        Args:
            resources: R resources.

        Returns:
            float64 (R,): 0 where unknown, and where a topic that was made anew has fewer records
            than before; None where nothing is known.
        """
        if self.arrivals_per_s is None:
            return None
        if resources == self.resources:
            return np.maximum(self.arrivals_per_s, 0)
        arrivals = np.zeros(len(resources))
        positions = resources.positions(self.resources)
        known = positions >= 0
        arrivals[positions[known]] = np.maximum(self.arrivals_per_s[known], 0)
        return arrivals


NO_LAGS: Final = Lags(resources=EMPTY, values=np.zeros(0, dtype=np.int64))
