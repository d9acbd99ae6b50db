"""Bootstrap: draws of episodes, and intervals that contain the truth as often as stated."""

import numpy as np
import pytest

from coopgroup.pipeline.advice.bootstrap import CONFIDENCE, estimate, resample_counts


def test_resamples_have_as_many_episodes_as_the_history() -> None:
    times = np.array([80, 20])
    drawn = resample_counts(times)
    assert set(drawn.sum(axis=1).tolist()) == {100}
    assert drawn.mean(axis=0) == pytest.approx(times, rel=0.05)
    assert (resample_counts(times) == drawn).all()


def test_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    dice = np.random.default_rng(7)
    costs = np.array([1.0, 5.0, 40.0])
    shares = np.array([0.6, 0.3, 0.1])
    held = 0
    for _ in range(200):
        times = np.maximum(dice.multinomial(100, shares), 0)
        found = estimate(float(times @ costs) / 100, resample_counts(times) @ costs / 100)
        held += found.low <= float(shares @ costs) <= found.high
    assert held / 200 == pytest.approx(CONFIDENCE, abs=0.07)


def test_one_kind_of_episode_leaves_no_doubt() -> None:
    found = estimate(3.0, resample_counts(np.array([10])) @ np.array([0.3]))
    assert (found.mean, found.low, found.high) == pytest.approx((3, 3, 3))
