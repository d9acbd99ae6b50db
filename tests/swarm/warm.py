"""The swarm with warm-ups: runs of groups whose policy warms up, with warm-ups that go wrong.

    run = draw_warm(seed)
    played = play(run)          # of the module `play`, as any other run

The acts are those of a plain run. The options of warm-ups and their mishaps are drawn apart, so
that plain runs stay as they are. Members become warm late, never become warm, fail, and lie. They
die and change the leader as in any other run.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

from coopgroup.simulator.scenario import Choice
from tests.swarm.runs import SwarmRun, draw

__all__ = ["draw_warm"]

_APART: Final = 1_000_000  # acts that no plain run of a soak has


def draw_warm(seed: int) -> SwarmRun:
    """Draw a run whose policy has the option `warmup`."""
    chance = random.Random(f"swarm/{seed}/warm")
    run = draw(seed + _APART)
    option = {
        "max_concurrent": chance.choice((1, 2, 8)),
        "per_member": chance.choice((1, 2)),
        "timeout_ms": chance.choice((300, 1_000, 4_000)),
        "standbys": chance.choice((0, 0, 1, 2)),
        "on_timeout": chance.choice(("move", "move", "cancel")),
    }
    # Most runs have at most one kind of mishap, so that the others are not hidden.
    shares = {name: chance.choice((0.2, 0.6)) for name in ("hang", "fail", "lie")}
    kept = chance.choice(((), (), ("hang",), ("fail",), ("lie",), tuple(shares)))
    faults = attrs.evolve(
        run.faults,
        restore_ms_max=chance.choice((10, 100, 500)),
        keeps_state=chance.random() < 0.5,
    )
    mishaps: dict[str, Any] = {name: shares[name] for name in kept}
    return attrs.evolve(
        run,
        seed=seed,
        policy=Choice(name=run.policy.name, options={**run.policy.options, "warmup": option}),
        faults=attrs.evolve(faults, **mishaps),
    )
