"""The benchmark of starts: each program starts, and is compared with NumPy's import."""

from __future__ import annotations

from tests.benchmarks.start import PROGRAMS, run


def test_run_starts_each_program() -> None:
    found = run(runs=1)
    assert list(found) == list(PROGRAMS)
    assert found["numpy"]["cpu_to_numpy"] == 1.0
    assert found["coopgroup"]["wall_ms"] > found["python"]["wall_ms"]
