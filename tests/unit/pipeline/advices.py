"""Hand-made advice for tests of words and pages, without a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coopgroup.errors import PipelineError
from coopgroup.pipeline.advice.choose import Advice, Estimate, Option, advise, search
from coopgroup.pipeline.advice.cost import MoveCost, deferred
from coopgroup.pipeline.advice.history import Observed
from coopgroup.simulator.scenario import Choice
from tests.unit.pipeline.return_times import Array, history

if TYPE_CHECKING:
    from coopgroup.pipeline.advice.history import Episode, GroupHistory
    from coopgroup.pipeline.replay import Asked

TIMEOUTS_MS = (0, 5_000, 30_000, 300_000)
UNAVAILABLE_S = (90.0, 80.0, 40.0, 200.0)
RESTORES = (3.5, 2.0, 0.5, 0.5)


def option(policy: Choice, mean: float, peak: int = 6, restores: float = 0.5) -> Option:
    """Return a setting whose intervals are a tenth around its figures."""
    around = Estimate(mean=mean, low=0.9 * mean, high=1.1 * mean)
    return Option(
        policy=policy,
        unavailable_s=around,
        moved=Estimate(mean=mean / 10, low=0, high=mean),
        restores=restores,
        lag_peak=Estimate(mean=300, low=200, high=400),
        unavailable_peak=peak,
    )


def advised_by(
    history: GroupHistory,
    cost: MoveCost,
    play: Callable[[Sequence[Episode], Sequence[Choice]], Array],
    **options: Any,  # noqa: ANN401 - those of `search`
) -> Advice:
    """Return the advice for one group, with a replay of one group."""

    def play_all(asked: Mapping[int, Asked]) -> dict[int, Array]:
        return {place: play(*one) for place, one in asked.items()}

    (found,) = advise([search(history, cost, **options)], play_all)
    if isinstance(found, PipelineError):
        raise found
    return found


def made_advice(**changed: Any) -> Advice:  # noqa: ANN401 - any part
    """Return advice for restarts of 12 s and one permanent loss: best 30 s, today 0 s."""
    plain: dict[str, Any] = {
        "history": history(
            [12_000] * 29 + [None],
            observed=Observed(unavailable_s=90.0, moved=12.0, lag_peak=1_000),
        ),
        "cost": MoveCost(move_ms=20_000),
        "options": tuple(
            option(deferred(waits), cost, restores=restores)
            for waits, cost, restores in zip(TIMEOUTS_MS, UNAVAILABLE_S, RESTORES, strict=True)
        ),
        "today": 0,
        "cheapest": changed.get("best", 2),
        "best": 2,
        "saving_s": Estimate(mean=50, low=40, high=60),
        "replayed_s": 95.0,
        "near_best": 0.97,
    }
    return Advice(**{**plain, **changed})
