"""Directed runs: chains of events that the other draws of the swarm combine once in thousands.

A rule of the core often matters only if certain events follow each other: two processes die and one
comes, or a member misses an assignment and then dies. Each function below draws one such chain. The
processes, the times and the other settings stay random, so that no two runs are equal.

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
    resize_of,
    some_process,
    start_of,
    waiting_policy,
)
from tests.swarm.runs import Act, ActKind, Faults

if TYPE_CHECKING:
    from tests.swarm.chains import Draw
    from tests.swarm.runs import SwarmRun


def draw_directed(seed: int) -> SwarmRun:
    """Draw a directed run."""
    return drawn(seed, random.Random(f"swarm/directed/{seed}"), _CHAINS)


# --- members that the coordinator no longer waits for ---------------------------------------------


def _late_peace(chance: random.Random) -> Chain:
    """A round begins while the answer that none has begun is on its way; the join is stuck."""
    timeout_ms = chance.choice((600, 1_500))
    acts = first_acts(chance, chance.randint(1, 2))
    victim = some_process(chance, acts)
    late = Act(kind=ActKind.UPSET, process=victim, request="Heartbeat", mishap="ANSWER_DELAYED")
    stuck = Act(kind=ActKind.UPSET, process=victim, request="JoinGroup", mishap="DELAYED")
    acts += [
        attrs.evolve(late, after_ms=800, for_ms=chance.choice((140, 170, 190)), times=3),
        attrs.evolve(stuck, for_ms=4_000, times=2),
        start_of("p9", after_ms=chance.randint(50, 450)),
    ]
    return Chain(
        acts=tuple(acts),
        rebalance_timeout_ms=timeout_ms,
        healed_after_ms=timeout_ms + 600,
    )


def _two_connections(chance: random.Random) -> Chain:
    """A commit is stuck on one connection while a round waits for another member."""
    acts = first_acts(chance, 2)
    victim, other = chance.choice((("p1", "p2"), ("p2", "p1")))
    slow = Act(kind=ActKind.UPSET, process=other, request="JoinGroup", mishap="DELAYED")
    acts += [
        attrs.evolve(slow, after_ms=chance.choice(SETTLED_MS), for_ms=chance.choice((700, 1_500))),
        start_of("p9"),
        Act(
            after_ms=chance.randint(0, 250),
            kind=ActKind.HOLD_UP,
            process=victim,
            lane="commit",
            for_ms=chance.choice((300, 450, 600)),
        ),
    ]
    return Chain(
        acts=tuple(acts),
        faults=Faults(commit_interval_ms=30, awaits_commits=False),
        rebalance_timeout_ms=3_000,
        healed_after_ms=1_000,
    )


def _late_commits(chance: random.Random) -> Chain:
    """A resource returns to a member whose late commit of it still waits behind another commit."""
    late_ms = chance.choice((100, 200, 300))
    slow = Act(kind=ActKind.UPSET, process="p1", request="OffsetCommit", mishap="DELAYED")
    acts = (
        resize_of("T", chance.randint(2, 4)),
        start_of("p1"),
        start_of("p2", after_ms=chance.choice(SETTLED_MS)),
        attrs.evolve(
            slow, after_ms=chance.randint(100, 250), for_ms=chance.choice((250, 350, 450))
        ),
        Act(after_ms=chance.randint(50, 250), kind=ActKind.CLOSE, process="p2"),
    )
    return Chain(
        acts=acts,
        policy=waiting_policy(chance, delays_ms=(0, 300)),
        faults=Faults(
            commit_interval_ms=250,
            awaits_commits=chance.random() < 0.5,
            late_commit_ms=late_ms,
        ),
        healed_after_ms=1_000,
    )


# --- members that depart --------------------------------------------------------------------------


def _two_gone_one_came(chance: random.Random) -> Chain:
    """Two or three processes die, and fewer come than died."""
    acts = first_acts(chance, chance.randint(3, 5))
    gone = chance.sample([act.process for act in acts[3:]], 2)
    gap_ms = chance.choice((0, 5, 100, 300, 700))
    acts += [
        Act(after_ms=chance.choice(SETTLED_MS), kind=ActKind.CRASH, process=gone[0]),
        Act(after_ms=gap_ms, kind=ActKind.CRASH, process=gone[1]),
        start_of("p9", after_ms=chance.randint(50, 1_400)),
    ]
    if chance.random() < 0.3:
        acts.append(start_of("p8", after_ms=chance.choice((0, 100, 700)), identity=Identity.STATIC))
    return Chain(
        acts=tuple(acts), policy=waiting_policy(chance, delays_ms=(1_500,)), healed_after_ms=700
    )


def _missed_and_gone(chance: random.Random) -> Chain:
    """A member misses an assignment, gets its own back, and dies while a loss could still wait."""
    acts = first_acts(chance, chance.randint(1, 2))
    missed = Act(
        kind=ActKind.UPSET,
        process="p9",
        request="SyncGroup",
        mishap=chance.choice(("ANSWER_LOST", "REFUSED", "DELAYED", "DELAYED")),
        number=27,
        for_ms=chance.choice((300, 500)),
        times=chance.choice((2, 3, 4)),
    )
    acts += [
        start_of("p9", after_ms=chance.choice(SETTLED_MS)),
        attrs.evolve(missed, after_ms=chance.randint(0, 200)),
        resize_of("U", 4, after_ms=chance.randint(50, 250)),
        Act(after_ms=chance.randint(500, 1_100), kind=ActKind.CRASH, process="p9"),
    ]
    return Chain(
        acts=tuple(acts), policy=waiting_policy(chance, delays_ms=(1_500,)), healed_after_ms=2_500
    )


def _changed_in_window(chance: random.Random) -> Chain:
    """The topics or the subscriptions change while lost resources wait."""
    acts = first_acts(chance, chance.choice((3, 3, 4)), sizes=(5, 6))
    gone = chance.choice([act.process for act in acts[3:]])
    acts.append(Act(after_ms=chance.choice(SETTLED_MS), kind=ActKind.CRASH, process=gone))
    for number in range(chance.randint(1, 2)):
        after_ms = chance.randint(0, 400) if number else chance.randint(650, 1_500)
        match chance.choice(("T", "T", "U", "leader")):
            case "leader":
                end = Act(kind=ActKind.CLOSE, process=LEADER, for_ms=chance.choice((1, 100)))
                acts.append(attrs.evolve(end, after_ms=after_ms))
            case topic:
                count = chance.choice((1, 1, 2, 3, 6))
                acts.append(resize_of(topic, count, after_ms=after_ms))
    return Chain(
        acts=tuple(acts), policy=waiting_policy(chance, delays_ms=(1_500,)), healed_after_ms=2_000
    )


def _lost_again(chance: random.Random) -> Chain:
    """A newcomer gets a lost share, keeps it for some time, and dies as well."""
    acts = first_acts(chance, chance.randint(2, 4))
    gone = chance.choice([act.process for act in acts[2:]])
    delay_ms = chance.choice((300, 1_500))
    acts += [
        Act(after_ms=chance.choice(SETTLED_MS), kind=ActKind.CRASH, process=gone),
        start_of("p9", after_ms=chance.randint(400, 700 + delay_ms // 2)),
        Act(
            after_ms=chance.choice((50, 300, delay_ms, delay_ms + 1_200)),
            kind=ActKind.CRASH,
            process="p9",
            for_ms=chance.choice((0, 0, 1, 800)),
        ),
    ]
    return Chain(
        acts=tuple(acts),
        policy=waiting_policy(chance, delays_ms=(delay_ms,)),
        healed_after_ms=1_000 + delay_ms,
    )


def _batch(chance: random.Random) -> Chain:
    """Several processes restart at about the same time."""
    identity = chance.choice((Identity.NONE, Identity.NONE, Identity.STATIC, Identity.STATE_DIR))
    acts = first_acts(chance, chance.randint(3, 5), identity=identity)
    names = [act.process for act in acts[2:]]
    down_ms = chance.choice((1, 300, 700, 900, 1_200))
    kind = chance.choice((ActKind.CRASH, ActKind.CRASH, ActKind.CLOSE))
    for place, name in enumerate(chance.sample(names, chance.randint(2, 3))):
        after_ms = chance.choice((0, 5, 100)) if place else chance.choice(SETTLED_MS)
        back_ms = down_ms + chance.randint(0, 100)
        acts.append(Act(after_ms=after_ms, kind=kind, process=name, for_ms=back_ms))
    return Chain(
        acts=tuple(acts), policy=waiting_policy(chance, delays_ms=(1_500,)), healed_after_ms=2_000
    )


# --- leaders --------------------------------------------------------------------------------------


def _leaders_in_turn(chance: random.Random) -> Chain:
    """A leader loses its place in the middle of something, and leads again much later."""
    acts = first_acts(chance, chance.choice((2, 3, 3)), sizes=(4, 6))
    settled_ms = chance.choice(SETTLED_MS)
    if chance.random() < 0.5:
        gone = Act(after_ms=settled_ms, kind=ActKind.CRASH, process=acts[-1].process)
        acts += [gone, Act(after_ms=chance.choice((700, 850)), kind=ActKind.PAUSE, process=LEADER)]
    else:
        start = start_of("p9", acts[-1].topics, after_ms=settled_ms)
        acts += [start, Act(after_ms=chance.randint(20, 250), kind=ActKind.PAUSE, process=LEADER)]
    kind = chance.choice((ActKind.PAUSE, ActKind.CUT, ActKind.STALL))
    acts[-1] = attrs.evolve(acts[-1], kind=kind, for_ms=0 if kind is ActKind.STALL else 900)
    for number in range(chance.randint(1, 2)):
        after_ms = 1_800 if number else 2_700
        acts.append(Act(after_ms=after_ms, kind=ActKind.CRASH, process=LEADER))
    return Chain(
        acts=tuple(acts), policy=waiting_policy(chance, delays_ms=(300,)), healed_after_ms=1_500
    )


def _refused_rounds(chance: random.Random) -> Chain:
    """Leaders get no metadata in some rounds, while members depart and come."""
    acts = first_acts(chance, chance.randint(2, 4))
    names = [act.process for act in acts[2:]]
    for number in range(chance.randint(1, 3)):
        act = Act(
            after_ms=chance.choice(SETTLED_MS) if not number else chance.choice((100, 700)),
            kind=chance.choice((ActKind.CRASH, ActKind.CRASH, ActKind.CLOSE)),
            process=chance.choice((*names, LEADER)),
            for_ms=chance.choice((0, 300, 1_000)),
        )
        acts.append(act)
        if chance.random() < 0.5:
            acts.append(start_of(f"q{number}", after_ms=chance.randint(0, 900)))
    return Chain(
        acts=tuple(acts),
        policy=waiting_policy(chance, delays_ms=(300, 1_500)),
        faults=Faults(no_metadata=chance.choice((0.2, 0.5))),
        healed_after_ms=2_500,
    )


def _late_leaders(chance: random.Random) -> Chain:
    """Rounds follow each other while slow leaders still decide, and brokers take the group over."""
    acts = first_acts(chance, chance.randint(2, 3))
    for number in range(chance.randint(2, 4)):
        after_ms = chance.randint(20, 500) if number else chance.choice(SETTLED_MS)
        match chance.choice(("start", "move", "cut", "end")):
            case "start":
                identity = chance.choice((Identity.NONE, Identity.STATIC))
                acts.append(start_of(f"q{number}", after_ms=after_ms, identity=identity))
            case "move":
                move = Act(kind=ActKind.MOVE, number=chance.choice(NODES))
                acts.append(attrs.evolve(move, after_ms=after_ms, for_ms=chance.choice((0, 200))))
            case "cut":
                cut = Act(kind=ActKind.CUT, process=LEADER, for_ms=chance.choice((300, 900)))
                acts.append(attrs.evolve(cut, after_ms=after_ms))
            case _:
                end = Act(kind=ActKind.CRASH, process=LEADER, for_ms=chance.choice((1, 300)))
                acts.append(attrs.evolve(end, after_ms=after_ms))
    return Chain(
        acts=tuple(acts),
        faults=Faults(lead_ms_max=chance.choice((400, 700)), delay_ms_max=chance.choice((2, 40))),
        healed_after_ms=1_000,
    )


_CHAINS: Final[tuple[Draw, ...]] = (
    _late_peace,
    _two_connections,
    _late_commits,
    _two_gone_one_came,
    _missed_and_gone,
    _changed_in_window,
    _lost_again,
    _batch,
    _leaders_in_turn,
    _refused_rounds,
    _late_leaders,
)
