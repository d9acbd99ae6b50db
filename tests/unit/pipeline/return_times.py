"""Histories with known return times, and a replay that plays each cell once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from coopgroup.pipeline.advice.cost import MoveCost
from coopgroup.pipeline.advice.history import Absence, Episode, GroupHistory
from coopgroup.pipeline.replay import FIGURES, ReplayedGroup, replay
from coopgroup.simulator.scenario import Choice, How

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

NEVER: Final = np.inf


def short(dice: np.random.Generator, count: int) -> Array:
    """Draw restarts of about 8 s."""
    return dice.lognormal(np.log(8), 0.35, count)


def long(dice: np.random.Generator, count: int) -> Array:
    """Draw the times of machines that are replaced within about five minutes."""
    return dice.lognormal(np.log(300), 0.5, count)


def bimodal(dice: np.random.Generator, count: int) -> Array:
    """Draw mostly restarts of 15 s. The rest are long absences and permanent losses, half each."""
    kind = dice.random(count)
    away = dice.lognormal(np.log(15), 0.25, count)
    return np.where(kind < 0.7, away, np.where(kind < 0.85, 400 * dice.random(count) + 200, NEVER))


def heavy_tailed(dice: np.random.Generator, count: int) -> Array:
    """Draw from a Pareto distribution that starts at 4 s and has no mean."""
    return 4 * (1 - dice.random(count)) ** (-1 / 0.9)


def never(_: np.random.Generator, count: int) -> Array:
    return np.full(count, NEVER)


FAMILIES: Final[Mapping[str, Draw]] = {
    "short": short,
    "long": long,
    "bimodal": bimodal,
    "heavy-tailed": heavy_tailed,
    "never": never,
}


def on_grid(away_s: Array, grid_s: Array) -> list[int | None]:
    """Round each duration to a grid, in ms; the end of the grid limits it, never `None`."""
    places = np.abs(np.log(np.clip(away_s, grid_s[0], grid_s[-1]))[:, None] - np.log(grid_s))
    nearest = grid_s[places.argmin(axis=1)]
    return [
        None if np.isinf(one) else round(1_000 * near)
        for one, near in zip(away_s.tolist(), nearest.tolist(), strict=True)
    ]


def history(away_ms: Sequence[int | None], **changed: object) -> GroupHistory:
    """Return a group of three members that leave, and return after the given times."""
    episodes = tuple(
        Episode(
            begin_ms=number * 3_600_000,
            absences=(Absence(at_ms=0, process=1, absent_ms=one, how=How.CLOSE),),
        )
        for number, one in enumerate(away_ms)
    )
    plain: dict[str, object] = {
        "group": "g",
        "members": 3,
        "partitions": 6,
        "is_static": False,
        "session_timeout_ms": 10_000,
        "rate_per_s": 10.0,
        "days": 10.0,
        "episodes": episodes,
    }
    return GroupHistory(**{**plain, **changed})  # type: ignore[arg-type]  # any part may be another


class Cells:
    """Play episodes, each cell once."""

    def __init__(self, cost: MoveCost, seed: int) -> None:
        self.group = ReplayedGroup.of(history([]), cost)
        self.seed = seed
        self.known: dict[tuple[Episode, str], list[float]] = {}

    def __call__(self, episodes: Sequence[Episode], policies: Sequence[Choice]) -> Array:
        """Return the figures of all cells, as `advise` expects them."""
        return np.array(
            [[self.figures(episode, policy) for policy in policies] for episode in episodes]
        )

    def figures(self, episode: Episode, policy: Choice) -> list[float]:
        key = episode, str(policy)
        if key not in self.known:
            found = replay(self.group, episode, policy, seed=self.seed)
            self.known[key] = [float(getattr(found, name)) for name in FIGURES]
        return self.known[key]
