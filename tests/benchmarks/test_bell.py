"""The benchmark of the bell: it costs requests, and saves unavailable time."""

from __future__ import annotations

from tests.benchmarks.bell import run


def test_bounce_with_a_bell_needs_more_requests_and_less_time() -> None:
    found = run(counts=(10,))["10"]
    assert found["without"]["violations"] == found["with"]["violations"] == 0
    assert found["without"]["requests"] < found["with"]["requests"]
    assert found["with"]["unavailable_s"] < found["without"]["unavailable_s"] / 10
