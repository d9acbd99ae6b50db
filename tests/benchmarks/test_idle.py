"""The benchmark of idle consumers measures its own process."""

from __future__ import annotations

from tests.benchmarks.idle import _ask, _worker


def test_worker_measures_itself() -> None:
    with _worker("coopgroup", "127.0.0.1:1", "idle", "records") as worker:
        row = _ask(worker, 0.5)
    assert row["partitions"] == 0
    assert 0 < row["cpu_percent"] < 200
    assert row["threads"] >= 4
    assert sum(row["wakes_by_thread"].values()) > 0
