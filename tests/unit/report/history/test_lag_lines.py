"""Lag by owner."""

import numpy as np

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.report.history.lag_lines import lag_lines
from tests.support.ledgers import ledger_of


def test_lag_belongs_to_who_works_on_the_partition_at_that_time() -> None:
    ledger = ledger_of([(0, 0, 10, 20), (0, 1, 20, 30), (1, 1, 0, 30)], owners=2, until_ms=30)
    samples = LagHistory(
        times_ms=np.array([0, 10, 20, 30]),
        lags=np.array([[1, 10, 100], [2, 20, 200], [3, 30, 300], [4, 40, 400]]),
        resources=ResourceSet({"t": range(3)}),
    )
    lines = lag_lines(ledger, samples)
    by_owner = dict(zip(lines.owners, lines.lags.tolist(), strict=True))
    assert by_owner == {0: [0, 2, 0, 0], 1: [10, 20, 33, 44]}
    assert lines.nobody.tolist() == [101, 200, 300, 400]
    assert lines.others == 0


def test_thinned_lines_keep_their_peaks() -> None:
    ledger = ledger_of([(0, 0, 0, 1_000)], owners=1, until_ms=1_000)
    lags = np.zeros((1_000, 1), dtype=np.int64)
    lags[777] = 50
    samples = LagHistory(times_ms=np.arange(1_000), lags=lags, resources=ResourceSet({"t": [0]}))
    lines = lag_lines(ledger, samples, points_max=10)
    assert lines.times_ms.tolist() == list(range(0, 1_000, 100))
    assert lines.lags.tolist() == [[0, 0, 0, 0, 0, 0, 0, 50, 0, 0]]


def test_unknown_lag_is_a_gap_of_its_owner_only() -> None:
    """A group without commits seemed to have read everything."""
    ledger = ledger_of([(0, 0, 0, 30), (1, 1, 0, 30)], owners=2, until_ms=30)
    samples = LagHistory(
        times_ms=np.array([0, 10]),
        lags=np.array([[1.0, np.nan], [np.nan, 8.0]]),
        resources=ResourceSet({"t": range(2)}),
    )
    lines = lag_lines(ledger, samples)
    assert lines.owners == (1, 0)
    np.testing.assert_equal(lines.lags, [[np.nan, 8], [1, np.nan]])
    assert lines.nobody.tolist() == [0, 0]
    band = lag_lines(ledger, samples, lines_max=0)
    assert (band.low.tolist(), band.high.tolist()) == ([1, 8], [1, 8])
