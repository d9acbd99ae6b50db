"""The benchmark of commits during an outage: each kind is measured, and growth is seen."""

from __future__ import annotations

from tests.benchmarks.commits import run


def test_run_when_commits_are_few_measures_each_kind_of_outage() -> None:
    """All commits end, and each has a cost."""
    found = run(counts=(20, 40))
    assert list(found) == ["no_answer", "failing", "timing_out"]
    for rows in found.values():
        assert list(rows) == ["20", "40", "growth"]
        assert rows["growth"] > 0
        assert all(rows[count]["us_per_commit"] > 0 for count in ("20", "40"))
