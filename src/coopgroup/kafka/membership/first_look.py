"""`FirstLook`: the partitions that appeared after this member had looked at their topics.

"latest" means the records since the group began to read. A partition that appears later has only
such records. It is noticed after up to `topic.metadata.refresh.interval.ms`, so a member that began
at its end would skip the records until then.

Each member compares with its own first look. Nothing of this is on the wire, so a member that
joins after a partition was created takes it for an old one.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field


@define(eq=False)
class FirstLook:
    """The number of partitions of each topic at the first look; any thread may call."""

    _counts: dict[str, int] = field(factory=dict, init=False)

    def note(self, topic: str, partitions: int) -> None:
        """Note the number of partitions of a topic, unless it was noted before."""
        self._counts.setdefault(topic, partitions)

    def note_missing(self, topic: str) -> None:
        """Note that a topic does not exist: all its later partitions are new."""
        self._counts[topic] = 0

    def forget(self) -> None:
        """Forget all topics, because there is another subscription."""
        self._counts = {}

    def unseen(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that were not noted yet."""
        return [one for one in topics if one not in self._counts]

    def has_appeared(self, topic: str, partition: int) -> bool:
        """Return whether a partition appeared after the first look at its topic."""
        first = self._counts.get(topic)
        return first is not None and partition >= first
