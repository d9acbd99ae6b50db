"""`SimulatedBell`: rings between the processes of a group, outside of the group protocol.

A ring reaches each process on its own: late, or not at all. False rings come at random. A process
that is paused or cut off hears nothing meanwhile. No rule of a run may depend on the bell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Protocol

from attrs import define, field

from coopgroup.simulator.scenario import Bell
from coopgroup.simulator.world import World
from coopgroup.simulator.world.drawing import between


class Listener(Protocol):
    """A process that may hear rings."""

    def hear(self) -> None:
        """Hear a ring."""
        ...


@define(kw_only=True, eq=False)
class SimulatedBell:
    """The bell of a group.

    Attributes:
        listeners: returns the processes that hear rings now.
        rings: number of rings so far, false ones included.
    """

    world: World
    times: Bell
    listeners: Callable[[], Iterable[Listener]]
    rings: int = field(default=0, init=False)
    _dice: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._dice = self.world.dice("bell")
        self._expect_false_ring()

    def ring(self) -> None:
        """Ring for all processes, the ringing one included."""
        self.rings += 1
        times, dice = self.times, self._dice
        for listener in self.listeners():
            if times.loss and dice.random() < times.loss:
                continue
            delay_ms = between(dice, times.delay_ms.low, times.delay_ms.high)
            self.world.later(delay_ms, listener.hear)

    def _expect_false_ring(self) -> None:
        mean_ms = self.times.false_every_ms
        if mean_ms:
            self.world.later(self._dice.randint(1, 2 * mean_ms), self._ring_falsely)

    def _ring_falsely(self) -> None:
        self.ring()
        self._expect_false_ring()
