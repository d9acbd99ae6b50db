"""An event loop in virtual time: its clock jumps to the next timer when no task can go on.

The loop reads the clock of `by_hand`. When all tasks wait, it first runs what would run on other
threads meanwhile: the due jobs of the hand, and the turns that the test gave it. Only then does the
clock move. So `asyncio.sleep` and time-outs cost nothing, and every run takes the same course.

If all tasks wait and there is neither a job nor a timer, a real loop would hang. This one fails.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio.events import _set_running_loop as set_running_loop  # documented, for event loops
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from tests.support.by_hand import Hand

__all__ = ["Turn", "VirtualLoop", "run_virtual"]

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
        super().__init__(_JumpingSelector(hand, turns, limit_s))

    def time(self) -> float:
        """Return the time of the hand, in seconds."""
        return self._hand.now_s


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the clock where another selector would wait."""

    def __init__(self, hand: Hand, turns: tuple[Turn, ...], limit_s: float) -> None:
        super().__init__()
        self._hand, self._turns = hand, turns
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
            self._jump(pause_s if timeout is None else min(pause_s, timeout))
        return []

    def _run_others(self) -> float:
        """Run one job or turn, outside of the loop; return the pause until the next one."""
        loop = asyncio.get_running_loop()
        set_running_loop(None)  # another thread has no running loop
        try:
            if self._hand.run_one():
                return 0.0
            pause_s = self._hand._next_due_s() - self._hand.now_s  # noqa: SLF001 -- of one tool
            for turn in self._turns:
                pause_s = min(pause_s, turn())
                if pause_s <= 0:
                    return 0.0
            return pause_s
        finally:
            set_running_loop(loop)

    def _jump(self, pause_s: float) -> None:
        self._steps = 0
        assert pause_s < float("inf"), "all tasks wait, and no job or timer will wake one"
        self._hand.now_s += pause_s
        assert self._hand.now_s <= self._until_s, "the tasks do not end in the virtual time limit"


def run_virtual(
    hand: Hand, main: Coroutine[Any, Any, T], *turns: Turn, limit_s: float = _LIMIT_S
) -> T:
    """Run a coroutine as `asyncio.run` does, in virtual time."""
    factory = partial(VirtualLoop, hand, *turns, limit_s=limit_s)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
