"""How long a thread may wait in librdkafka before it looks at the group again.

No other thread can wake a thread that waits in librdkafka, so it waits in slices. During a round
the next notice comes within milliseconds, and a slice is short. Some states last for minutes: a
slow revocation, or the outage of a coordinator. Then the slices grow, because each of them costs
CPU time. A notice may be late by one slice.

A member at rest hears of a round with the answer to its next heartbeat. Until then no notice is
expected, so the slices of an idle consumer may be long, and one of them ends with that answer.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

_BUSY_S: Final = 0.005
QUIET_S: Final = 0.05
# A member with a bell hears of a round at once, and its application up to one slice later. With
# slices of 50 ms, an idle member needs half as much CPU time again.
BELL_S: Final = 0.1
IDLE_S: Final = 0.2
# Longest slice until the next heartbeat: some notices need none, such as a changed topic. A shorter
# slice costs more CPU time than confluent_kafka's look for signals, which needs no Python code.
CALM_S: Final = 1.0
# Most heartbeats are answered in this time.
_ANSWER_S: Final = 0.03
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
            for long. confluent_kafka looks for signals as often as `IDLE_S`.
    """

    idle_s: float = QUIET_S
    _since_s: float = field(default=math.inf, init=False)
    _heard_s: float = field(default=math.inf, init=False)

    def hear_bell(self) -> None:
        """Note that the bell may ring at any time from now on."""
        self.idle_s = BELL_S

    def restart(self) -> None:
        """Begin with short slices again: another notice often follows a notice."""
        self._since_s = self._heard_s = math.inf

    def hear(self) -> None:
        """Note that records came, so more of them may follow."""
        self._heard_s = math.inf

    def slice_s(self, now_s: float, *, is_quiet: bool, calm_until_s: float | None = None) -> float:
        """Return the next slice, in seconds.

        Args:
            now_s: the monotonic clock.
            is_quiet: whether no notice is expected within the next moments.
            calm_until_s: when the group's thread will act next; None if a notice may come before.
        """
        if is_quiet:
            self._since_s = math.inf
            if math.isinf(self._heard_s):
                self._heard_s = now_s
            if now_s - self._heard_s < _IDLE_AFTER_S:
                return QUIET_S
            if calm_until_s is None or self.idle_s != IDLE_S:
                return self.idle_s
            return min(CALM_S, max(QUIET_S, calm_until_s + _ANSWER_S - now_s))
        self._heard_s = math.inf
        if math.isinf(self._since_s):
            self._since_s = now_s
        return min(self.idle_s, max(_BUSY_S, (now_s - self._since_s) * _SHARE))
