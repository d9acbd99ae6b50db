"""`WorkMeter`: how fast the application works while there is work.

The rate is records per second of work. A stretch of work is from one return of `poll` or `consume`
with records to the first later call for which librdkafka has to be asked for more: all that was
handed out by then is done, and nothing of it is counted record by record. It counts only where
more records were there when it ended, or came sooner than the work had taken: a member that waits
for records most of the time would only show how long its waits are, and one that just began has
nothing to show yet. Time in which the group speaks, callbacks included, is no work. Stretches in
which partitions were paused, resumed or skipped tell nothing: who does that works elsewhere.

The rate is smoothed over some seconds of work, however long ago the work was.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

from coopgroup.session import smoothed_rate

__all__ = ["WorkMeter"]

_SAMPLE_S: Final = 0.25


@define(eq=False)
class WorkMeter:
    """Measures the work of one application; only its thread calls, any may read the rate.

    Attributes:
        rate_per_s: records per second of work, None before there was enough of it.
    """

    rate_per_s: float | None = field(default=None, init=False)
    # Work that is measured and not in the rate yet.
    _records: int = field(default=0, init=False)
    _seconds: float = field(default=0.0, init=False)
    # Since when the application works, and on how many records at most; None while it waits.
    _since_s: float | None = field(default=None, init=False)
    _at_hand: int = field(default=0, init=False)
    _rearranged: int = field(default=0, init=False)
    # The stretch of work that has just ended, and whether it is known to count.
    _ended_s: float = field(default=0.0, init=False)
    _stretch: tuple[int, float] = field(default=(0, 0.0), init=False)
    _more_waited: bool = field(default=False, init=False)

    def pause(self, now_s: float, waiting: int, rearranged: int) -> None:
        """The application asks for records that are not simply the next ones.

        Args:
            now_s: seconds on a monotonic clock.
            waiting: records of those at hand that it did not get.
            rearranged: how often those at hand were changed by something else than handing out.
        """
        self._stretch, self._more_waited, self._ended_s = (0, 0.0), waiting > 0, now_s
        if self._since_s is not None and rearranged == self._rearranged:
            self._stretch = self._at_hand - waiting, now_s - self._since_s
        self._since_s = None

    def go_on(self, now_s: float, handed: int, waiting: int, rearranged: int) -> None:
        """The application gets records, or learns that there are none.

        Args:
            now_s: seconds on the same clock.
            handed: how many it gets.
            waiting: how many more are at hand, for it to get without asking again.
            rearranged: as in `pause`.
        """
        if not handed:
            return
        done, seconds = self._stretch
        if done and (self._more_waited or now_s - self._ended_s <= seconds):
            self._add(done, seconds)
        self._since_s, self._at_hand = now_s, handed + waiting
        self._rearranged = rearranged

    def _add(self, records: int, seconds: float) -> None:
        self._records += records
        self._seconds += seconds
        if self._seconds < _SAMPLE_S:
            return
        rate_per_s = self._records / self._seconds
        self.rate_per_s = smoothed_rate(self.rate_per_s, rate_per_s, self._seconds)
        self._records, self._seconds = 0, 0.0
