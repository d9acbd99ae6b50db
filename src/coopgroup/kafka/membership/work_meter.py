"""`WorkMeter`: how fast the application works while there is work.

The rate is records per second of work. A stretch of work begins when `poll` or `consume` returns
records. It ends at the first later call for which librdkafka has to be asked for more. All records
handed out before that call are done, so the meter need not count each record.

A stretch counts only if more records were waiting at its end, or arrived within the time that the
work took. Otherwise the member mostly waits for records, and the rate would show its waits. A new
member has no rate yet. Time in the group's code and in callbacks is not work. A stretch is ignored
if partitions were paused, resumed or skipped in it, because the application then works elsewhere.

The rate is smoothed over some seconds of work, no matter how long ago the work was.

An event loop (`coopgroup.aio.hand_out`) and `coopgroup.processing` measure by themselves, and call
`add`.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

from coopgroup.core.session import smoothed_rate

_SAMPLE_S: Final = 0.25


@define(eq=False)
class WorkMeter:
    """Measures the work of one application; only its thread calls, any thread may read the rate.

    Attributes:
        rate_per_s: records per second of work; None before there was enough work.
        is_elsewhere: whether the records are handled elsewhere, so that calls for records tell
            nothing about the work.
    """

    rate_per_s: float | None = field(default=None, init=False)
    is_elsewhere: bool = field(default=False, init=False)
    # Measured work that is not in the rate yet.
    _records: int = field(default=0, init=False)
    _seconds: float = field(default=0.0, init=False)
    # Start of the current work, and the maximum number of its records; None while the application
    # waits.
    _since_s: float | None = field(default=None, init=False)
    _at_hand: int = field(default=0, init=False)
    _rearranged: int = field(default=0, init=False)
    # The last stretch of work, and whether it is known to count.
    _ended_s: float = field(default=0.0, init=False)
    _stretch: tuple[int, float] = field(default=(0, 0.0), init=False)
    _more_waited: bool = field(default=False, init=False)

    def pause(self, now_s: float, waiting: int, rearranged: int) -> None:
        """Note that the application asks for records other than simply the next ones."""
        self._stretch, self._more_waited, self._ended_s = (0, 0.0), waiting > 0, now_s
        is_plain = rearranged == self._rearranged and not self.is_elsewhere
        if self._since_s is not None and is_plain:
            self._stretch = self._at_hand - waiting, now_s - self._since_s
        self._since_s = None

    def go_on(self, now_s: float, handed: int, waiting: int, rearranged: int) -> None:
        """Note that the application gets records; `waiting` more are ready without a fetch."""
        if not handed:
            return
        done, seconds = self._stretch
        if done and (self._more_waited or now_s - self._ended_s <= seconds):
            self.add(done, seconds)
        self._since_s, self._at_hand = now_s, handed + waiting
        self._rearranged = rearranged

    def add(self, records: int, seconds: float) -> None:
        """Add records that were processed in some seconds of work."""
        self._records += records
        self._seconds += seconds
        if self._seconds < _SAMPLE_S:
            return
        rate_per_s = self._records / self._seconds
        self.rate_per_s = smoothed_rate(self.rate_per_s, rate_per_s, self._seconds)
        self._records, self._seconds = 0, 0.0
