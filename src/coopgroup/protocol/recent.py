"""`RecentlyRead`: parts of messages that were read lately, and what they say.

A leader reads the same bytes again and again: members of a group subscribe to the same topics, and
most of them claim in one round what they claimed in the round before. What bytes say depends on
nothing else, so what was read before need not be read again.

Rules of this file: values are never changed; how much is kept is bounded; and what is forgotten is
read again. Nothing depends on it but the time that reading takes.

Theory of operation: two generations. What is new or in use stands in the young one. When that has
half of what may be kept it becomes the old one, and what was in the old one and in no use since is
forgotten. Threads that meet here lose entries at worst.
"""

from __future__ import annotations

from typing import Generic, TypeVar, final

__all__ = ["RecentlyRead"]

T = TypeVar("T")


@final
class RecentlyRead(Generic[T]):
    """What bytes say.

    Args:
        size_max: how much is kept at most; the unit is that of the sizes given to `keep`.
    """

    __slots__ = ("_old", "_size_max", "_young", "_young_size")

    def __init__(self, size_max: int) -> None:
        """Start with nothing."""
        self._size_max = size_max
        self._young: dict[bytes, tuple[T, int]] = {}
        self._old: dict[bytes, tuple[T, int]] = {}
        self._young_size = 0

    def find(self, content: bytes) -> T | None:
        """What these bytes say; None if that is not known."""
        found = self._young.get(content)
        if found is None:
            found = self._old.get(content)
            if found is None:
                return None
            self.keep(content, *found)
        return found[0]

    def keep(self, content: bytes, value: T, size: int) -> None:
        """Remember what bytes say.

        Args:
            content: the bytes, or what tells them from others.
            value: what they say.
            size: how much this is of what may be kept; more than half of that is not kept.
        """
        half = self._size_max // 2
        if size > half:
            return
        _, before = self._young.get(content, (None, 0))
        if self._young_size + size - before > half:
            self._old, self._young, self._young_size, before = self._young, {}, 0, 0
        self._young[content] = value, size
        self._young_size += size - before
