"""The swarm with true hosts above members of KIP-848: the broker assigns, and callbacks block.

    run = draw_hosted(seed)
    played = play(run)          # of the module `play`, as any other run

The group, its faults and most acts are those of `consumers`. Each process has one of the four hosts
of `polled`, `looped`, `processed` and `tasked`, with the habits of their runs. A listener does not
know the group protocol, so the checks of both kinds apply unchanged.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.simulator.scenario import LEADER
from tests.swarm.consumers import CONSUMER, draw_consumer
from tests.swarm.looped import LOOPED
from tests.swarm.polled import POLLED, with_habits
from tests.swarm.processed import PROCESSED
from tests.swarm.runs import ActKind
from tests.swarm.tasked import TASKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.swarm.runs import Act, SwarmRun

_APART: Final = 90_000_000


def draw_hosted(seed: int) -> SwarmRun:
    """Draw a run of a group of consumers that speak KIP-848."""
    chance = random.Random(f"swarm/hosted/{seed}")
    host = chance.choice((POLLED, LOOPED, PROCESSED, TASKED))
    run = with_habits(draw_consumer(seed + _APART), chance)
    faults = attrs.evolve(run.faults, leaves=0.0) if host in {PROCESSED, TASKED} else run.faults
    acts = tuple(_without_leaders(run.acts, chance))
    return attrs.evolve(run, faults=faults, acts=acts, theirs=f"{CONSUMER},{host}")


def _without_leaders(acts: tuple[Act, ...], chance: random.Random) -> Iterator[Act]:
    """Replace acts of leaders: a broker assigns, and hands nothing over."""
    names = [act.process for act in acts if act.kind is ActKind.START]
    for act in acts:
        if act.kind is not ActKind.HAND_OVER:
            is_led = act.process == LEADER
            yield attrs.evolve(act, process=chance.choice(names)) if is_led else act
