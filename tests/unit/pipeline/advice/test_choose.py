"""Advice for histories with known return times, compared with the best setting."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from coopgroup.errors import PipelineError
from coopgroup.pipeline.advice.choose import Advice, advise, sampled, search
from coopgroup.pipeline.advice.cost import MoveCost, deferred, with_warmups
from coopgroup.pipeline.advice.history import Episode, Observed
from coopgroup.pipeline.replay import FIGURES, Asked
from coopgroup.simulator.scenario import Choice
from tests.unit.pipeline.advices import advised_by
from tests.unit.pipeline.return_times import FAMILIES, Array, Cells, history, on_grid

# The time-outs lie between the durations: no absence takes exactly as long as a time-out.
TIMEOUTS_MS = (0, 5_000, 10_000, 20_000, 40_000, 75_000)
GRID_S = np.geomspace(2, 200, 8)
COST = MoveCost(move_ms=20_000)
HISTORIES = 20  # per family, of five families
ABSENCES = 100
TODAY = Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 7_777})


class MadeUp:
    """A replay without a simulation: all episodes cost the same under a setting.

    Args:
        costs: partition-seconds by setting; 100 for other settings.
    """

    def __init__(self, costs: dict[str, float], moved: float = 1.0, peak: float = 6.0) -> None:
        self.costs = costs
        self.moved = moved
        self.usual_peak = peak
        self.asked: list[str] = []

    def __call__(self, episodes: Sequence[Episode], policies: Sequence[Choice]) -> Array:
        self.asked += map(str, policies)
        costs = [self.costs.get(str(policy), 100.0) for policy in policies]
        row = [
            [cost, self.moved, self.peak(policy), 5.0, 0.0, self.moved]
            for cost, policy in zip(costs, policies, strict=True)
        ]
        return np.array([row for _ in episodes]).reshape(len(episodes), -1, len(FIGURES))

    def peak(self, policy: Choice) -> float:
        ration = policy.options.get("max_moves_per_round", self.usual_peak)
        assert isinstance(ration, int | float)
        return float(ration)


def advised(
    play: Callable[[Sequence[Episode], Sequence[Choice]], Array],
    absences: Sequence[int] = (1_000,) * 40,
    cost: MoveCost = COST,
    **changed: object,
) -> Advice:
    return advised_by(history(absences, **changed), cost, play, only_timeouts=True)


@pytest.mark.timeout(600)  # on a busy machine, and with coverage, seconds become minutes
def test_advised_time_out_is_within_five_percent_of_the_best_in_95_of_100_histories() -> None:
    """Compare the advice with an exhaustive sweep over all durations of a family, with fresh seeds.

    The benchmark has the whole ladder of time-outs, and groups whose moves cost nothing.
    """
    told, fresh = Cells(COST, seed=1), Cells(COST, seed=2)
    policies = [deferred(one) for one in TIMEOUTS_MS]
    ratios = []
    for draw in FAMILIES.values():
        drawn = Counter(on_grid(draw(np.random.default_rng(99), 100_000), GRID_S))
        shapes = [one.shape for one in history(list(drawn)).episodes]
        true = np.array(list(drawn.values())) @ fresh(shapes, policies)[..., 0]
        for number in range(HISTORIES):
            away = on_grid(draw(np.random.default_rng(number), ABSENCES), GRID_S)
            given = advised_by(
                history(away), COST, told, timeouts_ms=TIMEOUTS_MS, only_timeouts=True
            )
            ratios.append(true[policies.index(given.advised.policy)] / true.min())
    assert len(ratios) == 100
    assert sum(one <= 1.05 for one in ratios) >= 95


def test_today_is_among_the_options_and_a_saving_counts_against_it() -> None:
    given = advised(MadeUp({str(TODAY): 50.0, "simple": 30.0}), today=TODAY)
    assert (given.current.policy, given.advised.policy) == (TODAY, deferred(0))
    assert given.saving_s.mean == pytest.approx(20.0 * 40 / 10)  # ten days of history
    assert given.saving_s.low == pytest.approx(given.saving_s.high)
    assert given.near_best == 1
    # Also against a simpler setting a tie is no reason for a change.
    kept = advised(MadeUp({str(TODAY): 100.0, "simple": 99.5}), today=TODAY)
    assert kept.best == kept.today


def test_warm_ups_are_advised_where_they_save_much_and_a_standby_where_it_saves_more() -> None:
    def advised(one: float, with_standby: float) -> tuple[Choice, float]:
        words = "simple:warmup.max_concurrent=8,warmup.standbys={},warmup.timeout_ms=80000"
        costs = {words.format(0): one, words.format(1): with_standby, "simple": 90.0}
        given = advised_by(history([1_000] * 40), COST, MadeUp(costs))
        return given.advised.policy, given.near_best

    simple = Choice(name="simple")
    warm, doubled = with_warmups(simple, COST, members=3)
    assert advised(80.0, 70.0) == (simple, 1.0)  # little, and no doubt about it
    assert advised(40.0, 35.0) == (warm, 1.0)
    assert advised(80.0, 10.0) == (doubled, 1.0)
    assert advised(69.0, 50.0) == (doubled, 1.0)
    assert advised(60.0, 50.0) == (warm, 1.0)


def test_warm_ups_when_moves_cost_nothing_or_nothing_moves_are_not_tried() -> None:
    free, still = MadeUp({}), MadeUp({}, moved=0.0)
    advised_by(history([1_000] * 40), MoveCost(), free)
    advised_by(history([1_000] * 40), COST, still)
    assert not any("warmup" in one for one in (*free.asked, *still.asked))


def test_advice_without_episodes_or_replays_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"group g: nobody left, died or joined in 10\.0 days"):
        advised_by(history([]), COST, MadeUp({}))

    def nothing(episodes: Sequence[Episode], policies: Sequence[Choice]) -> Array:
        return np.full((len(episodes), len(policies), len(FIGURES)), np.nan)

    with pytest.raises(PipelineError, match="no episode of group g could be replayed"):
        advised_by(history([5_000]), COST, nothing)


def test_each_step_of_several_groups_is_played_at_once() -> None:
    """A group without advice does not disturb the others."""
    pasts = [history([5_000] * 40), history([]), history([60_000] * 40)]
    costs = [MadeUp({"simple": 90.0}), MadeUp({}), MadeUp({"simple": 110.0})]
    steps: list[set[int]] = []

    def play(asked: Mapping[int, Asked]) -> dict[int, Array]:
        steps.append({*asked})
        return {place: costs[place](*one) for place, one in asked.items()}

    first, nothing, last = advise([search(past, COST) for past in pasts], play)
    assert steps == [{0, 2}, {0, 2}]
    assert isinstance(nothing, PipelineError)
    alone = [advised_by(pasts[place], COST, costs[place]) for place in (0, 2)]
    assert [first, last] == alone


def test_saving_below_the_error_of_the_replay_is_not_advised() -> None:
    """The replay says 400 a day for today's setting, and the history shows other figures."""
    play = MadeUp({str(TODAY): 100.0, "simple": 80.0})

    def given(observed_s: float | None) -> Advice:
        return advised(play, today=TODAY, observed=Observed(unavailable_s=observed_s))

    assert given(None).advised.policy == deferred(0)
    near = given(350.0)
    assert near.is_clear
    assert near.model_error_s == pytest.approx(50.0)
    # The figures are scaled, so that today's setting costs what the history shows.
    assert near.current.unavailable_s.mean == pytest.approx(350.0)
    assert near.saving_s.mean == pytest.approx(70.0)
    far = given(330.0)
    assert far.best == far.today != far.cheapest
    assert not far.is_clear
    more = given(500.0)
    assert more.saving_s.mean == pytest.approx(100.0)
    assert more.best == more.today  # the replays save 80, and are wrong by 100


def test_ration_that_is_cheaper_and_not_calmer_needs_a_saving_above_the_error() -> None:
    ration = "incremental:max_moves_per_round=1,move_interval_ms=1000"
    play = MadeUp({f"{ration},scheduled_rebalance_timeout_ms=0": 90.0}, peak=1.0)
    given = advised_by(history([1_000] * 40, observed=Observed(unavailable_s=300.0)), COST, play)
    assert given.options[given.cheapest].policy.name == "incremental"
    assert given.model_error_s == pytest.approx(100.0)  # the replays save 40
    assert given.best == given.today


def test_no_saving_exceeds_what_the_history_shows() -> None:
    """Nearly all of 400 a day would be saved in the replays."""
    play = MadeUp({str(TODAY): 100.0, "simple": 1.0})
    for shown_s in (0.0, 10.0, 399.0, 401.0, 9_000.0):
        given = advised(play, today=TODAY, observed=Observed(unavailable_s=shown_s))
        assert given.saving_s.high <= shown_s
        assert given.current.unavailable_s.mean == pytest.approx(shown_s)


@pytest.mark.parametrize("is_known", [True, False])
def test_advice_is_clear_only_if_the_cost_of_a_move_is_known(is_known: bool) -> None:
    play = MadeUp({str(TODAY): 50.0, "simple": 30.0})
    assert advised(play, cost=MoveCost(is_known=is_known), today=TODAY).is_clear is is_known


def test_long_history_is_sampled_evenly_and_stays_as_dense() -> None:
    whole = history([1_000] * 1_000)
    part = sampled(whole, 200)
    assert len(part.episodes) == 200
    assert part.days == pytest.approx(whole.days / 5)
    assert part.episodes[0] == whole.episodes[0]
    assert part.episodes[-1] == whole.episodes[-1]
    assert part.notes
    assert sampled(whole, 1_000) == whole
