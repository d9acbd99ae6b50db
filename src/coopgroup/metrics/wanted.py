"""`WantedMembers`: how many members a group needs, steady enough for an autoscaler: pure.

The load of a group is the arrival rate, plus the lag divided by the horizon in which it should be
drained. Divided by the rate of one member, it is a number of members. This number jumps with every
look-up, and each change of the group costs a rebalance. So it rises only if two look-ups in a row
agree, and falls only if all look-ups of a window agree, with some room to spare.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from attrs import define, field

from coopgroup.kafka.health.value import GroupLoad

# The number falls only if the smaller group would be busy for at most this share of the time.
_BUSY_SHARE_MAX: Final = 0.9
# How long the load must be lower before the number falls. A shorter window would
# cost two rebalances for a short pause of the load. Kubernetes scales down after 300 s, too.
_WINDOW_S: Final = 300.0


@define(eq=False)
class WantedMembers:
    """Computes the number from one look-up after another.

    Attributes:
        horizon_s: time in which the lag should be drained, in seconds.
        value: the number; None before the first look-up with an arrival rate.
    """

    horizon_s: float
    value: int | None = field(default=None, init=False)
    # (time, needed members) of the look-ups within the window, oldest first.
    _needs: deque[tuple[float, float]] = field(factory=deque, init=False)
    _since_s: float = field(default=0.0, init=False)

    def note(self, at_s: float, load: GroupLoad) -> int | None:
        """Take a look-up, and return the number."""
        need = self._need(load)
        if need is None:
            return self.value
        if self.value is None:
            # A new leader knows no history. It keeps the present size until it does.
            self.value, self._since_s = max(1, load.members), at_s
        confirmed = need if not self._needs else min(need, self._needs[-1][1])
        self._needs.append((at_s, need))
        while self._needs[0][0] < at_s - _WINDOW_S:
            self._needs.popleft()
        if len(self._needs) > 1 and confirmed > self.value:
            self.value = math.ceil(confirmed)
        elif at_s - self._since_s >= _WINDOW_S:
            highest = max(one for _, one in self._needs)
            self.value = min(self.value, max(1, math.ceil(highest / _BUSY_SHARE_MAX)))
        self.value = min(self.value, max(1, load.partitions))
        return self.value

    def forget(self) -> None:
        """Forget all look-ups: this member does not lead any longer."""
        self.value = None
        self._needs.clear()

    def _need(self, load: GroupLoad) -> float | None:
        if load.arrivals_per_s is None:
            return None
        work_per_s = load.arrivals_per_s + load.lag / self.horizon_s
        if not load.rates_per_s:
            # No member has measured its rate yet, so no member has been busy for long.
            return float(load.members) if work_per_s else 0.0
        return work_per_s / (sum(load.rates_per_s) / len(load.rates_per_s))
