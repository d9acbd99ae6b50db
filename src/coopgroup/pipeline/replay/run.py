"""Replays on Spark: every episode under every setting, as one job."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.replay.play import FIGURES, ROWS, play_cells
from coopgroup.pipeline.spark.session import reason_of
from coopgroup.pipeline.spark.workers import settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from pyspark.sql import SparkSession

    from coopgroup.pipeline.advice.history import Episode
    from coopgroup.pipeline.replay.scenario import ReplayedGroup
    from coopgroup.simulator.scenario import Choice

__all__ = ["SparkPlay"]

_SEEDED_MIN: Final = 40  # plays of each setting, at least
_TASKS_PER_CORE: Final = 8  # cells differ in length: small tasks keep all cores busy


@define(kw_only=True)
class SparkPlay:
    """Play episodes under settings, for `advise`.

    Attributes:
        spark: the session.
        group: the group to play.
        seeds: limits of the number of seeds of a cell.
        errors: reasons of failed cells, the first of each job.
    """

    spark: SparkSession
    group: ReplayedGroup
    seeds: tuple[int, int] = (2, 5)
    errors: list[str] = field(factory=list)

    def __call__(
        self, episodes: Sequence[Episode], policies: Sequence[Choice]
    ) -> npt.NDArray[np.float64]:
        """Play all cells, each with several seeds.

        Few episodes are played with more seeds: otherwise one lucky order of events would decide
        between two settings, and the cost would zigzag over the time-outs.

        Returns:
            float64 (E, S, F): figures, averaged over the seeds; NaN where a cell could not be
            played.

        Raises:
            PipelineError: Spark could not run the job.
        """
        fewest, most = self.seeds
        seeds = min(most, max(fewest, -(-_SEEDED_MIN // max(1, len(episodes)))))
        cells_of_seed = len(episodes) * len(policies)
        count = seeds * cells_of_seed
        tasks = min(count, _TASKS_PER_CORE * max(1, self.spark.sparkContext.defaultParallelism))
        play = partial(
            play_cells,
            group=self.group,
            episodes=tuple(episodes),
            policies=tuple(policies),
            seed=1,
        )
        cells = self.spark.range(0, count, 1, max(1, tasks))
        try:
            rows = cells.mapInArrow(partial(settled, play), from_arrow_schema(ROWS)).collect()
        except (PySparkException, Py4JError) as error:
            raise PipelineError(f"Spark could not replay: {reason_of(error)}") from error
        found = np.full((count, len(FIGURES)), np.nan)
        for row in rows:
            if row.error is None:
                found[row.cell] = [getattr(row, name) for name in FIGURES]
        self.errors += [row.error for row in rows if row.error is not None][:1]
        return _mean(found.reshape(seeds, len(episodes), len(policies), len(FIGURES)))


def _mean(found: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean over the seeds that could be played; violations are summed."""
    known = ~np.isnan(found)
    sums = np.where(known, found, 0.0).sum(axis=0)
    counts = known.sum(axis=0)
    means: npt.NDArray[np.float64] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    place = FIGURES.index("violations")
    means[..., place] = np.where(counts[..., place] > 0, sums[..., place], np.nan)
    return means
