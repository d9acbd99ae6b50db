"""The parts of a set of resources that needs no arrays.

NumPy is slow to import. A member that returns to its partitions needs no algebra before its first
record: it compares, counts and lists a few partitions. So until a program has NumPy, a small
`ResourceSet` consists of tuples, and has the methods of this file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

__all__ = ["FEW", "PLAIN_MAX", "PlainParts", "Resource", "new_resource", "plain_lists"]

FEW: Final = 64
"""Up to this number of integers, Python's own sets and lists are faster than calls of NumPy."""
PLAIN_MAX: Final = 1_000
"""Number of resources up to which a set may be plain; with more, arrays are faster."""
_INDEX_END: Final = 2**31


class Resource(NamedTuple):
    """A resource that a group shares.

    Attributes:
        index: partition or task number; -1 for a connector itself.
    """

    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a pair


# `Resource._make` without its checks, because whole sets are listed often.
new_resource: Final[Callable[[tuple[str, int]], Resource]] = partial(tuple.__new__, Resource)


class PlainParts:
    """Names, and a tuple of ascending indices for each."""

    __slots__ = ()

    _names: tuple[str, ...]
    _lists: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return sum(map(len, self._lists))

    def __contains__(self, pair: object) -> bool:
        if not (isinstance(pair, tuple) and len(pair) == len(Resource._fields)):
            return False
        name, index = pair
        return hasattr(index, "__index__") and any(
            name == own and index in indices
            for own, indices in zip(self._names, self._lists, strict=True)
        )

    def __iter__(self) -> Iterator[Resource]:
        for name, indices in zip(self._names, self._lists, strict=True):
            yield from map(new_resource, zip(repeat(name), indices))

    def to_dict(self) -> dict[str, list[int]]:
        """Return ascending lists by name, for JSON."""
        return dict(zip(self._names, map(list, self._lists), strict=True))


def plain_lists(indices_by_name: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]] | None:
    """Return ascending names with ascending and distinct indices, if the program has no NumPy.

    Args:
        indices_by_name: indices in any order, with repeats.

    Returns:
        None if arrays are faster, or needed to explain an error.
    """
    if "numpy" in sys.modules or sum(map(len, indices_by_name.values())) > PLAIN_MAX:
        return None
    for indices in indices_by_name.values():
        if not all(type(one) is int and -_INDEX_END <= one < _INDEX_END for one in indices):
            return None
    return {name: tuple(sorted(set(some))) for name, some in sorted(indices_by_name.items())}
