"""Reads the work of a consumer: its partitions, their positions and their log ends.

Samples are taken on the application's thread (`probe` says why). A consumer whose librdkafka client
hears nothing learns of no new record. So the log ends of quiet partitions also come from another
client, in a job of a worker.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.listener import GroupListener
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health.probe import WorkSample
from coopgroup.kafka.health.progress import PartitionSample
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.partitions import first_offset, to_partitions
from coopgroup.worker import Worker

# Minimum time between two samples, and between two look-ups of log ends.
_SAMPLE_S: Final = 0.5
_ENDS_S: Final = 15.0


@define(eq=False)
class ConsumerWork:
    """The work of one consumer.

    Attributes:
        log_ranges: looks up begin and end of logs with another client; it may wait, and raise.
        offset_reset: "latest", "earliest" or "error".
        oldest: returns the oldest record of each partition that `coopgroup.processing` has not
            handled; None while it does not run.
    """

    listener: GroupListener
    fetching: Fetching
    committing: Committing
    log_ranges: Callable[[ResourceSet], Mapping[tuple[str, int], tuple[int, int]]]
    offset_reset: str
    oldest: Callable[[], Mapping[tuple[str, int], int]] | None = field(default=None, init=False)
    _at_s: float = field(default=0.0, init=False)
    _partitions: Mapping[tuple[str, int], PartitionSample] = field(factory=dict, init=False)
    _is_requested: bool = field(default=False, init=False)
    _ranges: Mapping[tuple[str, int], tuple[int, int]] = field(factory=dict, init=False)
    _ends_from_s: float = field(default=0.0, init=False)
    _worker: Worker = field(factory=lambda: Worker("coopgroup-log-ends", idle_s=0.0), init=False)

    def read(self) -> WorkSample:
        """Return the last sample, and request the next one."""
        now, listener = now_s(), self.listener
        if not self._is_requested and now - self._at_s >= _SAMPLE_S:
            self._is_requested = True
            # The driver owns the inbox: a strong reference would keep a dropped consumer's parts.
            own = weakref.ref(self)

            def sample() -> None:
                work = own()
                if work is not None:
                    work.take()

            listener.driver.inbox.call_soon(sample)
        owned, began_s = listener.owned, listener.stopping_since_s
        return WorkSample(
            at_s=self._at_s,
            owned=owned,
            revoking=listener.stopping,
            revoking_s=0.0 if began_s is None else now - began_s,
            partitions={key: one for key, one in self._partitions.items() if key in owned},
        )

    def take(self) -> None:
        """Take a sample, on the application's thread."""
        self._is_requested = False
        with suppress(Exception):  # the consumer is being closed, or has lost the partitions
            self._partitions, self._at_s = self._sampled(), now_s()

    def _sampled(self) -> Mapping[tuple[str, int], PartitionSample]:
        listener, fetching = self.listener, self.fetching
        owned, paused = listener.owned, fetching.record_buffer.paused | set(listener.stopping)
        if not owned:
            return {}
        oldest = {} if self.oldest is None else self.oldest()
        # A topic that is made again ends earlier, so an old look-up does not count.
        ranges = self._ranges if now_s() < self._ends_from_s + _ENDS_S else {}
        return {
            (one.topic, one.partition): PartitionSample(
                position=self._position(one, ranges.get(key)),
                end=max(self._end_of_fetch(one), ranges.get(key, (-1, -1))[1]),
                waits_for_offset=key in fetching.waiting,
                is_paused=key in paused,
                oldest=oldest.get(key),
            )
            for one in fetching.positions(to_partitions(owned))
            for key in ((one.topic, one.partition),)
        }

    def _end_of_fetch(self, partition: TopicPartition) -> int:
        """Return the log end offset of the last fetch; negative before the first one."""
        bare = TopicPartition(partition.topic, partition.partition)
        end: int = self.fetching.consumer.get_watermark_offsets(bare, cached=True)[1]
        return end

    def _position(self, one: TopicPartition, log_range: tuple[int, int] | None) -> int:
        """Return the position of a partition; negative if it has no number yet.

        Before the first record it may be a committed offset that the log no longer has.
        """
        begin = self.fetching.begin_of((one.topic, one.partition))
        if begin is None or log_range is None or not 0 <= one.offset == begin.start.offset:
            return one.offset
        return first_offset(one.offset, *log_range, self.offset_reset)

    def look_up_ends(self, quiet: Iterable[tuple[str, int]]) -> None:
        """Look up log ends in the background, unless the last look-up was a moment ago."""
        now = now_s()
        if now < self._ends_from_s:
            return
        self._ends_from_s = now + _ENDS_S
        resources = ResourceSet.from_pairs(quiet)
        # The job must not keep this object alive: a look-up may wait for seconds.
        own, log_ranges = weakref.ref(self), self.log_ranges

        def look_up() -> None:
            with suppress(Exception):  # without an answer, the next look-up tries again
                found = log_ranges(resources)
                work = own()
                if work is not None:
                    work._ranges = found  # noqa: SLF001  (of this class)

        with suppress(RuntimeError):  # no thread is available
            self._worker.submit(look_up)

    def commit_meter(self) -> CommitMeter:
        """Return what counts the commits."""
        return self.committing.meter
