"""`advise`: find the policy, time-outs and rations that cost a group least.

Theory of operation. The measure is partition-seconds out of service, moves included: a move costs
the time until the partition does useful work again. First, time-outs are tried without a ration:
today's setting, `simple`, and `deferred` with the time-outs that the closed form (`cost`)
finds promising. Then rations are tried with the best time-out. Lost partitions are never rationed,
so time-out and ration can be chosen one after the other. The simulator plays every setting against
every episode of the history (through `play`, on Spark or locally), and the sums are compared.

The best time-out is the cheapest one when absences are spread a little around the observed ones
(`cost` explains why, and computes the difference).

The replays of today's setting are compared with the cost that the history shows. A saving below
that difference is smaller than the error of the model, so today's setting is kept.

A ration hardly changes the sum. Its benefit is that more partitions stay in service at any moment.
So it is advised if it costs almost nothing and the worst moment becomes clearly better.

Warm-ups come last, with the best setting without them (`warmups`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from attrs import evolve, frozen

from coopgroup.pipeline.advice.bootstrap import Estimate, estimate, resample_counts
from coopgroup.pipeline.advice.cost import LADDER_MS, MoveCost, estimated_s, worth_trying
from coopgroup.pipeline.advice.history import span_words
from coopgroup.pipeline.advice.warmups import warmed_up, warmup_in, with_warmups
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.replay import FIGURES
from coopgroup.policies import DeferredPolicy
from coopgroup.simulator.scenario import Choice

if TYPE_CHECKING:
    import numpy.typing as npt

    from coopgroup.pipeline.advice.history import Episode, GroupHistory

__all__ = [
    "ENOUGH",
    "Advice",
    "Option",
    "Play",
    "advise",
    "deferred",
    "sampled",
    "waits_ms",
    "with_notes",
]

Play: TypeAlias = Callable[[Sequence["Episode"], Sequence[Choice]], "npt.NDArray[np.float64]"]
"""Plays E episodes under S settings: float64 (E, S, F), with the figures of `FIGURES`."""

ENOUGH: Final = 20
"""Minimum number of absences and joins for advice."""

_WAITS_MS: Final = DeferredPolicy().scheduled_rebalance_timeout_ms
_TRIED: Final = 8
_DEAR: Final = MoveCost(move_ms=30_000, is_known=False)
_RATIONS: Final = (1, 4, 16)
_INTERVALS_MS: Final = (1_000, 5_000)
_EPISODES_MAX: Final = 200
_SAME: Final = 0.01  # part of the cost below which two settings count as equal
_CALMER: Final = 0.75  # part of the worst moment at which a ration is worth its trouble
_NEAR_BEST: Final = 1.05
_SIMPLER: Final = ("simple", "deferred", "incremental", "eager")


@frozen(kw_only=True)
class Option:
    """A setting, and the cost that the history would have had with it.

    Attributes:
        policy: the policy with its options.
        unavailable_s: partition-seconds out of service per period, moves included.
        moved: partitions that move per period.
        restores: moves per period that pay the cost of a move.
        lag_peak: highest lag in an episode, in records, averaged over episodes.
        unavailable_peak: maximum number of partitions out of service together, in any episode.
    """

    policy: Choice
    unavailable_s: Estimate
    moved: Estimate
    restores: float
    lag_peak: Estimate
    unavailable_peak: float


@frozen(kw_only=True)
class Advice:
    """The advised setting, and how certain the advice is.

    Attributes:
        history: the history behind the advice.
        cost: cost of moves and returns.
        options: all settings that were tried.
        today: number of the option that matches the group's present behaviour.
        cheapest: number of the option that costs least in the replays.
        best: number of the advised option: the cheapest one, or today's if the saving is below the
            error of the model.
        saving_s: partition-seconds per period that the cheapest option saves against today's.
        near_best: part of the resamples that put the best option within 5 % of the optimum.
        evidence: number of absences and joins in the history.
        failed: number of cells that could not be played.
        violations: number of violated invariants in the replays.
    """

    history: GroupHistory
    cost: MoveCost
    options: tuple[Option, ...]
    today: int
    cheapest: int
    best: int
    saving_s: Estimate
    near_best: float
    evidence: int
    failed: int = 0
    violations: int = 0

    @property
    def advised(self) -> Option:
        """The advised option."""
        return self.options[self.best]

    @property
    def current(self) -> Option:
        """The option that matches the group's present behaviour."""
        return self.options[self.today]

    @property
    def is_enough(self) -> bool:
        """Whether the history is long enough for advice."""
        return self.evidence >= ENOUGH

    @property
    def periods(self) -> float:
        """Number of periods in the history: days, or episodes if there are too few for advice."""
        return _periods(self.history, is_enough=self.is_enough)

    @property
    def observed_s(self) -> float | None:
        """Partition-seconds out of service per period as the history shows; `None` if unknown."""
        return self._observed(self.history.observed.unavailable_s)

    @property
    def observed_moves(self) -> float | None:
        """Moves per period as the history shows; `None` if unknown."""
        return self._observed(self.history.observed.moved)

    @property
    def model_error_s(self) -> float | None:
        """Partition-seconds per period by which the replay of today's setting differs from history.

        `None` if the history does not show the time out of service.
        """
        seen = self.observed_s
        return None if seen is None else abs(self.current.unavailable_s.mean - seen)

    @property
    def is_clear(self) -> bool:
        """Whether the history clearly distinguishes the advised setting from today's."""
        is_sure = self.is_enough and self.cost.is_known
        return is_sure and self.best != self.today and self.saving_s.low > 0

    def _observed(self, per_day: float | None) -> float | None:
        return None if per_day is None else per_day * self.history.days / self.periods


@frozen(kw_only=True)
class _Played:
    """Settings and their figures.

    Attributes:
        policies: S settings.
        figures: float64 (E, S, F); NaN where a cell could not be played.
    """

    policies: tuple[Choice, ...]
    figures: npt.NDArray[np.float64]

    def joined(self, other: _Played) -> _Played:
        """Return the settings of both, side by side."""
        return _Played(
            policies=(*self.policies, *other.policies),
            figures=np.concatenate([self.figures, other.figures], axis=1),
        )


def advise(
    history: GroupHistory,
    cost: MoveCost,
    play: Play,
    *,
    timeouts_ms: Sequence[int] = LADDER_MS,
    tried: int = _TRIED,
    with_rations: bool = True,
    tries_warmups: bool = False,
) -> Advice:
    """Find the setting that would have cost a group least.

    Args:
        history: history of the group.
        cost: cost of moves and returns.
        play: plays episodes under settings.
        timeouts_ms: candidate time-outs, ascending, including 0.
        tried: number of time-outs that the simulator plays, without 0 and today's.
        with_rations: whether to try rations, too.
        tries_warmups: whether to try warm-ups, too, if a move costs anything.

    Raises:
        PipelineError: the history has no episode, or no episode could be played.
    """
    if not history.episodes:
        raise PipelineError(
            f"group {history.group}: nobody left, died or joined in {span_words(history.days)} of "
            "history, so there is nothing to advise on"
        )
    history = sampled(history, _EPISODES_MAX)
    times_of = Counter(episode.shape for episode in history.episodes)
    shapes = tuple(times_of)
    times = np.array([times_of[shape] for shape in shapes], dtype=np.int64)
    estimates = _estimates(history, cost, timeouts_ms, is_spread=True)
    waits = set(worth_trying(estimates, timeouts_ms, tried))
    if not cost.is_known:
        # The reader sees at which cost of a move the choice tips.
        dear = _estimates(history, _DEAR, timeouts_ms, is_spread=True)
        waits |= set(worth_trying(dear, timeouts_ms, tried // 4))
    chosen = [deferred(one) for one in sorted(waits)]
    played = _play(play, shapes, list(dict.fromkeys([history.today, *chosen])))
    _require_played(history, played)
    best = _cheapest(played, times, _spread_s(history, cost, played.policies))
    moved = (times @ _figure(played, "moved"))[best]
    if tries_warmups and moved > 0:
        warm = with_warmups(played.policies[best], cost, history.members)
        if warm:
            played = played.joined(_play(play, shapes, warm))
    if with_rations:
        rations = _rations(played.policies[best], history)
        if rations and moved > 0:
            played = played.joined(_play(play, shapes, rations))
    return _judged(history, cost, played, times)


def sampled(history: GroupHistory, most: int) -> GroupHistory:
    """Return a history with fewer episodes, spread evenly, and proportionally fewer days."""
    count = len(history.episodes)
    if count <= most:
        return history
    places = np.linspace(0, count - 1, most).round().astype(int).tolist()
    note = f"{most} of {count:,} episodes were replayed, evenly spread over time."
    return evolve(
        history,
        episodes=tuple(history.episodes[place] for place in places),
        days=history.days * most / count,
        notes=(*history.notes, note),
    )


def with_notes(history: GroupHistory, notes: Sequence[str]) -> GroupHistory:
    """Return the history with more notes."""
    return evolve(history, notes=(*history.notes, *notes))


def waits_ms(policy: Choice) -> int:
    """Return how long lost partitions wait under a policy; 0 means no delay."""
    unsaid = _WAITS_MS if policy.name in {"deferred", "incremental"} else 0
    value = policy.options.get("scheduled_rebalance_timeout_ms", unsaid)
    return value if isinstance(value, int) else 0


def deferred(timeout_ms: int) -> Choice:
    """Return the deferred policy with this time-out."""
    if not timeout_ms:
        return Choice(name="simple")
    return Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": timeout_ms})


def _play(play: Play, shapes: Sequence[Episode], policies: Sequence[Choice]) -> _Played:
    return _Played(policies=tuple(policies), figures=play(shapes, policies))


def _require_played(history: GroupHistory, played: _Played) -> None:
    if np.isnan(played.figures[..., 0]).all():
        raise PipelineError(f"no episode of group {history.group} could be replayed")


def _figure(played: _Played, name: str) -> npt.NDArray[np.float64]:
    """Return one figure of every cell: float64 (E, S).

    A cell that could not be played gets the mean of the episode's other settings. So it favours no
    setting.
    """
    values: npt.NDArray[np.float64] = played.figures[..., FIGURES.index(name)]
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=1)
    means = sums / np.maximum(known.sum(axis=1), 1)
    return np.where(known, values, means[:, None])


def _estimates(
    history: GroupHistory, cost: MoveCost, timeouts_ms: Sequence[int], *, is_spread: bool
) -> npt.NDArray[np.float64]:
    return estimated_s(
        history.episodes,
        timeouts_ms,
        cost,
        session_timeout_ms=history.session_timeout_ms,
        is_static=history.is_static,
        is_spread=is_spread,
    )


def _spread_s(
    history: GroupHistory, cost: MoveCost, policies: Sequence[Choice]
) -> npt.NDArray[np.float64]:
    """Return the extra cost of absences that are spread around the observed ones: float64 (S,)."""
    waits = [waits_ms(policy) for policy in policies]
    seen = _estimates(history, cost, waits, is_spread=False)
    spread = _estimates(history, cost, waits, is_spread=True)
    return (spread - seen) * history.partitions / max(1, history.members)


def _cheapest(
    played: _Played, times: npt.NDArray[np.int64], spread_s: npt.NDArray[np.float64]
) -> int:
    """Return the setting with the lowest sum."""
    return int(np.argmin(times @ _figure(played, "unavailable_s") + spread_s))


def _rations(best: Choice, history: GroupHistory) -> list[Choice]:
    """Return rations to try with the best time-out, none above the number of moves."""
    waits = waits_ms(best)
    if best.name == "eager":
        return []
    return [
        Choice(
            name="incremental",
            options={
                "max_moves_per_round": ration,
                "move_interval_ms": interval_ms,
                "scheduled_rebalance_timeout_ms": waits,
            },
        )
        for ration in _RATIONS
        for interval_ms in _INTERVALS_MS
        if ration < history.partitions
    ]


def _judged(
    history: GroupHistory, cost: MoveCost, played: _Played, times: npt.NDArray[np.int64]
) -> Advice:
    evidence = _evidence(history)
    periods = _periods(history, is_enough=evidence >= ENOUGH)
    counts = resample_counts(times)
    costs = _figure(played, "unavailable_s")
    moves, lags = _figure(played, "moved"), _figure(played, "lag_peak")
    peaks = _figure(played, "unavailable_peak").max(axis=0)
    sums, resampled = times @ costs / periods, counts @ costs / periods
    number = max(1, int(times.sum()))

    def spread(values: npt.NDArray[np.float64], per: float) -> list[Estimate]:
        means, draws = times @ values / per, counts @ values / per
        return [estimate(float(mean), draws[:, place]) for place, mean in enumerate(means)]

    options = tuple(
        Option(
            policy=policy,
            unavailable_s=unavailable,
            moved=moved,
            restores=float(restores),
            lag_peak=lag,
            unavailable_peak=float(peak),
        )
        for policy, unavailable, moved, restores, lag, peak in zip(
            played.policies,
            spread(costs, periods),
            spread(moves, periods),
            times @ _figure(played, "restores") / periods,
            spread(lags, number),
            peaks,
            strict=True,
        )
    )
    today = played.policies.index(history.today)
    extra_s = _spread_s(history, cost, played.policies) / periods
    cheapest = _best(options, extra_s, today)
    saved = resampled[:, today] - resampled[:, cheapest]
    # Warm-ups that save too little to be advised must not make the advice look uncertain.
    cold = [place for place, one in enumerate(played.policies) if warmup_in(one) is None]
    near = resampled[:, cheapest] <= (
        _NEAR_BEST * resampled[:, [*cold, cheapest]].min(axis=1) + 1e-9
    )
    known = played.figures[..., FIGURES.index("violations")]
    made = Advice(
        history=history,
        cost=cost,
        options=options,
        today=today,
        cheapest=cheapest,
        best=cheapest,
        saving_s=estimate(float(sums[today] - sums[cheapest]), saved),
        near_best=float(near.mean()),
        evidence=evidence,
        failed=int(np.isnan(known).sum()),
        violations=int(np.nansum(known)),
    )
    error_s = made.model_error_s
    is_too_small = error_s is not None and made.saving_s.mean <= error_s
    # A ration is not advised for its saving.
    is_calmer = played.policies[cheapest].name == "incremental" and waits_ms(
        played.policies[cheapest]
    ) == waits_ms(history.today)
    return evolve(made, best=today) if is_too_small and not is_calmer else made


def _periods(history: GroupHistory, *, is_enough: bool) -> float:
    return max(history.days, 1e-9) if is_enough else float(max(1, len(history.episodes)))


def _best(options: Sequence[Option], spread_s: npt.NDArray[np.float64], today: int) -> int:
    """Return the cheapest setting. Among equals today's, a calmer ration or the simplest wins.

    Warm-ups win only if they save much.
    """
    costs = (np.array([one.unavailable_s.mean for one in options]) + spread_s).tolist()
    policies = [one.policy for one in options]
    cold = [place for place, policy in enumerate(policies) if warmup_in(policy) is None]
    lowest = min((costs[place] for place in cold), default=min(costs))
    limit = lowest * (1 + _SAME) + 1e-9
    good = [place for place in cold if costs[place] <= limit] or list(range(len(options)))
    plain = [place for place in good if options[place].policy.name != "incremental"] or good
    chosen = min(
        plain,
        key=lambda place: (
            place != today,
            _SIMPLER.index(options[place].policy.name),
            costs[place],
            options[place].moved.mean,
        ),
    )
    calmer = [
        place
        for place in good
        if options[place].policy.name == "incremental"
        and options[place].unavailable_peak <= _CALMER * options[chosen].unavailable_peak
    ]
    best = min(
        calmer, key=lambda place: (options[place].unavailable_peak, costs[place]), default=chosen
    )
    return warmed_up(policies, costs, best)


def _evidence(history: GroupHistory) -> int:
    """Return the number of absences and joins in a history."""
    return sum(len(one.absences) + (one.joined > 0) for one in history.episodes)
