"""The benchmark of memory: both consumers hold partitions, and the growth is seen."""

from __future__ import annotations

from tests.benchmarks.memory import KINDS, run


def test_run_measures_both_consumers() -> None:
    found = run(counts=(2_000,), own_counts=(2_000,))
    assert tuple(found) == KINDS
    for row in found.values():
        assert 0 < row["0"] < row["2000"]
