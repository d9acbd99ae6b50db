"""`World`: virtual time, one queue of timed actions, random numbers, and the telemetry.

Nothing here knows of groups. A run depends only on its seed and on the queued actions. Actions with
equal times run in the order in which they were queued. Each purpose has its own random numbers, so
that a change in one part does not change the numbers of the others.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Protocol

from attrs import define, field, frozen

from coopgroup.core.model.group_api import Answer
from coopgroup.simulator.world.calls import Call
from coopgroup.telemetry import Envelope, FaultInjected, Record

__all__ = ["Violation", "Watcher", "World", "late_commit_of"]


@frozen(kw_only=True)
class Violation:
    """A rule that a run violated.

    Attributes:
        at_ms: time, in virtual ms.
    """

    checker: str
    at_ms: int
    message: str


class Watcher(Protocol):
    """Receives every event during the run, for example to write a transcript."""

    def recorded(self, envelope: Envelope) -> None:
        """A record was written."""
        ...

    def sent(self, call: Call) -> None:
        """A request was sent."""
        ...

    def answered(self, call: Call, answer: Answer) -> None:
        """An answer arrived."""
        ...

    def failed(self, call: Call) -> None:
        """A request will get no answer."""
        ...


@define(kw_only=True, eq=False)
class World:
    """Virtual time and all its events.

    Attributes:
        transcript: readable lines; None if not wanted.
    """

    seed: int = 0
    group_id: str = "group"
    now_ms: int = 0
    telemetry: list[Envelope] = field(factory=list)
    transcript: Watcher | None = None
    violations: list[Violation] = field(factory=list)
    # Actions by their time, in the order in which they were queued; and a heap of these times.
    _due: dict[int, list[tuple[Callable[..., object], tuple[Any, ...]]]] = field(factory=dict)
    _times_ms: list[int] = field(factory=list)
    _numbers: Iterator[int] = field(factory=lambda: count(1))
    _dice: dict[str, random.Random] = field(factory=dict)

    def dice(self, purpose: str) -> random.Random:
        """Return the random numbers for one purpose."""
        found = self._dice.get(purpose)
        if found is None:
            seed = f"{self.seed}/{purpose}"
            found = self._dice[purpose] = random.Random(seed)  # noqa: S311 - must be repeatable
        return found

    def number(self) -> int:
        """Return a new number."""
        return next(self._numbers)

    # The arguments are untyped: an action is called with the arguments queued for it.
    def at(self, at_ms: int, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401
        """Run an action at a time; for a past time now, after all due actions."""
        due_ms = max(at_ms, self.now_ms)
        queued = self._due.get(due_ms)
        if queued is None:
            self._due[due_ms] = [(action, arguments)]
            heapq.heappush(self._times_ms, due_ms)
        else:
            queued.append((action, arguments))

    def later(self, delay_ms: int, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401
        """Run an action after some time."""
        self.at(self.now_ms + delay_ms, action, *arguments)

    def run(self, until_ms: int) -> None:
        """Run all actions up to and including a time."""
        times_ms = self._times_ms
        while times_ms and times_ms[0] <= until_ms:
            self.now_ms = heapq.heappop(times_ms)
            for action, arguments in self._due[self.now_ms]:  # may queue more for this time
                action(*arguments)
            del self._due[self.now_ms]
        self.now_ms = until_ms

    def write(
        self, record: Record, *, client: str = "", member: str = "", generation: int = -1
    ) -> None:
        """Write a record."""
        envelope = Envelope(
            at_ms=self.now_ms,
            group=self.group_id,
            member=member,
            generation=generation,
            record=record,
            client=client,
        )
        self.telemetry.append(envelope)
        if self.transcript is not None:
            self.transcript.recorded(envelope)

    def fault(self, description: str) -> None:
        """Record a change of the environment."""
        self.write(FaultInjected(description=description))

    def object_to(self, checker: str, message: str) -> None:
        """Record a violated rule."""
        self.violations.append(Violation(checker=checker, at_ms=self.now_ms, message=message))


def late_commit_of(member_id: str) -> str:
    """Return the telemetry text for a late commit from which no rule of Kafka protects.

    It is written right before the commit is served: from the former life of a kept identity, or if
    its connection alone was held up for longer than a lease.
    """
    return f"a commit of {member_id} arrives late"
