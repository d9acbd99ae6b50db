"""Partitions that no task awaits, while tasks await records of other partitions.

Their records fill the buffer, and the awaited records come behind them. Without a limit the buffer
would grow; with a plain limit the awaited records would never come. So librdkafka is paused for
these partitions only, and their records no longer count.

librdkafka needs up to 1 s to continue a partition. So a task that is only busy between two awaits
must not cause a pause: a partition stays awaited for `_KEPT_S` after the await, while the buffer
may grow to `_GROWN` batches. A paused partition continues when most of its records were taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup.aio.hand_out import HandOut
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.record_buffer import Partition

__all__ = ["Unawaited"]

_KEPT_S: Final = 1.0
_GROWN: Final = 10  # batches


@define(eq=False)
class Unawaited:
    """Pauses partitions that no task awaits; only the polling thread calls, with `fetch_lock`.

    Attributes:
        paused: partitions that are paused in librdkafka.
    """

    fetching: Fetching
    hand_out: HandOut
    paused: frozenset[Partition] = field(default=frozenset(), init=False)

    def count(self) -> int:
        """Return the number of ready records that count, and continue partitions that have few."""
        buffer = self.fetching.record_buffer
        if not self.paused:
            self.hand_out.uncounted = 0
            return len(buffer.ready)
        counts = buffer.ready_counts()
        fetched = self.fetching.fetched
        if not self.hand_out.is_held_back:  # otherwise all partitions are paused
            few = {one for one in self.paused if counts[one] <= self.fetching.ahead}
            go_on = [TopicPartition(*one) for one in sorted(few) if one in fetched]
            if few:
                self._pause_only(self.paused - few)
            if go_on:
                self.fetching.consumer.resume(go_on)
        self.hand_out.uncounted = sum(counts[one] for one in self.paused)
        return len(buffer.ready) - self.hand_out.uncounted

    def make_room(self, now_s: float) -> bool:
        """Pause partitions that no task awaits; return whether more records may be fetched."""
        awaited = self.hand_out.awaited
        if awaited is None:
            return False
        ahead = self.fetching.ahead
        counts = self.fetching.record_buffer.ready_counts()
        if not counts.keys().isdisjoint(awaited):
            return False  # the tasks that wait have records, and have not run yet
        is_grown = sum(counts[one] for one in counts.keys() - self.paused) >= _GROWN * ahead
        idle = {
            one
            for one in self.fetching.fetched
            if counts[one] > (0 if is_grown else ahead)
            and one not in awaited
            and one not in self.paused
            and (is_grown or not self._was_asked(one, now_s))
        }
        if idle:
            self.fetching.consumer.pause([TopicPartition(*one) for one in sorted(idle)])
            self._pause_only(self.paused | idle)
        self.hand_out.uncounted = sum(counts[one] for one in self.paused)
        return True

    def give_up(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Forget partitions that the application has paused; return those that were paused here."""
        found = self.paused.intersection(partitions) if self.paused else self.paused
        if found:
            self._pause_only(self.paused - found)
        return found

    def _was_asked(self, partition: Partition, now_s: float) -> bool:
        hand_out = self.hand_out
        of_it_s = hand_out.asked_at_s.get(partition, -math.inf)
        return now_s - max(of_it_s, hand_out.any_asked_at_s) < _KEPT_S

    def _pause_only(self, partitions: frozenset[Partition]) -> None:
        self.paused = self.fetching.held_back = partitions
