"""The leader's round: from 10,000 subscriptions' bytes to 10,000 assignments' bytes.

All members subscribe to a thousand topics with a thousand partitions each. The group has the sticky
assignor and the deferred policy. Goals, in CPU time of one process:

- below 1.5 s and 1 GiB after a join, a leave or a loss;
- below 0.5 s without changes.

Members' subscriptions contain the generation, so every subscription differs from the previous
round's.

The same leader leads these rounds of one group, in this order:

    first    no partition has an owner
    told     all members rejoin, and own their assignment
    steady   all members rejoin, without any change
    join     a new member; the round takes its future partitions from others
    joined   the next round, which gives them to it
    lost     a member is missing: its partitions wait for it
    settled  it has left permanently, and others get its partitions
    leave    another member without memory leads a round: a member is missing

A leader need not decode again what it decoded recently (`coopgroup.core.protocol.recent`). Before
the last round that cache is cleared as well, as in a process that has never led.

`python -m tests.benchmarks.leader --write` puts the last result into docs/leader_round.md.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from coopgroup import DeferredPolicy, StickyAssignor
from coopgroup.core.leader import (
    NO_LAGS,
    RoundDecision,
    TopicMetadata,
    answer,
    decision,
    lead,
    read_members,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.policies.policy import RoundContext
from coopgroup.core.protocol import resource_array, subscription
from coopgroup.core.protocol.recent import RecentlyRead
from coopgroup.protocol import Subscription, decode_assignment, encode_subscription
from docs.sections import DOCS
from tests.benchmarks.results import show_table

TOPICS: Final = 1_000
PARTITIONS: Final = 1_000
MEMBERS: Final = 10_000
ROUNDS: Final = 3
LOSS_MS: Final = 60_000
LEADER: Final = "member-00000"
ROUNDS_OF_GROUP: Final = ("first", "told", "steady", "join", "joined", "lost", "settled", "leave")

STEPS: Final = (
    "decode",
    "claims",
    "offer",
    "assign",
    "check_target",
    "stage",
    "check",
    "records",
    "split",
    "encode",
)

_CALLS: Final[Mapping[str, tuple[object, str]]] = {
    "offer": (DeferredPolicy, "offer"),
    "assign": (StickyAssignor, "assign"),
    "stage": (DeferredPolicy, "stage"),
    "claims": (answer, "resolve_claims"),
    "check": (decision, "violations"),
    "check_target": (decision, "check_target"),
    "records": (decision, "round_record"),
    "split": (answer, "member_assignments"),
    "encode": (answer, "_encoded"),
}
"""Parts of a round: their time is taken where they are called."""


class _Clock:
    """CPU seconds by step; nested steps are not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner_s = 0.0

    def timed(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call so that its time is added to a step."""

        def measured(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any call
            outer_s, self._inner_s = self._inner_s, 0.0
            began_s = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                took_s = time.process_time() - began_s
                self.seconds[step] = self.seconds.get(step, 0.0) + took_s - self._inner_s
                self._inner_s = outer_s + took_s

        return measured


class _Group:
    """The members of the group: owned partitions and subscriptions."""

    def __init__(self, topics: int, partitions: int, members: int) -> None:
        names = [f"topic-{number:05d}" for number in range(topics)]
        self.existing = ResourceSet(dict.fromkeys(names, range(partitions)))
        self.owned = {f"member-{number:05d}": ResourceSet() for number in range(members)}
        self.generation = 0

    def joined(self) -> list[JoinedMember]:
        """Return the leader's JoinGroup response."""
        return [
            JoinedMember(
                member_id=member,
                group_instance_id=None,
                metadata=encode_subscription(
                    Subscription(
                        topics=self.existing.names,
                        owned=owned,
                        generation=self.generation if owned else -1,
                    )
                ),
            )
            for member, owned in self.owned.items()
        ]

    def take(self, led: RoundDecision) -> None:
        """Follow the leader's assignments."""
        self.generation += 1
        for member, content in led.assignments:
            assignment = decode_assignment(content)
            self.owned[member] = assignment.assigned


def run(
    *,
    topics: int = TOPICS,
    partitions: int = PARTITIONS,
    members: int = MEMBERS,
    rounds: int = ROUNDS,
) -> dict[str, Any]:
    """Lead a group through its rounds; of each round the median of several counts.

    Returns:
        By round: total CPU seconds, and those of each step. `peak_mib`: peak memory of the process,
        including the members' own bytes.
    """
    found: dict[str, Any] = {}
    for name, joined, context, existing in _rounds(_Group(topics, partitions, members)):
        found[name] = _measured(name, joined, context, existing, rounds)
        print(f"leader: {name} {found[name]}", flush=True)
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
    print(f"leader: {found['peak_mib']} MiB at the peak", flush=True)
    return found


def table(found: Mapping[str, Any]) -> str:
    """Return the result as Markdown: a row for each round, a column for each step."""
    rounds = {name: found[name] for name in ROUNDS_OF_GROUP}
    steps = [step for step in STEPS if any(step in one["steps_s"] for one in rounds.values())]
    lines = [
        "| round | ms in all | " + " | ".join(steps) + " |",
        "|---|" + "---:|" * (len(steps) + 1),
    ]
    for name, one in rounds.items():
        cells = [f"{1_000 * one['steps_s'].get(step, 0.0):,.0f}" for step in steps]
        lines.append(f"| {name} | {1_000 * one['cpu_s']:,.0f} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"Peak memory of the process, members' own bytes included: {found['peak_mib']} MiB.",
    ]
    return "\n".join(lines)


def _rounds(
    group: _Group,
) -> Iterator[tuple[str, list[JoinedMember], RoundContext, TopicMetadata]]:
    """Yield the rounds of the group; each is led once more here, and followed."""
    metadata = TopicMetadata(resources=group.existing)
    state = None
    now_ms = 0
    for name in ROUNDS_OF_GROUP:
        if name == "join":
            group.owned["member-99999"] = ResourceSet()
        elif name in ("lost", "leave"):
            del group.owned[sorted(group.owned)[len(group.owned) // 2]]
        if name == "settled":
            now_ms += LOSS_MS
        context = RoundContext(
            leader_id=LEADER,
            generation=group.generation,
            now_ms=now_ms,
            state=None if name == "leave" else state,
            round_generation=group.generation + 1,
        )
        joined = group.joined()
        yield name, joined, context, metadata
        led = _led(joined, context, metadata, _Clock())
        assert not led.refused
        group.take(led)
        state = led.state
        now_ms += 1_000


def _measured(
    name: str,
    joined: Sequence[JoinedMember],
    context: RoundContext,
    metadata: TopicMetadata,
    rounds: int,
) -> dict[str, Any]:
    clocks = []
    totals_s = []
    for _ in range(rounds):
        clock = _Clock()
        if name == "leave":
            _forget_all()
        began_s = time.process_time()
        _led(joined, context, metadata, clock)
        totals_s.append(time.process_time() - began_s)
        clocks.append(clock.seconds)
    total_s = statistics.median(totals_s)
    steps = {step: statistics.median(clock[step] for clock in clocks) for step in clocks[0]}
    return {
        "cpu_s": round(total_s, 3),
        "steps_s": {step: round(seconds, 3) for step, seconds in steps.items()},
    }


def _led(
    joined: Sequence[JoinedMember], context: RoundContext, metadata: TopicMetadata, clock: _Clock
) -> RoundDecision:
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=LOSS_MS)
    with ExitStack() as patches:
        for step, (owner, name) in _CALLS.items():
            timed = clock.timed(step, getattr(owner, name))
            patches.enter_context(patch.object(owner, name, timed))
        request = clock.timed("decode", read_members)(joined)
        assignor = StickyAssignor()
        return lead(request, metadata, NO_LAGS, assignor=assignor, policy=policy, context=context)


def _forget_all() -> None:
    """Clear the caches of decoded messages."""
    memories: tuple[tuple[ModuleType, str, object], ...] = (
        (subscription, "_TOPICS", RecentlyRead[Any](2**24)),
        (resource_array, "_RECENT", {0: RecentlyRead[Any](2**26)}),
        (resource_array, "_NAMES", {}),
    )
    for module, name, nothing in memories:
        setattr(module, name, nothing)


if __name__ == "__main__":
    show_table("leader", table, DOCS / "leader_round.md")
