"""Cost of one episode under one setting: simulated, measured, scaled to the real group.

Rules of this file: a replay depends only on its arguments; only the CPU times of Spark's tasks
vary. `advice.cost` defines the cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from attrs import fields, frozen

from coopgroup.pipeline.replay.scenario import played_absences, scenario_of
from coopgroup.simulator.run import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coopgroup.pipeline.advice.history import Episode
    from coopgroup.pipeline.replay.scenario import ReplayedGroup
    from coopgroup.simulator.scenario import Choice

__all__ = ["FIGURES", "ROWS", "Replayed", "play_cells", "replay"]


@frozen(kw_only=True)
class Replayed:
    """Cost of an episode.

    Attributes:
        unavailable_s: partition-seconds without work, including the cost of moves.
        moved: number of moves of partitions.
        unavailable_peak: maximum number of partitions without work at a time.
        lag_peak: highest lag of the group, in records.
        violations: number of violated invariants; a bug, to be reported.
        restores: moves that paid the cost of a move: the new process was not warm.
    """

    unavailable_s: float
    moved: float
    unavailable_peak: float
    lag_peak: float
    violations: int
    restores: float


FIGURES: Final = tuple(one.name for one in fields(Replayed))
"""Names of the figures, in the order in which rows and matrices have them."""

ROWS: Final = pa.schema(
    [("cell", pa.int64()), *((name, pa.float64()) for name in FIGURES), ("error", pa.string())]
)
"""A row for each cell, numbered so that settings vary fastest."""


def replay(group: ReplayedGroup, episode: Episode, policy: Choice, *, seed: int) -> Replayed:
    """Play an episode.

    Args:
        group: the group to play.
        episode: the episode.
        policy: the group's policy.
        seed: seed of the random generator.
    """
    run = simulate(scenario_of(group, episode, policy), seed=seed)
    _, factor = played_absences(group, episode)
    measures = run.measures
    each = group.partition_factor
    return Replayed(
        unavailable_s=measures.unavailable_partition_s * factor * each,
        moved=measures.moved * factor * each,
        unavailable_peak=measures.unavailable_peak * each,
        lag_peak=measures.lag_peak * each,
        violations=len(run.violations),
        restores=measures.moved_cold * factor * each,
    )


def play_cells(
    batches: Iterable[pa.RecordBatch],
    *,
    group: ReplayedGroup,
    episodes: Sequence[Episode],
    policies: Sequence[Choice],
    seed: int,
) -> Iterator[pa.RecordBatch]:
    """Play the cells with the given numbers, for `mapInArrow`.

    Args:
        batches: numbers of cells in a column `id`: policies vary fastest, then episodes, then
            seeds.
        group: the group to play.
        episodes: the episodes.
        policies: the policies.
        seed: the first seed of the random generator.

    Yields:
        Batches of `ROWS`; cells that could not be played have an `error`, and no figures.
    """
    for batch in batches:
        rows = []
        for cell in batch.column("id").to_pylist():
            play, policy = divmod(cell, len(policies))
            turn, episode = divmod(play, len(episodes))
            found = _row(group, episodes[episode], policies[policy], seed=seed + turn)
            rows.append({"cell": cell} | found)
        yield pa.RecordBatch.from_pylist(rows, schema=ROWS)


def _row(group: ReplayedGroup, episode: Episode, policy: Choice, *, seed: int) -> dict[str, Any]:
    try:
        found = replay(group, episode, policy, seed=seed)
    except Exception as error:  # noqa: BLE001 - one episode must not cost the others
        return {"error": " ".join(f"{policy}: {type(error).__name__}: {error}".split())}
    return {name: getattr(found, name) for name in FIGURES} | {"error": None}
