"""The swarm with warm-ups (`tests/swarm/warm.py`): late, hanging, failing and lying members."""

from __future__ import annotations

from typing import Final

from coopgroup.telemetry import WarmupsChanged
from tests.swarm.play import play
from tests.swarm.warm import draw_warm

CHUNK: Final = 50


def test_runs_with_warm_ups_move_warm_resources_and_have_every_mishap() -> None:
    """Otherwise the swarm would pass without testing anything."""
    seen = dict.fromkeys(("begun", "warm", "moved", "cancelled", "failed"), 0)
    for seed in range(CHUNK):
        for one in play(draw_warm(seed)).telemetry:
            if isinstance(one.record, WarmupsChanged):
                for name in seen:
                    seen[name] += len(getattr(one.record, name))
    assert min(seen.values()) > CHUNK // 5, seen
    faults = [draw_warm(seed).faults for seed in range(CHUNK)]
    assert all(any(getattr(one, name) for one in faults) for name in ("hang", "fail", "lie"))
