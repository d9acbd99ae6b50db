"""The swarm with warm-ups: runs of groups whose policy warms up, with warm-ups that go wrong.

    run = draw_warm(seed)
    played = play(run)          # of the module `play`, as any other run

The acts are those of a plain run. The options of warm-ups and their mishaps are drawn apart, so
that plain runs stay as they are. In some runs the topics belong together. Members become warm late,
never become warm, fail, and lie. They die and change the leader as in any other run.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

from coopgroup.simulator.scenario import LEADER, Choice
from tests.swarm.runs import TOPICS, Act, ActKind, SwarmRun, draw

_APART: Final = 1_000_000  # acts that no plain run of a soak has
_TOGETHER: Final = 0.3  # share of the runs whose topics belong together
_HAND_OVER: Final = 0.4  # share of the runs in which processes hand over


def draw_warm(seed: int) -> SwarmRun:
    """Draw a run whose policy has the option `warmup`."""
    chance = random.Random(f"swarm/{seed}/warm")
    run = draw(seed + _APART)
    option: dict[str, Any] = {
        "max_concurrent": chance.choice((1, 2, 8)),
        "per_member": chance.choice((1, 2)),
        "timeout_ms": chance.choice((300, 1_000, 4_000)),
        "standbys": chance.choice((0, 0, 1, 2)),
    }
    chance.choice(range(3))  # once an option; without this draw each seed would be another run
    # Most runs have at most one kind of mishap, so that the others are not hidden.
    shares = {name: chance.choice((0.2, 0.6)) for name in ("hang", "fail", "lie")}
    kept = chance.choice(((), (), ("hang",), ("fail",), ("lie",), tuple(shares)))
    faults = attrs.evolve(
        run.faults,
        restore_ms_max=chance.choice((10, 100, 500)),
        keeps_state=chance.random() < 0.5,
    )
    mishaps: dict[str, Any] = {name: shares[name] for name in kept}
    acts, together = _together(run.acts, seed)
    acts = _with_hand_overs(acts, seed)
    if together:
        option["co_partition"] = together
    return attrs.evolve(
        run,
        seed=seed,
        acts=acts,
        policy=Choice(name=run.policy.name, options={**run.policy.options, "warmup": option}),
        faults=attrs.evolve(faults, **mishaps),
    )


def _with_hand_overs(acts: tuple[Act, ...], seed: int) -> tuple[Act, ...]:
    """Let processes of some runs leave permanently, with a separate random generator."""
    chance = random.Random(f"swarm/{seed}/warm/hand over")
    if chance.random() > _HAND_OVER:
        return acts
    some = list(acts)
    names = [act.process for act in acts if act.kind is ActKind.START]
    for _ in range(chance.randint(1, 2)):
        act = Act(
            after_ms=chance.choice((30, 300, 800)),
            kind=ActKind.HAND_OVER,
            process=chance.choice((*names, LEADER)),
        )
        some.insert(chance.randint(min(len(some), 3), len(some)), act)
    return tuple(some)


def _together(acts: tuple[Act, ...], seed: int) -> tuple[tuple[Act, ...], list[list[str]]]:
    """Draw whether the topics of a run belong together; most processes then subscribe to both.

    The separate random generator keeps all other draws of a run unchanged.
    """
    chance = random.Random(f"swarm/{seed}/warm/together")
    if chance.random() > _TOGETHER:
        return acts, []
    share = chance.choice((0.7, 1.0, 1.0))
    subscribed = {ActKind.START, ActKind.SUBSCRIBE}
    return tuple(
        attrs.evolve(act, topics=TOPICS)
        if act.kind in subscribed and chance.random() < share
        else act
        for act in acts
    ), [list(TOPICS)]
