"""`World`: virtual time, one queue of timed actions, dice, and what is written down.

Rules of this file: nothing here knows of groups. A run depends on its seed and on what is put into
the queue, and on nothing else: actions of one instant run in the order in which they were put
there, and each purpose has dice of its own, so that a change of one part does not shift the luck of
all others.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field, frozen

from coopgroup.telemetry import Envelope, FaultInjected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coopgroup.model.group_api import Answer
    from coopgroup.simulator.calls import Call
    from coopgroup.telemetry import Record

__all__ = ["Violation", "Watcher", "World", "late_commit_of"]


@frozen(kw_only=True)
class Violation:
    """A rule that a run broke.

    Attributes:
        checker: name of the rule.
        at_ms: when, in virtual ms.
        message: what, in one line.
    """

    checker: str
    at_ms: int
    message: str


class Watcher(Protocol):
    """Who is told everything while the run goes on; a transcript, say."""

    def recorded(self, envelope: Envelope) -> None:
        """Something was written down."""
        ...

    def sent(self, call: Call) -> None:
        """A request was sent."""
        ...

    def answered(self, call: Call, answer: Answer) -> None:
        """An answer arrived."""
        ...

    def failed(self, call: Call) -> None:
        """No answer will come."""
        ...


@define(kw_only=True, eq=False)
class World:
    """Virtual time and everything that happens in it.

    Attributes:
        seed: of all dice.
        group_id: of the group, for the telemetry.
        now_ms: virtual time, in ms.
        telemetry: everything written so far, in order.
        transcript: for people; None where nobody asked for it.
        violations: rules broken where no record can show it.
    """

    seed: int = 0
    group_id: str = "group"
    now_ms: int = 0
    telemetry: list[Envelope] = field(factory=list)
    transcript: Watcher | None = None
    violations: list[Violation] = field(factory=list)
    _queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = field(factory=list)
    _numbers: Iterator[int] = field(factory=lambda: count(1))
    _dice: dict[str, random.Random] = field(factory=dict)

    def dice(self, purpose: str) -> random.Random:
        """The dice for one purpose."""
        found = self._dice.get(purpose)
        if found is None:
            seed = f"{self.seed}/{purpose}"
            found = self._dice[purpose] = random.Random(seed)  # noqa: S311 - must be repeatable
        return found

    def number(self) -> int:
        """A number that nobody had before."""
        return next(self._numbers)

    # The annotations name no types of arguments: an action is called with what was given for it.
    def at(self, at_ms: int, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401
        """Run an action at a time; at once, but after all that is due, if that is over."""
        due_ms = max(at_ms, self.now_ms)
        heapq.heappush(self._queue, (due_ms, next(self._numbers), action, arguments))

    def later(self, delay_ms: int, action: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401
        """Run an action after a time."""
        due_ms = self.now_ms + delay_ms
        heapq.heappush(self._queue, (due_ms, next(self._numbers), action, arguments))

    def run(self, until_ms: int) -> None:
        """Let time pass, up to and with that instant."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(queue)
            action(*arguments)
        self.now_ms = until_ms

    def write(
        self, record: Record, *, client: str = "", member: str = "", generation: int = -1
    ) -> None:
        """Write a record down."""
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
        """Write down that the surroundings changed."""
        self.write(FaultInjected(description=description))

    def object_to(self, checker: str, message: str) -> None:
        """Write down that a rule was broken."""
        self.violations.append(Violation(checker=checker, at_ms=self.now_ms, message=message))


def late_commit_of(member_id: str) -> str:
    """How the telemetry says that a commit arrives after the end of the process that sent it.

    It is said of members with a kept identity only, right before the commit is served.
    """
    return f"a commit of {member_id} arrives after the end of its process"
