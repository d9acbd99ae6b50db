"""Directed runs: chains of events that other draws seldom combine (`tests/swarm/directed.py`)."""

from pathlib import Path
from typing import Final

import pytest

from tests.swarm.directed import draw_directed
from tests.swarm.play import play, story
from tests.swarm.run_files import read_run, run_to_toml

CHUNK: Final = 50
SEEDS: Final = 200


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_group_survives_chains_of_events(first: int) -> None:
    failing = [seed for seed in range(first, first + CHUNK) if play(draw_directed(seed)).violations]
    assert not failing, f"seeds {failing}\n{story(draw_directed(failing[0]))}"


def test_directed_run_is_written_and_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for seed in range(50):
        run = draw_directed(seed)
        path.write_text(run_to_toml(run), encoding="utf-8")
        assert read_run(path) == run
        assert read_run(path).policy.options == run.policy.options
