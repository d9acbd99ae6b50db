"""Which partitions make no progress although there is work for them: a pure comparison of samples.

A partition counts as stuck only with a proof that work waits: records arrived after its last
progress. A lag alone is no proof. The end of a log may consist of markers and aborted records of
transactions, which no consumer gets.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from coopgroup.kafka.health.value import StuckPartition


@frozen(kw_only=True)
class PartitionSample:
    """One partition at one moment.

    Attributes:
        position: next offset that the application gets; negative if it is unknown.
        end: log end offset; negative if it is unknown.
        waits_for_offset: whether the partition waits for its committed offset.
        is_paused: whether the application, or a revocation, holds the partition back.
        oldest: offset of the oldest record that `coopgroup.processing` has and did not handle yet;
            None without such a record.
    """

    position: int = -1
    end: int = -1
    waits_for_offset: bool = False
    is_paused: bool = False
    oldest: int | None = None

    @property
    def lag(self) -> int | None:
        """Return the records that the application did not get yet; None if unknown."""
        if self.end < 0 or self.position < 0:
            return None
        return max(0, self.end - self.position)


@frozen(kw_only=True)
class _Mark:
    """The last progress of a partition: when it was, and what the partition looked like."""

    at_s: float
    sample: PartitionSample


@define(eq=False)
class LastProgress:
    """The last progress of each owned partition."""

    _marks: dict[tuple[str, int], _Mark] = field(factory=dict, init=False)

    def note(self, at_s: float, samples: Mapping[tuple[str, int], PartitionSample]) -> None:
        """Compare a sample with the earlier ones; partitions that it lacks are forgotten."""
        for gone in self._marks.keys() - samples.keys():
            del self._marks[gone]
        for key, sample in samples.items():
            mark = self._marks.get(key)
            if mark is None or _has_advanced(mark.sample, sample):
                self._marks[key] = _Mark(at_s=at_s, sample=sample)
            elif mark.sample.end < 0 <= sample.end:  # the end was unknown before
                self._marks[key] = _Mark(at_s=mark.at_s, sample=sample)

    def quiet_since(self, before_s: float) -> list[tuple[str, int]]:
        """Return the partitions without progress since some time."""
        return [key for key, mark in self._marks.items() if mark.at_s <= before_s]

    def stuck(
        self, at_s: float, samples: Mapping[tuple[str, int], PartitionSample]
    ) -> tuple[StuckPartition, ...]:
        """Return the partitions for which work waits, with the time since their last progress.

        Args:
            at_s: time of the samples.
            samples: the last samples, which `note` has got.
        """
        return tuple(
            StuckPartition(topic=key[0], partition=key[1], why=why, since_s=at_s - mark.at_s)
            for key, sample in sorted(samples.items())
            if (mark := self._marks.get(key)) is not None
            and at_s > mark.at_s
            and (why := _work(mark.sample, sample)) is not None
        )


def _has_advanced(before: PartitionSample, now: PartitionSample) -> bool:
    """Return whether a partition did anything, or may do nothing.

    A handler that works on one record makes progress only when the record is handled: records that
    wait behind it do not count.
    """
    if now.oldest is not None:
        return now.oldest != before.oldest
    if now.is_paused:
        return True
    if now.waits_for_offset or before.waits_for_offset:
        return now.waits_for_offset != before.waits_for_offset
    return now.position != before.position or before.oldest is not None


def _work(before: PartitionSample, now: PartitionSample) -> str | None:
    """Return what waits for the application; None if nothing is known to wait."""
    if now.oldest is not None:
        return "handler"
    if now.waits_for_offset:
        return "no committed offset"
    if now.lag != 0 and 0 <= before.end < now.end:
        return "records wait"
    return None
