"""An event loop in virtual time: its clock jumps to the next timer when no task can go on.

The loop reads the clock of `by_hand`. When all tasks wait, it first runs what would run on other
threads meanwhile: the due jobs of the hand, and the turns that the test gave it. Only then does the
clock move. So `asyncio.sleep` and time-outs cost nothing, and every run takes the same course.

If all tasks wait and there is neither a job nor a timer, a real loop would hang. This one fails.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from asyncio.events import _get_running_loop as running_loop  # documented, for event loops
from asyncio.events import _set_running_loop as set_running_loop
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from tests.support.by_hand import Hand

T = TypeVar("T")
Turn: TypeAlias = Callable[[], float]
"""Does its work if it is due, and returns 0 then; otherwise the pause until it is due, in seconds.

It may return infinity. The loop asks again before each move of the clock.
"""

_LIMIT_S: Final = 600.0
_STEPS_MAX: Final = 1_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on the clock of a hand.

    Args:
        hand: its clock is the time of the loop; its due jobs run while no task can go on.
        turns: run as well while no task can go on, in this order.
        limit_s: the loop fails after this time, in virtual seconds.
    """

    def __init__(self, hand: Hand, *turns: Turn, limit_s: float = _LIMIT_S) -> None:
        """Begin at the time of the hand."""
        self._hand = hand
        self._jumping = _JumpingSelector(self, hand, turns, limit_s)
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the time of the hand, in seconds."""
        return self._hand.now_s

    def go_on(self, is_over: Callable[[], object], limit_s: float) -> None:
        """Go on with the tasks and other jobs while a job or a turn is blocked; see `block`."""
        until_s = self._hand.now_s + limit_s
        self._jumping.blocked_until_s.append(until_s)
        set_running_loop(self)
        try:
            # A loop that stops runs no task any more.
            while not (is_over() or self._hand.now_s >= until_s or self._stopping):  # type: ignore[attr-defined]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            self._jumping.blocked_until_s.pop()
            set_running_loop(None)


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the clock where another selector would wait."""

    def __init__(
        self, loop: VirtualLoop, hand: Hand, turns: tuple[Turn, ...], limit_s: float
    ) -> None:
        super().__init__()
        self.blocked_until_s: list[float] = []
        self._loop, self._hand, self._turns = loop, hand, turns
        self._running: list[Turn] = []
        self._until_s = hand.now_s + limit_s
        self._steps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._steps += 1
        assert self._steps < _STEPS_MAX, "tasks and jobs go on without end, and no time passes"
        events = super().select(0)
        if events or timeout == 0:
            return events
        pause_s = self._run_others()
        if pause_s > 0:
            blocked_s = min(self.blocked_until_s, default=math.inf) - self._hand.now_s
            self._jump(min(pause_s, blocked_s, math.inf if timeout is None else timeout))
        return []

    def _run_others(self) -> float:
        """Run one job or turn, outside of the loop; return the pause until the next one."""
        set_running_loop(None)  # another thread has no running loop
        _outside.append(self._loop)
        try:
            if self._hand.run_one():
                return 0.0
            pause_s = self._hand._next_due_s() - self._hand.now_s  # noqa: SLF001 -- of one tool
            for turn in self._turns:
                if turn not in self._running:  # otherwise it is blocked
                    pause_s = min(pause_s, self._run(turn))
                if pause_s <= 0:
                    return 0.0
            return pause_s
        finally:
            _outside.pop()
            set_running_loop(self._loop)

    def _run(self, turn: Turn) -> float:
        self._running.append(turn)
        try:
            return turn()
        finally:
            self._running.remove(turn)

    def _jump(self, pause_s: float) -> None:
        self._steps = 0
        assert pause_s < math.inf, "all tasks wait, and no job or timer will wake one"
        self._hand.now_s += pause_s
        assert self._hand.now_s <= self._until_s, "the tasks do not end in the virtual time limit"


_outside: Final[list[VirtualLoop]] = []  # loops that run a job or a turn now


def block(hand: Hand, is_over: Callable[[], object], limit_s: float) -> None:
    """Block the calling job or turn until something holds, at most for a time.

    Use it in place of `Event.wait` of a thread. The loop that runs the job goes on meanwhile.
    Without such a loop, the time passes; also in a task, which blocks its loop. If several jobs are
    blocked, the one that was blocked last ends first.
    """
    if _outside and running_loop() is None:
        _outside[-1].go_on(is_over, limit_s)
    elif not is_over():
        hand.now_s += limit_s


def run_virtual(
    hand: Hand, main: Coroutine[Any, Any, T], *turns: Turn, limit_s: float = _LIMIT_S
) -> T:
    """Run a coroutine as `asyncio.run` does, in virtual time."""
    factory = partial(VirtualLoop, hand, *turns, limit_s=limit_s)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def time_passes(seconds: float = 1.0) -> None:
    """Let virtual time pass: jobs, turns and other tasks go on."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    await asyncio.sleep(seconds)
