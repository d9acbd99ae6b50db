"""Play a history with every single fault, or with every pair.

    for failure in exhaust(cell).failures: ...

The history is played once to learn its messages. Then each run is the history with a fault at one of
them: a plain run of the swarm. A `Memo` has the steps that these runs share, so what happens before
a fault costs little. For pairs, the messages after the first fault are learned in the same way.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen

from coopgroup.simulator.host.process import Process
from coopgroup.simulator.scenario import Identity
from tests.swarm.checkers.faults import Usual
from tests.swarm.faults import Message, of_message, of_moment, with_fault
from tests.swarm.memo import Memo
from tests.swarm.play import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.core.model.group_api import Answer
    from coopgroup.simulator.world.calls import Call
    from coopgroup.telemetry import Envelope
    from tests.swarm.histories import Cell
    from tests.swarm.runs import Act, SwarmRun

SECOND_WITHIN: Final = 25
"""Messages after a first fault at which the second one may strike."""
_AFTER_MS: Final = 250  # a heartbeat of each member that has heard everything


@frozen(kw_only=True)
class Failure:
    """A run that violates a rule.

    Attributes:
        run: the run; `play` plays it again.
        checker: the first checker that objected, or the name of what was raised.
        message: its message.
    """

    run: SwarmRun
    checker: str
    message: str


@define(kw_only=True)
class Tally:
    """The outcome of many runs: their number, and those that violate a rule."""

    runs: int = 0
    failures: list[Failure] = field(factory=list)


@frozen(kw_only=True)
class Choice:
    """Which faults to play.

    Attributes:
        every_code: whether to refuse with all codes, instead of one for each action of a member.
        names: names of mishaps and kinds of acts; empty for all faults.
    """

    every_code: bool = False
    names: frozenset[str] = frozenset()


def exhaust(cell: Cell, *, pairs: bool = False, choice: Choice | None = None) -> Tally:
    """Play a history with all single faults, or with all pairs."""
    run, memo, tally = cell.run(), Memo(), Tally()
    choice = Choice() if choice is None else choice
    with memo.used():
        messages = _Messages()
        usual = Usual.of(play(run, watcher=messages).telemetry)
        first = messages.between(cell.begins_ms, usual.moved_until_ms + _AFTER_MS)
        memo.keeps = pairs
        for trials in _with_each_fault(cell, run, first, choice):
            for trial in trials:
                if pairs:
                    _play_seconds(cell, trial, usual, memo, tally, choice)
                else:
                    _play_one(trial, usual, tally)
            memo.forget()
    return tally


def _play_one(
    run: SwarmRun, usual: Usual, tally: Tally, messages: _Messages | None = None
) -> None:
    tally.runs += 1
    failure = failure_of(run, usual, messages)
    if failure is not None:
        tally.failures.append(failure)


def failure_of(
    run: SwarmRun, usual: Usual | None = None, messages: _Messages | None = None
) -> Failure | None:
    """Play a run, and return its failure; None for a good run."""
    try:
        violations = play(run, usual=usual, watcher=messages).violations
    except Exception as error:  # noqa: BLE001 - whatever is raised is a failure like any other
        return Failure(run=run, checker=type(error).__name__, message=" ".join(str(error).split()))
    if not violations:
        return None
    return Failure(run=run, checker=violations[0].checker, message=violations[0].message)


def _with_each_fault(
    cell: Cell, run: SwarmRun, messages: list[Message], choice: Choice
) -> Iterator[list[SwarmRun]]:
    """Yield the runs with one more fault, those of each time together."""
    for at_ms, group in groupby(messages, lambda message: message.at_ms):
        same = list(dict.fromkeys(group))
        faults: list[tuple[int, Act]] = []
        for message in same:
            # registered a moment before the message is sent
            faults += [(at_ms - 1, one) for one in of_message(message, choice.every_code)]
        deeds = of_moment([one.process for one in same], cell.identity == Identity.NONE)
        faults += [(at_ms, one) for one in deeds]
        names = choice.names
        yield [
            with_fault(run, when_ms, fault)
            for when_ms, fault in faults
            if not names or {fault.mishap, fault.kind} & names
        ]


@define(eq=False)
class _Messages:
    """Notes the messages of members."""

    noted: list[Message] = field(factory=list)

    def between(self, from_ms: int, until_ms: int) -> list[Message]:
        """Return the messages of a time, in the order in which they were sent."""
        return [message for message in self.noted if from_ms <= message.at_ms <= until_ms]

    def recorded(self, envelope: Envelope) -> None:
        pass

    def sent(self, call: Call) -> None:
        if isinstance(call.process, Process):
            request = type(call.send.request).__name__.removesuffix("Request")
            now_ms = call.process.world.now_ms
            self.noted.append(Message(at_ms=now_ms, process=call.process.name, request=request))

    def answered(self, call: Call, answer: Answer) -> None:
        pass

    def failed(self, call: Call) -> None:
        pass
