"""Who owned each partition of a topic when, and the records of each member, on one clock."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Mapping

from attrs import define, field, frozen


@frozen
class Held:
    """An ownership of a member; `until_s` is None while it lasts."""

    name: str
    partition: int
    since_s: float
    until_s: float | None


@define(eq=False)
class Ledger:
    """The events of a group, on the machine's monotonic clock; any thread may write.

    Attributes:
        held: ownerships, in order of their begin.
        handed: (time, member, partition, offset) of each record, in order of writing.
        lost: (member, partition) of each lost partition.
        failed: members with an error, and the error.
    """

    held: list[Held] = field(factory=list)
    handed: list[tuple[float, str, int, int]] = field(factory=list)
    lost: list[tuple[str, int]] = field(factory=list)
    failed: dict[str, str] = field(factory=dict)
    stopped: set[str] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)

    def take(self, name: str, partitions: list[int], at_s: float) -> None:
        with self._lock:
            self.held += [Held(name, partition, at_s, None) for partition in partitions]

    def give(self, name: str, partitions: list[int], at_s: float, *, lost: bool = False) -> None:
        with self._lock:
            for number, one in enumerate(self.held):
                mine = one.name == name and one.partition in partitions
                if mine and one.until_s is None:
                    self.held[number] = Held(name, one.partition, one.since_s, at_s)
            if lost:
                self.lost += [(name, partition) for partition in partitions]

    def give_rest(self, name: str, at_s: float) -> None:
        """Note the end of a member, which gives up all its partitions."""
        self.give(name, self.shares().get(name, []), at_s)

    def hand(self, name: str, partition: int, offsets: range, at_s: float) -> None:
        with self._lock:
            self.handed += [(at_s, name, partition, offset) for offset in offsets]

    def shares(self) -> dict[str, list[int]]:
        """Return the partitions of each member that has any."""
        found: dict[str, list[int]] = defaultdict(list)
        with self._lock:
            for one in self.held:
                if one.until_s is None:
                    found[one.name].append(one.partition)
        return {name: sorted(share) for name, share in sorted(found.items())}

    def double_owners(self) -> list[tuple[Held, Held]]:
        """Return pairs of ownerships of one partition that overlap."""
        with self._lock:
            times = sorted(self.held, key=lambda one: (one.partition, one.since_s))
        return [
            (one, two)
            for one, two in itertools.pairwise(times)
            if one.partition == two.partition and (one.until_s is None or one.until_s > two.since_s)
        ]

    def first_taken(self, name: str, since_s: float) -> float:
        """Return when a member whose name ends like this first got a partition after a time."""
        with self._lock:
            return min(
                one.since_s
                for one in self.held
                if one.name.endswith(name) and one.since_s > since_s
            )

    def given_up_between(self, name: str, since_s: float, until_s: float) -> list[int]:
        """Return the partitions that a member gave up in a time, sorted."""
        with self._lock:
            return sorted(
                one.partition
                for one in self.held
                if one.name == name and one.until_s is not None and since_s <= one.until_s < until_s
            )

    def held_throughout(self, name: str, since_s: float) -> list[int]:
        """Return the partitions that a member has had since a time, sorted."""
        with self._lock:
            return sorted(
                one.partition
                for one in self.held
                if one.name == name and one.until_s is None and one.since_s < since_s
            )

    def pause_ms(self, name: str, partition: int, since_s: float, until_s: float) -> float:
        """Return the longest time without a record of a partition that a member has throughout."""
        with self._lock:
            times = [
                at_s
                for at_s, member, number, _ in self.handed
                if member == name and number == partition and since_s <= at_s <= until_s
            ]
        points = [since_s, *times, until_s]
        return 1000 * max(after - before for before, after in itertools.pairwise(points))

    def missing(self, ends: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return (partition, offset) of the records below these ends that no member got."""
        with self._lock:
            seen = {(partition, offset) for _, _, partition, offset in self.handed}
        return [
            (partition, offset)
            for partition, end in sorted(ends.items())
            for offset in range(end)
            if (partition, offset) not in seen
        ]

    def repeated(self) -> int:
        """Return how many records were handed out again, counting each repetition."""
        with self._lock:
            return len(self.handed) - len({(p, offset) for _, _, p, offset in self.handed})
