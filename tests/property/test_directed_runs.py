"""Directed runs: chains of events that other draws seldom combine (`tests/swarm/directed.py`)."""

from pathlib import Path

from tests.swarm.directed import draw_directed
from tests.swarm.run_files import read_run, run_to_toml


def test_directed_run_is_written_and_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for seed in range(50):
        run = draw_directed(seed)
        path.write_text(run_to_toml(run), encoding="utf-8")
        assert read_run(path) == run
        assert read_run(path).policy.options == run.policy.options
