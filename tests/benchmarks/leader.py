"""The leader's round: from 10,000 subscriptions' bytes to 10,000 assignments' bytes.

A thousand topics with a thousand partitions each, which all members subscribe to; the sticky
assignor and the deferred policy. Goals, with CPU time of one process: below 1.5 s and 1 GiB where a
member joins, leaves or is lost; below 0.5 s where nothing changes. Members' subscriptions name the
generation, so none is the same as in the round before, whatever they hold.

The rounds are those of one group, one after the other, led by the same leader:

    first    nobody owns anything
    told     everybody is back, and owns what it was told
    steady   everybody is back, and nothing has changed since
    join     one member more; the round takes from others what is to be its own
    joined   the round after that, which gives it that
    lost     a member is missing: what it held waits for it
    settled  it has left for good, and others get what it held
    leave    a round led by another member, that remembers nothing: one is missing

What a leader read lately it need not read again (`coopgroup.protocol.recent`). In the last of these
rounds that is forgotten as well, as in a process that has never led.

`python -m tests.benchmarks.leader --write` puts the last result into docs/leader_round.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from attrs import frozen

from coopgroup import DeferredPolicy, StickyAssignor
from coopgroup.leader import NO_LAGS, LedRound, TopicMetadata, answer, decision, lead, read_members
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import JoinedMember
from coopgroup.policies.base import RoundContext
from coopgroup.protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
    resource_array,
    subscription,
)
from coopgroup.protocol.recent import RecentlyRead
from tests.benchmarks.results import RESULTS, write_between

__all__ = ["run", "table"]

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
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "leader_round.md"
BEGIN: Final = "<!-- leader:begin -->"
END: Final = "<!-- leader:end -->"

_FUNCTIONS: Final[Mapping[str, tuple[ModuleType, str]]] = {
    "claims": (decision, "resolve_claims"),
    "check": (decision, "violations"),
    "check_target": (decision, "check_target"),
    "records": (decision, "_led"),
    "split": (answer, "member_assignments"),
    "encode": (answer, "_encoded"),
}
"""Parts of a round that are functions of a module: their time is taken where they are called."""


class _Clock:
    """CPU seconds by step, steps inside of others not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner_s = 0.0

    def timed(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, its time added to that of a step."""

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


@frozen
class _Timed:
    """An assignor or a policy, its methods timed; everything else is passed on."""

    inner: Any
    steps: Mapping[str, str]
    clock: _Clock

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the other has
        found = getattr(self.inner, name)
        return self.clock.timed(self.steps[name], found) if name in self.steps else found


class _Group:
    """Members on the other side of the wire: what they hold, and what they send."""

    def __init__(self, topics: int, partitions: int, members: int) -> None:
        names = [f"topic-{number:05d}" for number in range(topics)]
        self.existing = ResourceSet(dict.fromkeys(names, range(partitions)))
        self.owned = {f"member-{number:05d}": ResourceSet() for number in range(members)}
        self.generation = 0

    def joined(self) -> list[JoinedMember]:
        """What JoinGroup answers to the leader."""
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

    def take(self, led: LedRound) -> None:
        """Do as the leader says."""
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
    """Lead a group through its rounds, each several times.

    Args:
        topics: of the group.
        partitions: of each topic.
        members: of the group.
        rounds: times that each round is led; the median counts.

    Returns:
        By round: CPU seconds in all, and of each step. `peak_mib`: peak memory of the process, the
        members' own bytes included.
    """
    found: dict[str, Any] = {}
    for name, joined, context, existing in _rounds(_Group(topics, partitions, members)):
        found[name] = _measured(name, joined, context, existing, rounds)
        print(f"leader: {name} {found[name]}", flush=True)
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
    print(f"leader: {found['peak_mib']} MiB at the peak", flush=True)
    return found


def table(found: Mapping[str, Any]) -> str:
    """The result as Markdown: a row for each round, a column for each step.

    Args:
        found: what `run` returned.
    """
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


def main() -> None:
    """Print the last result; put it into the page."""
    parser = argparse.ArgumentParser(description="Table of the last result.")
    parser.add_argument("--write", action="store_true", help="write it into docs/leader_round.md")
    arguments = parser.parse_args()
    drawn = table(json.loads(RESULTS.read_text())["leader"])
    print(drawn)
    if arguments.write:
        write_between(PAGE, BEGIN, END, drawn)


def _rounds(
    group: _Group,
) -> Iterator[tuple[str, list[JoinedMember], RoundContext, TopicMetadata]]:
    """The rounds of the group; each is led once more here, and followed."""
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
) -> LedRound:
    policy: Any = _Timed(
        DeferredPolicy(scheduled_rebalance_timeout_ms=LOSS_MS),
        {"offer": "offer", "stage": "stage"},
        clock,
    )
    assignor: Any = _Timed(StickyAssignor(), {"assign": "assign"}, clock)
    with _steps_timed(clock):
        request = clock.timed("decode", read_members)(joined)
        return lead(request, metadata, NO_LAGS, assignor=assignor, policy=policy, context=context)


def _forget_all() -> None:
    """Have nothing been read lately."""
    memories: tuple[tuple[ModuleType, str, object], ...] = (
        (subscription, "_TOPICS", RecentlyRead[Any](2**24)),
        (resource_array, "_RECENT", {0: RecentlyRead[Any](2**26)}),
        (resource_array, "_NAMES", {}),
    )
    for module, name, nothing in memories:
        setattr(module, name, nothing)


@contextmanager
def _steps_timed(clock: _Clock) -> Iterator[None]:
    kept = {step: getattr(module, name) for step, (module, name) in _FUNCTIONS.items()}
    for step, (module, name) in _FUNCTIONS.items():
        setattr(module, name, clock.timed(step, kept[step]))
    try:
        yield
    finally:
        for step, (module, name) in _FUNCTIONS.items():
            setattr(module, name, kept[step])


if __name__ == "__main__":
    main()
