"""Play a history with every single fault, or with every pair.

    for failure in exhaust(cell).failures: ...

The history is played once to learn its messages. Then each run is the history with a fault at one
of them: a plain run of the swarm. A `Memo` has the steps that these runs share, so that the part
before the fault costs little. For pairs, the messages after the first fault are learned likewise.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen

from coopgroup.simulator.host.process import Process
from coopgroup.simulator.scenario import Identity
from tests.swarm.checkers.faults import Usual
from tests.swarm.consumers import has_leaders, is_of_kip848
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
_PAIR_MS: Final = 2_000
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
class Wanted:
    """Which faults to play.

    Attributes:
        every_code: whether to refuse with all codes, instead of one for each action of a member.
        names: names of mishaps and kinds of acts; empty for all faults.
    """

    every_code: bool = False
    names: frozenset[str] = frozenset()


def exhaust(cell: Cell, *, pairs: bool = False, wanted: Wanted | None = None) -> Tally:
    """Play a history with all single faults, or with all pairs."""
    memo, tally = Memo(), Tally()
    with memo.used(), _collector_disabled():
        usual, batches = _singles(cell, Wanted() if wanted is None else wanted)
        memo.keeps = False
        gc.freeze()
        for trials in batches:
            for trial in trials:
                if pairs:
                    _play_pairs(cell, trial, usual, tally, Wanted() if wanted is None else wanted)
                    _forget(memo)
                else:
                    _play_one(trial, usual, tally)
            _forget(memo)
    return tally


@contextmanager
def _collector_disabled() -> Iterator[None]:
    """Disable the cyclic garbage collector.

    It would visit the objects of the memo again and again, and find nothing there.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def _forget(memo: Memo) -> None:
    memo.forget()
    gc.collect()  # a run ends in cycles: its processes and its world refer to each other


def single_faults(cell: Cell) -> Iterator[tuple[SwarmRun, Usual]]:
    """Yield the runs of a history with one fault, and what happens without it."""
    usual, batches = _singles(cell, Wanted())
    for trials in batches:
        for trial in trials:
            yield trial, usual


def _singles(cell: Cell, wanted: Wanted) -> tuple[Usual, Iterator[list[SwarmRun]]]:
    run, messages = cell.run(), _Messages()
    usual = Usual.of(play(run, watcher=messages).telemetry)
    until_ms = max(usual.moved_until_ms, cell.begins_ms + _AFTER_MS) + _AFTER_MS
    first = messages.between(cell.begins_ms, until_ms)
    return usual, _with_each_fault(cell, run, first, wanted)


def _play_one(run: SwarmRun, usual: Usual, tally: Tally, messages: _Messages | None = None) -> None:
    tally.runs += 1
    failure = failure_of(run, usual, messages)
    if failure is not None:
        tally.failures.append(failure)


def _play_pairs(cell: Cell, run: SwarmRun, usual: Usual, tally: Tally, wanted: Wanted) -> None:
    """Play a run with its fault, and with every second fault after it."""
    messages = _Messages()
    _play_one(run, usual, tally, messages)
    at_ms = 0
    for act in run.acts:
        at_ms += act.after_ms
        if act.is_fault:
            break
    later = messages.between(at_ms + 1, usual.moved_until_ms + 2 * _PAIR_MS)[:SECOND_WITHIN]
    for trials in _with_each_fault(cell, run, later, wanted):
        for trial in trials:
            _play_one(trial, usual, tally)


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
    cell: Cell, run: SwarmRun, messages: list[Message], wanted: Wanted
) -> Iterator[list[SwarmRun]]:
    """Yield the runs with one more fault, those of each time together."""
    for at_ms, group in groupby(messages, lambda message: message.at_ms):
        same = list(dict.fromkeys(group))
        faults: list[tuple[int, Act]] = []
        for message in same:
            # registered a moment before the message is sent
            faults += [(at_ms - 1, one) for one in of_message(message, wanted.every_code)]
        with_leaves = cell.identity == Identity.NONE
        with_leader = not is_of_kip848(run) or has_leaders(run)
        names_now = [one.process for one in same]
        deeds = of_moment(names_now, with_leaves, with_leader=with_leader)
        faults += [(at_ms, one) for one in deeds]
        names = wanted.names
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
