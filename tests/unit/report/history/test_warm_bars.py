"""Bars of warm-ups and standbys."""

import numpy as np
from attrs import evolve

from coopgroup.core.model.resource_set import Resource
from coopgroup.report.history.warm_bars import WarmBar, lanes_of, warm_bars
from coopgroup.telemetry import WarmEnd, WarmSpan
from tests.support.ledgers import ledger_of

OWNERSHIP = ledger_of([(number, 0, 0, 1_000) for number in range(4)], until_ms=1_000, resources=4)
BY_NAME = np.arange(4, dtype=np.int64)


def span(
    index: int, client: str, begin_ms: int, end_ms: int, warm_ms: int | None = None
) -> WarmSpan:
    return WarmSpan(
        resource=Resource("t", index),
        client=client,
        begin_ms=begin_ms,
        warm_ms=warm_ms,
        end_ms=end_ms,
        end=WarmEnd.MOVED,
    )


def rows(bars: tuple[WarmBar, ...]) -> list[tuple[int, int, int, int]]:
    return sorted((one.first_row, one.last_row, one.lane, one.owner) for one in bars)


def test_two_that_prepare_one_partition_have_a_lane_each_and_rows_stay_apart() -> None:
    """A bar over two rows would cover the second lane of the first row."""
    spans = [
        span(0, "c-1", 10, 50),
        span(0, "c-2", 20, 60),
        span(1, "c-1", 10, 50),
        span(0, "c-2", 70, 80),  # the first lane is free again
    ]
    assert list(lanes_of(spans).values()) == [0, 0, 1, 0]
    found = rows(warm_bars(spans, OWNERSHIP, BY_NAME))
    assert found == [(0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 1, 2), (1, 1, 0, 1)]


def test_times_are_rounded_if_there_are_too_many_bars_and_no_bar_vanishes() -> None:
    spans = [span(number, "c-1", 10 + number, 11 + number) for number in range(4)]
    assert len(warm_bars(spans, OWNERSHIP, BY_NAME)) == 4
    long = evolve(OWNERSHIP, until_ms=1_000_000)
    bars = warm_bars(spans, long, BY_NAME, bars_max=1)
    assert rows(bars) == [(0, 3, 0, 1)]
    assert all(one.end_ms > one.begin_ms for one in bars)
