"""Uncertainty of figures: the episodes of a history are resampled with replacement (bootstrap).

The history of another such period is unknown. The assumption is that the observed episodes are
draws from the episodes that can happen to this group. Every resample has as many episodes as the
history. The draws have a fixed seed, so the same history gives the same advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["CONFIDENCE", "Estimate", "estimate", "resample_counts"]

CONFIDENCE: Final = 0.9
"""Share of the resamples within an interval."""

_RESAMPLES: Final = 1_000
_SEED: Final = 20_240


@frozen(kw_only=True)
class Estimate:
    """A figure of the history, and its interval with the confidence `CONFIDENCE`."""

    mean: float
    low: float
    high: float


def resample_counts(times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how often each shape of episode is in each resample.

    Args:
        times: int64 (E,): how often each shape is in the history; at least one episode.

    Returns:
        int64 (B, E): each row sums up to the number of episodes.
    """
    count = int(times.sum())
    dice = np.random.default_rng(_SEED)
    drawn: npt.NDArray[np.int64] = dice.multinomial(count, times / count, size=_RESAMPLES)
    return drawn


def estimate(value: float, resampled: npt.NDArray[np.float64]) -> Estimate:
    """Return a figure with its interval.

    Args:
        value: figure of the history itself.
        resampled: float64 (B,): figure of each resample.
    """
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail]).tolist()
    return Estimate(mean=value, low=low, high=high)
