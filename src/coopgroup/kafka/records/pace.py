"""How long a thread may wait in librdkafka before it looks at the group again.

No other thread can wake a thread that waits in librdkafka, so it waits in slices. During a round
the next notice comes within milliseconds, and a slice is short. Some states last for minutes: a
slow revocation, or the outage of a coordinator. Then the slices grow, because each of them costs
CPU time. A notice may be late by one slice.

The longest slice is also how late the application of an idle member hears of a round. A bell tells
the member at once, and its application up to one slice later.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

_BUSY_S: Final = 0.005
QUIET_S: Final = 0.05
# With slices of 50 ms, an idle member needs half as much CPU time again.
IDLE_S: Final = 0.1
# Without a partition to fetch, the thread waits for the group instead, which wakes it. librdkafka
# only runs its callbacks meanwhile.
AWAY_S: Final = 0.2
# A slice is at most this share of the time for which a notice has been expected.
_SHARE: Final = 0.1
# Silence after which a consumer is idle: no records and no notices.
_IDLE_AFTER_S: Final = 2.0


@define(eq=False)
class Pace:
    """The slices of one thread.

    Attributes:
        idle_s: longest slice, in seconds: of a consumer that is idle, or that has expected a notice
            for long.
    """

    idle_s: float = QUIET_S
    _since_s: float = field(default=math.inf, init=False)
    _heard_s: float = field(default=math.inf, init=False)

    def restart(self) -> None:
        """Begin with short slices again: another notice often follows a notice."""
        self._since_s = self._heard_s = math.inf

    def hear(self) -> None:
        """Note that records came, so more of them may follow."""
        self._heard_s = math.inf

    def slice_s(self, now_s: float, *, is_quiet: bool) -> float:
        """Return the next slice, in seconds; it is long if no notice is expected within moments."""
        if is_quiet:
            self._since_s = math.inf
            if math.isinf(self._heard_s):
                self._heard_s = now_s
            return QUIET_S if now_s - self._heard_s < _IDLE_AFTER_S else self.idle_s
        self._heard_s = math.inf
        if math.isinf(self._since_s):
            self._since_s = now_s
        return min(self.idle_s, max(_BUSY_S, (now_s - self._since_s) * _SHARE))
