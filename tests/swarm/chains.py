"""Parts of chains: runs whose events follow each other in a certain way.

The modules `directed` and `returning` draw such chains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
from attrs import field, frozen

from coopgroup.simulator.scenario import Choice, Identity
from tests.swarm.runs import TOPICS, Act, ActKind, Faults, SwarmRun, supervisor_faults

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

SETTLED_MS: Final = (600, 800, 1_000)
"""Times after which the first members have their resources."""


@frozen(kw_only=True)
class Chain:
    """The part of a run that a chain of events determines.

    Attributes:
        acts: events in order.
        healed_after_ms: time from the last event until all faults end.
        policy: None for any policy.
        faults: faults that can happen at any time.
        rebalance_timeout_ms: of every member.
    """

    acts: tuple[Act, ...]
    healed_after_ms: int = 0
    policy: Choice | None = None
    faults: Faults = field(factory=Faults)
    rebalance_timeout_ms: int = 1_500


Draw: TypeAlias = Callable[["random.Random"], Chain]


def drawn(seed: int, chance: random.Random, chains: Sequence[Draw]) -> SwarmRun:
    """Draw a run with one of the chains."""
    chain = chance.choice(chains)(chance)
    return SwarmRun(
        seed=seed,
        policy=chain.policy or waiting_policy(chance),
        assignor=chance.choice(("sticky", "sticky", "cooperative-sticky", "lag-aware")),
        rebalance_timeout_ms=chain.rebalance_timeout_ms,
        faults=attrs.evolve(chain.faults, **supervisor_faults(seed)),
        acts=chain.acts,
        healed_after_ms=chain.healed_after_ms,
    )


def first_acts(
    chance: random.Random,
    count: int,
    *,
    sizes: tuple[int, int] = (3, 6),
    identity: Identity = Identity.NONE,
) -> list[Act]:
    """Return the topics and the first processes, which all have the same subscription."""
    topics = chance.choice((("T",), TOPICS))
    acts = [resize_of("T", chance.randint(*sizes)), resize_of("U", chance.randint(1, 3))]
    for number in range(1, count + 1):
        after_ms = chance.choice((5, 100, 300)) if number > 1 else 0
        acts.append(start_of(f"p{number}", topics, after_ms=after_ms, identity=identity))
    return acts


def some_process(chance: random.Random, acts: list[Act]) -> str:
    return chance.choice([act.process for act in acts if act.kind is ActKind.START])


def start_of(
    name: str,
    topics: tuple[str, ...] = TOPICS,
    *,
    after_ms: int = 0,
    identity: Identity = Identity.NONE,
) -> Act:
    return Act(
        after_ms=after_ms, kind=ActKind.START, process=name, topics=topics, identity=identity
    )


def resize_of(topic: str, number: int, *, after_ms: int = 0) -> Act:
    return Act(after_ms=after_ms, kind=ActKind.RESIZE, topics=(topic,), number=number)


def waiting_policy(chance: random.Random, delays_ms: tuple[int, ...] = (0, 300, 1_500)) -> Choice:
    """Return a waiting policy."""
    waits: Mapping[str, object] = {
        "scheduled_rebalance_timeout_ms": chance.choice(delays_ms),
        "initial_delay_ms": 0,
    }
    if chance.random() < 0.5:
        return Choice(name="deferred", options=dict(waits))
    ration = {
        "max_moves_per_round": chance.choice((1, 2)),
        "move_interval_ms": chance.choice((0, 200, 500)),
    }
    return Choice(name="incremental", options={**waits, **ration})
