"""`search`: find the policy, time-outs and rations that cost a group least.

Theory of operation. The measure is partition-seconds out of service, moves included: a move costs
the time until the partition does useful work again. First, time-outs are tried without a ration:
today's setting, `simple`, and `deferred` with the time-outs that the closed form (`cost`)
finds promising. Then rations are tried with the best time-out. Lost partitions are never rationed,
so time-out and ration can be chosen one after the other. The simulator plays every setting against
every episode of the history (through `Play`, on Spark or locally), and the sums are compared. The
searches of several groups go on step by step together, so that Spark plays a step as one job.

The best time-out is the cheapest one when absences are spread a little around the observed ones
(`cost` explains why, and computes the difference).

The replays of today's setting are compared with the cost that the history shows. Their difference
is the error of the model. If a setting saves less than this, today's setting is kept. Then all
replays are scaled, so that today's setting costs what the history shows. So no setting saves more
than that, and today's setting has one number everywhere.

A ration hardly changes the sum. Its benefit is that more partitions stay in service at any moment.
So it is advised if it costs almost nothing and the worst moment becomes clearly better.

Warm-ups are tried with the best time-out, too. With them a partition moves when its new owner has
restored its state, so a planned move costs a hand-over and no restore. With a standby the same
holds for losses. Neither is free: an application needs `on_warmup`, and the members restore beside
their work. So each is advised only if it saves much.

The uncertainty comes from the bootstrap: the episodes of the history are resampled with
replacement. The assumption is that the observed episodes are draws from the episodes that can
happen to this group. The draws have a fixed seed, so the same history gives the same advice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from attrs import define, evolve, field, frozen

from coopgroup.errors import PipelineError
from coopgroup.pipeline.advice.cost import (
    LADDER_MS,
    MoveCost,
    deferred,
    estimated_s,
    waits_ms,
    warmup_in,
    with_rations,
    with_warmups,
    worth_trying,
)
from coopgroup.pipeline.advice.history import span_words
from coopgroup.pipeline.replay import FIGURES, Asked, Figures

if TYPE_CHECKING:
    import numpy.typing as npt

    from coopgroup.pipeline.advice.history import Episode, GroupHistory
    from coopgroup.simulator.scenario import Choice

__all__ = [
    "CONFIDENCE",
    "ENOUGH",
    "Advice",
    "Estimate",
    "Option",
    "Play",
    "Steps",
    "advise",
    "estimate",
    "resample_counts",
    "sampled",
    "search",
]

Steps: TypeAlias = Generator[Asked, Figures, "Advice"]
"""A search, which asks for figures again and again."""

Play: TypeAlias = Callable[[Mapping[int, Asked]], Mapping[int, Figures]]
"""Plays the episodes of several groups at once, each group under its own number."""

ENOUGH: Final = 20
"""Minimum number of episodes for advice."""

CONFIDENCE: Final = 0.9
"""Share of the resamples within an interval."""

_RESAMPLES: Final = 1_000
_SEED: Final = 20_240
_TRIED: Final = 8
_DEAR: Final = MoveCost(move_ms=30_000, is_known=False)
_EPISODES_MAX: Final = 200
_SAME: Final = 0.01  # part of the cost below which two settings count as equal
_CALMER: Final = 0.75  # part of the worst moment at which a ration is worth its trouble
_WARMER: Final = 0.75  # part of the cost at which warm-ups are worth their trouble
_NEAR_BEST: Final = 1.05
_SIMPLER: Final = ("simple", "deferred", "incremental", "eager")


# --- values -------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Estimate:
    """A figure of the history, and its interval with the confidence `CONFIDENCE`."""

    mean: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """Return the figure in another scale."""
        return Estimate(mean=self.mean * factor, low=self.low * factor, high=self.high * factor)

    def at_most(self, limit: float) -> Estimate:
        """Return the figure with a limit."""
        mean, low, high = (min(limit, one) for one in (self.mean, self.low, self.high))
        return Estimate(mean=mean, low=low, high=high)


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
            Replays with several seeds and of a smaller group give fractions, which are rounded up.
    """

    policy: Choice
    unavailable_s: Estimate
    moved: Estimate
    restores: float
    lag_peak: Estimate
    unavailable_peak: int


@frozen(kw_only=True)
class Advice:
    """The advised setting, and how certain the advice is.

    A period is a day. If the history is too short for advice, it is an episode.

    Attributes:
        history: the history behind the advice.
        cost: cost of moves and returns.
        options: all settings that were tried.
        today: number of the option that matches the group's present behaviour.
        cheapest: number of the option that costs least in the replays.
        best: number of the advised option: the cheapest one, or today's if the saving is below the
            error of the model.
        saving_s: partition-seconds per period that the cheapest option saves against today's.
        replayed_s: partition-seconds per period of today's setting in the replays, before they were
            scaled to the history.
        near_best: part of the resamples that put the best option within 5 % of the optimum.
        failed: number of cells that could not be played.
        violations: number of violated invariants in the replays.
        proven: the advice from proven returns only, if this one uses likely returns, too.
    """

    history: GroupHistory
    cost: MoveCost
    options: tuple[Option, ...]
    today: int
    cheapest: int
    best: int
    saving_s: Estimate
    replayed_s: float
    near_best: float
    failed: int = 0
    violations: int = 0
    proven: Advice | None = None

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
        return len(self.history.episodes) >= ENOUGH

    @property
    def observed_s(self) -> float | None:
        """Partition-seconds out of service per period as the history shows; `None` if unknown."""
        seen = self.history.observed.unavailable_s
        return None if seen is None else seen * self.history.days / _periods(self.history)

    @property
    def model_error_s(self) -> float | None:
        """Partition-seconds per period by which the replay of today's setting differs from history.

        `None` if the history does not show the time out of service.
        """
        seen = self.observed_s
        return None if seen is None else abs(self.replayed_s - seen)

    @property
    def is_clear(self) -> bool:
        """Whether the history clearly distinguishes the advised setting from today's."""
        is_sure = self.is_enough and self.cost.is_known
        return is_sure and self.best != self.today and self.saving_s.low > 0


@define(kw_only=True)
class _Replays:
    """Settings that were played, and their figures.

    Attributes:
        shapes: E shapes of the episodes of a history.
        times: int64 (E,): how often each shape is in the history.
        policies: S settings.
        figures: float64 (E, S, F); NaN where a cell could not be played.
    """

    shapes: tuple[Episode, ...]
    times: npt.NDArray[np.int64]
    policies: list[Choice] = field(factory=list)
    figures: npt.NDArray[np.float64] = field(init=False)

    def add(self, policies: Sequence[Choice]) -> Generator[Asked, Figures, None]:
        """Play all episodes under more settings."""
        if policies:
            found = yield self.shapes, policies
            self.figures = np.hstack([self.figures, found]) if self.policies else found
            self.policies += policies

    def each(self, name: str) -> npt.NDArray[np.float64]:
        """Return one figure of every cell: float64 (E, S).

        A cell that could not be played gets the mean of the episode's other settings. So it favours
        no setting.
        """
        values: npt.NDArray[np.float64] = self.figures[..., FIGURES.index(name)]
        known = ~np.isnan(values)
        sums = np.where(known, values, 0.0).sum(axis=1)
        means = sums / np.maximum(known.sum(axis=1), 1)
        return np.where(known, values, means[:, None])

    def summed(self, name: str) -> npt.NDArray[np.float64]:
        """Return one figure of each setting, summed over the history: float64 (S,)."""
        return self.times @ self.each(name)


# --- the search ---------------------------------------------------------------------------------


def advise(searches: Sequence[Steps], play: Play) -> list[Advice | PipelineError]:
    """Search for the settings of several groups, and play each step of all groups together.

    Args:
        searches: from `search`.
        play: plays episodes under settings.

    Returns:
        The advice for each group, or the reason against any.
    """
    asked: dict[int, Asked] = {}
    found: dict[int, Advice | PipelineError] = {}

    def go_on(place: int, figures: Figures | None) -> None:
        steps = searches[place]
        try:
            asked[place] = next(steps) if figures is None else steps.send(figures)
        except StopIteration as end:
            found[place] = end.value
        except PipelineError as error:
            found[place] = error

    for place in range(len(searches)):
        go_on(place, None)
    while asked:
        played = play(asked)
        asked = {}
        for place, figures in played.items():
            go_on(place, figures)
    return [found[place] for place in range(len(searches))]


def search(
    history: GroupHistory,
    cost: MoveCost,
    *,
    timeouts_ms: Sequence[int] = LADDER_MS,
    tried: int = _TRIED,
    only_timeouts: bool = False,
) -> Steps:
    """Find the setting that would have cost a group least.

    Args:
        history: history of the group.
        cost: cost of moves and returns.
        timeouts_ms: candidate time-outs, ascending, including 0.
        tried: number of time-outs that the simulator plays, without 0 and today's.
        only_timeouts: whether to try neither rations nor warm-ups.

    Returns:
        Steps for `advise`.

    Raises:
        PipelineError: the history has no episode, or no episode could be played.
    """
    if not history.episodes:
        raise PipelineError(
            f"group {history.group}: nobody left, died or joined in {span_words(history.days)} of "
            "history, so there is nothing to advise on"
        )
    history = sampled(history, _EPISODES_MAX)
    times = Counter(episode.shape for episode in history.episodes)
    replays = _Replays(shapes=tuple(times), times=np.array(list(times.values())))
    estimates = _estimates(history, cost, timeouts_ms, is_spread=True)
    waits = set(worth_trying(estimates, timeouts_ms, tried))
    if not cost.is_known:
        # The reader sees at which cost of a move the choice tips.
        dear = _estimates(history, _DEAR, timeouts_ms, is_spread=True)
        waits |= set(worth_trying(dear, timeouts_ms, tried // 4))
    yield from replays.add(list(dict.fromkeys([history.today, *map(deferred, sorted(waits))])))
    if np.isnan(replays.figures[..., 0]).all():
        raise PipelineError(f"no episode of group {history.group} could be replayed")
    costs = replays.summed("unavailable_s") + _spread_s(history, cost, replays.policies)
    best = int(np.argmin(costs))
    if not only_timeouts and replays.summed("moved")[best] > 0:
        policy = replays.policies[best]
        warm = with_warmups(policy, cost, history.members)
        yield from replays.add([*warm, *with_rations(policy, history.partitions)])
    return _judged(history, cost, replays)


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


# --- the judgement ------------------------------------------------------------------------------


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


def _periods(history: GroupHistory) -> float:
    """Return the number of periods in a history, see `Advice`."""
    episodes = len(history.episodes)
    return max(history.days, 1e-9) if episodes >= ENOUGH else float(max(1, episodes))


def _judged(history: GroupHistory, cost: MoveCost, replays: _Replays) -> Advice:
    counts, periods, policies = resample_counts(replays.times), _periods(history), replays.policies
    today = policies.index(history.today)
    replayed_s = float(replays.summed("unavailable_s")[today]) / periods
    seen = history.observed.unavailable_s
    seen_s = 0.0 if seen is None else seen * history.days / periods
    factor = seen_s / replayed_s if seen is not None and replayed_s else 1.0

    def estimates(name: str, per: float) -> list[Estimate]:
        means, draws = replays.summed(name) / per, counts @ replays.each(name) / per
        return [estimate(float(mean), draws[:, place]) for place, mean in enumerate(means)]

    options = tuple(
        Option(
            policy=policy,
            unavailable_s=unavailable.times(factor),
            moved=moved,
            restores=float(restores) * factor,
            lag_peak=lag,
            unavailable_peak=math.ceil(round(float(peak), 6)),
        )
        for policy, unavailable, moved, restores, lag, peak in zip(
            policies,
            estimates("unavailable_s", periods),
            estimates("moved", periods),
            replays.summed("restores") / periods,
            estimates("lag_peak", float(replays.times.sum())),
            replays.each("unavailable_peak").max(axis=0),
            strict=True,
        )
    )
    cheapest = _best(options, factor * _spread_s(history, cost, policies) / periods, today)
    resampled = counts @ replays.each("unavailable_s") / periods
    # Warm-ups that save too little to be advised must not make the advice look uncertain.
    cold = [place for place, one in enumerate(policies) if warmup_in(one) is None]
    lowest = resampled[:, [*cold, cheapest]].min(axis=1)
    saving = resampled[:, today] - resampled[:, cheapest]
    costs = replays.summed("unavailable_s") / periods
    saving_s = estimate(float(costs[today] - costs[cheapest]), saving)
    violations = replays.figures[..., FIGURES.index("violations")]
    made = Advice(
        history=history,
        cost=cost,
        options=options,
        today=today,
        cheapest=cheapest,
        best=cheapest,
        saving_s=saving_s.times(factor).at_most(math.inf if seen is None else seen_s),
        replayed_s=replayed_s,
        near_best=float((resampled[:, cheapest] <= _NEAR_BEST * lowest + 1e-9).mean()),
        failed=int(np.isnan(violations).sum()),
        violations=int(np.nansum(violations)),
    )
    # A ration is not advised for its saving.
    peaks = [options[place].unavailable_peak for place in (cheapest, today)]
    is_calmer = policies[cheapest].name == "incremental" and peaks[0] <= _CALMER * peaks[1]
    is_calmer &= waits_ms(policies[cheapest]) == waits_ms(history.today)
    error_s = made.model_error_s
    if error_s is None or is_calmer:
        return made
    # Neither the replays nor the scaled figures may save less than the replays are wrong by.
    is_saving = min(saving_s.mean, made.saving_s.mean) > error_s
    return made if is_saving else evolve(made, best=today)


def _best(options: Sequence[Option], spread_s: npt.NDArray[np.float64], today: int) -> int:
    """Return the cheapest setting. Among equals today's, a calmer ration or the simplest wins.

    Warm-ups, and then a standby, win only if they save much.
    """
    costs = (np.array([one.unavailable_s.mean for one in options]) + spread_s).tolist()
    warmups = [warmup_in(one.policy) for one in options]
    cold = [place for place, warmup in enumerate(warmups) if warmup is None]
    lowest = min((costs[place] for place in cold), default=min(costs))
    limit = lowest * (1 + _SAME) + 1e-9
    good = [place for place in cold if costs[place] <= limit] or list(range(len(options)))
    plain = [place for place in good if options[place].policy.name != "incremental"] or good
    best = min(
        plain,
        key=lambda place: (
            place != today,
            _SIMPLER.index(options[place].policy.name),
            costs[place],
            options[place].moved.mean,
        ),
    )
    peaks = {
        place: options[place].unavailable_peak
        for place in good
        if options[place].policy.name == "incremental"
    }
    calmer = [place for place in peaks if peaks[place] <= _CALMER * options[best].unavailable_peak]
    best = min(calmer, key=lambda place: (peaks[place], costs[place]), default=best)
    warm = {place: one.standbys for place, one in enumerate(warmups) if one is not None}
    for place in sorted(warm, key=lambda one: warm[one]):
        if costs[place] <= _WARMER * costs[best]:
            best = place
    return best
