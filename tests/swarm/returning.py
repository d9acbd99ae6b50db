"""Runs in which processes return: after a crash before their sync, or to a share that others have.

A crash between the join and the sync is rare in the other draws, because a sync follows its join
within a few milliseconds. A process with an identity returns to a place that the group has kept.

These runs have their own random generator, so the other runs of a seed do not change.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.simulator.scenario import LEADER, Identity
from coopgroup.simulator.world.brokers import NODES
from tests.swarm.chains import (
    SETTLED_MS,
    Chain,
    drawn,
    first_acts,
    some_process,
    start_of,
    waiting_policy,
)
from tests.swarm.runs import Act, ActKind, Faults

if TYPE_CHECKING:
    from tests.swarm.chains import Draw
    from tests.swarm.runs import SwarmRun


def draw_returning(seed: int) -> SwarmRun:
    """Draw a directed run in which processes return."""
    return drawn(seed, random.Random(f"swarm/returning/{seed}"), _RETURNS)


def _crash_loop(chance: random.Random) -> Chain:
    """A process dies between its join and its sync, perhaps again and again; the group moves."""
    identity = chance.choice((Identity.STATIC, Identity.STATE_DIR, Identity.STATE_DIR))
    acts = first_acts(
        chance, chance.randint(1, 3), identity=chance.choice((Identity.NONE, identity))
    )
    victim = "p9"
    if chance.random() < 0.5:
        acts.append(start_of(victim, acts[2].topics, identity=identity))
    loop = Act(kind=ActKind.CRASH_AT_SYNC, process=victim, times=chance.choice((1, 1, 2, 5)))
    back_ms = chance.choice((1, 5, 50, 300, 650))
    acts += [
        start_of(victim, acts[2].topics, after_ms=chance.choice(SETTLED_MS), identity=identity),
        attrs.evolve(loop, for_ms=back_ms, number=chance.choice((0, 0, 1))),
        start_of("p8", acts[2].topics, after_ms=chance.randint(0, 400)),
    ]
    for _ in range(chance.randint(0, 2)):
        acts.append(_trouble(chance, victim))
    return Chain(
        acts=tuple(acts),
        faults=Faults(lead_ms_max=chance.choice((10, 10, 300))),
        rebalance_timeout_ms=chance.choice((600, 1_500)),
        healed_after_ms=chance.choice((300, 1_500)),
    )


def _round_without_its_join(chance: random.Random) -> Chain:
    """A round ends without the join of a static member, and its later join meets trouble."""
    timeout_ms = chance.choice((600, 600, 1_500))
    acts = first_acts(chance, chance.randint(2, 3), identity=Identity.STATIC)
    victim = some_process(chance, acts)
    stuck = Act(kind=ActKind.UPSET, process=victim, mishap="DELAYED")
    request = chance.choice(("JoinGroup", "SyncGroup", "SyncGroup"))
    late_ms = chance.choice((timeout_ms, timeout_ms + 150, timeout_ms + 700))
    acts += [
        attrs.evolve(stuck, request=request, for_ms=late_ms, after_ms=chance.choice((0, 10, 700))),
        start_of("p9", acts[2].topics, after_ms=chance.randint(0, 300)),
    ]
    if chance.random() < 0.5:
        acts.append(start_of("p8", acts[2].topics, after_ms=chance.randint(50, 500)))
    cut = Act(kind=ActKind.CUT, process=victim, for_ms=chance.choice((500, 900, 1_500)))
    acts.append(attrs.evolve(cut, after_ms=timeout_ms + chance.randint(0, 400)))
    if chance.random() < 0.5:
        acts.append(_trouble(chance, victim))
    return Chain(
        acts=tuple(acts),
        rebalance_timeout_ms=timeout_ms,
        healed_after_ms=chance.choice((500, 1_500)),
    )


def _back_after_the_wait(chance: random.Random) -> Chain:
    """A receiver of a released share dies before it claims its part, and the owner returns."""
    identity = chance.choice((Identity.STATIC, Identity.NONE, Identity.STATE_DIR))
    acts = first_acts(chance, chance.randint(3, 4), sizes=(5, 6), identity=identity)
    names = [act.process for act in acts[2:]]
    gone, receiver = chance.sample(names, 2)
    delay_ms = chance.choice((300, 1_500, 1_500, 1_500))
    released_ms = 700 + delay_ms
    back_ms = released_ms + chance.randint(0, 700)
    dies_ms = chance.randint(900, released_ms)
    receives = Act(kind=ActKind.CRASH_AT_SYNC, process=receiver, after_ms=dies_ms)
    acts += [
        Act(after_ms=chance.choice(SETTLED_MS), kind=ActKind.CRASH, process=gone, for_ms=back_ms),
        attrs.evolve(receives, for_ms=chance.choice((1, 100, 300, 800))),
    ]
    return Chain(
        acts=tuple(acts),
        policy=waiting_policy(chance, delays_ms=(delay_ms,)),
        healed_after_ms=1_500 + delay_ms,
    )


def _back_beside_a_newcomer(chance: random.Random) -> Chain:
    """An owner returns while additional members join, and one of them dies before its claim."""
    identity = chance.choice((Identity.STATIC, Identity.STATIC, Identity.STATE_DIR))
    acts = first_acts(chance, chance.choice((2, 2, 3)), sizes=(5, 6), identity=identity)
    gone = some_process(chance, acts)
    down_ms = chance.choice((1, 1, 100, 650, 900))
    timeout_ms = chance.choice((600, 600, 1_500))
    if chance.random() < 0.6:
        # The round ends without the join of the other owners, whose last joins claim nothing.
        acts[3:] = [attrs.evolve(act, after_ms=0) for act in acts[3:]]
        late = Act(
            kind=ActKind.UPSET, request="JoinGroup", mishap="DELAYED", for_ms=timeout_ms + 100
        )
        others = {act.process for act in acts[2:]} - {gone}
        acts.append(attrs.evolve(late, process=min(others), after_ms=chance.choice((4, 50, 600))))
    doom = Act(kind=ActKind.CRASH_AT_SYNC, process="p9", for_ms=chance.choice((0, 1, 300, 700)))
    acts += [
        Act(after_ms=chance.choice((15, 600)), kind=ActKind.CRASH, process=gone, for_ms=down_ms),
        start_of("p9", acts[2].topics, after_ms=max(0, down_ms - chance.choice((0, 20, 100, 300)))),
        attrs.evolve(doom, times=chance.choice((1, 1, 2))),
    ]
    if chance.random() < 0.3:
        acts.append(start_of("p8", acts[2].topics, after_ms=chance.randint(0, 300)))
    if chance.random() < 0.3:
        acts.append(_trouble(chance, gone))
    return Chain(
        acts=tuple(acts),
        policy=waiting_policy(chance, delays_ms=(300, 1_500, 1_500)),
        rebalance_timeout_ms=timeout_ms,
        healed_after_ms=1_500,
    )


def _trouble(chance: random.Random, victim: str) -> Act:
    """Return a move of the group, a pause or the end of a process."""
    after_ms = chance.randint(0, 700)
    match chance.choice(("move", "move", "pause", "end")):
        case "move":
            for_ms = chance.choice((0, 0, 200))
            node = chance.choice(NODES)
            return Act(after_ms=after_ms, kind=ActKind.MOVE, number=node, for_ms=for_ms)
        case "pause":
            for_ms = chance.choice((300, 700))
            return Act(after_ms=after_ms, kind=ActKind.PAUSE, process=victim, for_ms=for_ms)
        case _:
            for_ms = chance.choice((1, 300, 900))
            return Act(after_ms=after_ms, kind=ActKind.CRASH, process=LEADER, for_ms=for_ms)


_RETURNS: Final[tuple[Draw, ...]] = (
    _crash_loop,
    _round_without_its_join,
    _back_after_the_wait,
    _back_beside_a_newcomer,
)
