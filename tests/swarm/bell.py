"""The bell of a run: some runs have one, which may be late, lose rings, or ring for nothing."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["bell_faults"]

_SHARE = 0.2


def bell_faults(seed: int) -> dict[str, Any]:
    """Return the fields of `Faults` about the bell; none without a bell.

    The separate random generator keeps all other draws of a run unchanged.
    """
    chance = random.Random(f"swarm/{seed}/bell")
    if chance.random() > _SHARE:
        return {}
    return {
        "bell_delay_ms_max": chance.choice((2, 2, 40, 400)),
        "bell_loss": chance.choice((0.0, 0.1, 0.5)),
        "bell_false_ms": chance.choice((0, 0, 20, 300)),
    }
