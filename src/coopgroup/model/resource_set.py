"""`ResourceSet`: an immutable set of resources, kept in arrays.

A resource is a (name, index) pair: topic partition, task of a connector (the connector itself has
index -1), leadership (index 0). A group shares up to a million of them, so a set is three flat
parts and not a million tuples:

    names    ('orders', 'payments')        ascending, none without an index
    starts   [0, 3, 5]                      indices of names[i] are indices[starts[i]:starts[i+1]]
    indices  [0, 1, 4, 0, 2]                ascending within a name, int32

Theory of operation: every operation of two sets gives the names of both one common numbering and
turns each resource into one int64 key, name number in the upper half and index in the lower. Both
key arrays ascend by construction, so union, difference and intersection are merges, and their
cost does not depend on how the resources are spread over names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias, final

import numpy as np
import numpy.typing as npt

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["EMPTY", "Resource", "ResourceSet"]

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_INDEX_BITS: Final = 32


class Resource(NamedTuple):
    """One thing that a group shares.

    Attributes:
        name: topic, connector or any other name.
        index: partition or task number; -1 for a connector itself.
    """

    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a pair


@final
class ResourceSet:
    """An immutable set of resources with exact set algebra and one deterministic order.

    The order is by name (code points), then by index. Equal sets have equal hashes.

    Args:
        indices_by_name: for each name its indices in any order; repeats are one, and names
            without an index are left out.

    Raises:
        ConfigurationError: an index is not an integer that fits into int32.
    """

    __slots__ = ("_hash", "_indices", "_names", "_starts")

    _hash: int | None
    _indices: Int32Array
    _names: tuple[str, ...]
    _starts: Int64Array

    def __init__(self, indices_by_name: Mapping[str, Iterable[int]] | None = None) -> None:
        """Sort and pack the given indices."""
        packed = [
            (name, ascending)
            for name, indices in sorted((indices_by_name or {}).items())
            if (ascending := _ascending_indices(name, indices)).size
        ]
        self._fill(
            tuple(name for name, _ in packed),
            np.cumsum([0, *(indices.size for _, indices in packed)], dtype=np.int64),
            np.concatenate([indices for _, indices in packed])
            if packed
            else np.empty(0, dtype=np.int32),
        )

    def _fill(self, names: tuple[str, ...], starts: Int64Array, indices: Int32Array) -> None:
        starts.flags.writeable = False
        indices.flags.writeable = False
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_indices", indices)
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a set never changes."""
        message = f"ResourceSet is immutable, cannot set {name}"
        raise AttributeError(message)

    @classmethod
    def from_flat(
        cls, names: tuple[str, ...], starts: Int64Array, indices: Int32Array
    ) -> ResourceSet:
        """Wrap flat arrays that already obey the order described at the top of this module.

        Args:
            names: ascending, distinct, each with at least one index.
            starts: int64, shape (len(names) + 1,), ascending from 0 to `indices.size`.
            indices: int32, ascending and distinct within each name.
        """
        made = cls.__new__(cls)
        made._fill(names, starts, indices)  # noqa: SLF001  (another constructor of this class)
        return made

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, int]]) -> ResourceSet:
        """Build a set from (name, index) pairs in any order."""
        indices_by_name: dict[str, list[int]] = {}
        for name, index in pairs:
            indices_by_name.setdefault(name, []).append(index)
        return cls(indices_by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that have at least one index, ascending."""
        return self._names

    @property
    def starts(self) -> Int64Array:
        """Where each name begins in `flat_indices`: int64, shape (len(names) + 1,)."""
        return self._starts

    @property
    def flat_indices(self) -> Int32Array:
        """Indices of all names one after the other: int32, shape (len(self),)."""
        return self._indices

    @property
    def name_numbers(self) -> Int64Array:
        """Position in `names` of each resource: int64, shape (len(self),)."""
        return np.repeat(np.arange(len(self._names), dtype=np.int64), np.diff(self._starts))

    def indices(self, name: str) -> Int32Array:
        """Ascending int32 indices of one name; empty when the set has none of it."""
        try:
            number = self._names.index(name)
        except ValueError:
            return np.empty(0, dtype=np.int32)
        return self._indices[self._starts[number] : self._starts[number + 1]]

    def items(self) -> Iterator[tuple[str, Int32Array]]:
        """Each name with its ascending int32 indices, in the order of names."""
        bounds = self._starts.tolist()
        for number, name in enumerate(self._names):
            yield name, self._indices[bounds[number] : bounds[number + 1]]

    def to_dict(self) -> dict[str, list[int]]:
        """Plain lists by name, ascending: the form in which JSON shows a set."""
        flat, bounds = self._indices.tolist(), self._starts.tolist()
        return {
            name: flat[low:high]
            for name, low, high in zip(self._names, bounds[:-1], bounds[1:], strict=True)
        }

    def __len__(self) -> int:
        """Count of resources."""
        return int(self._indices.size)

    def __iter__(self) -> Iterator[Resource]:
        """Resources in order."""
        for name, indices in self.items():
            for index in indices.tolist():
                yield Resource(name, index)

    def __contains__(self, pair: object) -> bool:
        """Whether the (name, index) pair is in the set."""
        if not (isinstance(pair, tuple) and len(pair) == len(Resource._fields)):
            return False
        name, index = pair
        if not isinstance(name, str) or not isinstance(index, (int, np.integer)):
            return False
        indices = self.indices(name)
        place = int(np.searchsorted(indices, index))
        return place < indices.size and bool(indices[place] == index)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same resources."""
        if not isinstance(other, ResourceSet):
            return NotImplemented
        return (
            self._names == other._names
            and np.array_equal(self._starts, other._starts)
            and np.array_equal(self._indices, other._indices)
        )

    def __hash__(self) -> int:
        """Hash of the content, computed once."""
        if self._hash is None:
            content = (self._names, self._starts.tobytes(), self._indices.tobytes())
            object.__setattr__(self, "_hash", hash(content))
        assert self._hash is not None
        return self._hash

    def __repr__(self) -> str:
        """Show the content as the constructor takes it."""
        return f"ResourceSet({self.to_dict()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through the flat parts: Spark and process pools carry sets about."""
        return ResourceSet.from_flat, (self._names, self._starts, self._indices)

    def __or__(self, other: ResourceSet) -> ResourceSet:
        """Resources of either set."""
        if not other:
            return self
        if not self:
            return other
        names, mine, theirs = _common_keys(self, other)
        return _from_keys(names, _merged(mine, theirs))

    def __and__(self, other: ResourceSet) -> ResourceSet:
        """Resources of both sets."""
        names, mine, theirs = _common_keys(self, other)
        return _from_keys(names, mine[_membership(mine, theirs)])

    def __sub__(self, other: ResourceSet) -> ResourceSet:
        """Resources of this set that the other lacks."""
        if not other or not self:
            return self
        names, mine, theirs = _common_keys(self, other)
        return _from_keys(names, mine[~_membership(mine, theirs)])

    def __le__(self, other: ResourceSet) -> bool:
        """Whether every resource of this set is in the other."""
        _, mine, theirs = _common_keys(self, other)
        return bool(_membership(mine, theirs).all())

    def isdisjoint(self, other: ResourceSet) -> bool:
        """Whether the two have no resource in common."""
        _, mine, theirs = _common_keys(self, other)
        return not _membership(mine, theirs).any()

    def restrict_names(self, names: Iterable[str]) -> ResourceSet:
        """The part of the set with one of the given names."""
        wanted = set(names)
        if wanted.issuperset(self._names):
            return self
        keep = np.array([name in wanted for name in self._names], dtype=np.bool_)
        return self.take(np.repeat(keep, np.diff(self._starts)))

    def take(self, mask: BoolArray) -> ResourceSet:
        """The part of the set that a mask selects.

        Args:
            mask: bool, shape (len(self),), in the order of the set.
        """
        counts = np.add.reduceat(mask, self._starts[:-1], dtype=np.int64) if mask.size else mask
        kept = np.flatnonzero(counts)
        if kept.size == len(self._names):
            names = self._names
        else:
            names = tuple(self._names[number] for number in kept.tolist())
        starts = np.zeros(kept.size + 1, dtype=np.int64)
        np.cumsum(counts[kept], out=starts[1:])
        return ResourceSet.from_flat(names, starts, self._indices[mask])

    def positions(self, subset: ResourceSet) -> Int64Array:
        """Where each resource of another set stands in this one.

        Args:
            subset: the resources to find.

        Returns:
            int64, shape (len(subset),): position in the order of this set, -1 where absent.
        """
        _, mine, theirs = _common_keys(self, subset)
        places = np.searchsorted(mine, theirs)
        found = _membership(theirs, mine, places)
        return np.where(found, places, -1)

    def positions_all(self, subsets: Sequence[ResourceSet]) -> Int64Array:
        """`positions` of many sets, one after the other, in one look-up.

        Args:
            subsets: the sets to find; every resource must be in this set.

        Returns:
            int64, shape (total count of resources of the subsets,).
        """
        number_of = {name: number for number, name in enumerate(self._names)}
        wanted = [_keys(one, number_of) for one in subsets if one]
        if not wanted:
            return np.empty(0, dtype=np.int64)
        return np.searchsorted(_keys(self, number_of), np.concatenate(wanted)).astype(
            np.int64, copy=False
        )

    @staticmethod
    def union_all(sets: Iterable[ResourceSet]) -> ResourceSet:
        """Union of any number of sets, in one sort instead of one merge per set."""
        parts = [one for one in sets if one]
        if len(parts) <= 1:
            return parts[0] if parts else EMPTY
        names = tuple(sorted({name for one in parts for name in one.names}))
        number_of = {name: number for number, name in enumerate(names)}
        keys = np.concatenate([_keys(one, number_of) for one in parts])
        keys.sort(kind="stable")
        return _from_keys(names, _distinct(keys))


def _ascending_indices(name: str, indices: Iterable[int]) -> Int32Array:
    values = np.asarray(
        indices if isinstance(indices, (np.ndarray, range)) else list(indices)  # any iterable
    )
    if not values.size:
        return np.empty(0, dtype=np.int32)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ConfigurationError(f"indices of {name}", values.tolist(), "integers")
    if values.min() < _INT32_MIN or values.max() > _INT32_MAX:
        outside = values[(values < _INT32_MIN) | (values > _INT32_MAX)][0]
        raise ConfigurationError(f"indices of {name}", int(outside), "an index within int32")
    return np.unique(values.astype(np.int32))


def _keys(one: ResourceSet, number_of: Mapping[str, int]) -> Int64Array:
    numbers = np.array([number_of[name] for name in one.names], dtype=np.int64)
    bases = (numbers << _INDEX_BITS) - _INT32_MIN
    keys: Int64Array = np.repeat(bases, np.diff(one.starts))
    keys += one.flat_indices
    return keys


def _common_keys(
    left: ResourceSet, right: ResourceSet
) -> tuple[tuple[str, ...], Int64Array, Int64Array]:
    names = left.names if left.names == right.names else tuple(sorted({*left.names, *right.names}))
    number_of = {name: number for number, name in enumerate(names)}
    return names, _keys(left, number_of), _keys(right, number_of)


def _from_keys(names: tuple[str, ...], keys: Int64Array) -> ResourceSet:
    bounds = np.searchsorted(keys, np.arange(len(names) + 1, dtype=np.int64) << _INDEX_BITS)
    kept = np.flatnonzero(np.diff(bounds))
    if kept.size < len(names):
        names = tuple(names[number] for number in kept.tolist())
    starts = np.zeros(kept.size + 1, dtype=np.int64)
    starts[1:] = bounds[kept + 1]
    indices = ((keys & ((1 << _INDEX_BITS) - 1)) + _INT32_MIN).astype(np.int32)
    return ResourceSet.from_flat(names, starts, indices)


def _merged(left: Int64Array, right: Int64Array) -> Int64Array:
    keys = np.concatenate([left, right])
    keys.sort(kind="stable")  # two ascending runs: one linear merge
    return _distinct(keys)


def _distinct(ascending: Int64Array) -> Int64Array:
    fresh = np.ones(ascending.size, dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=fresh[1:])
    return ascending[fresh]


def _membership(
    wanted: Int64Array, among: Int64Array, places: npt.NDArray[np.intp] | None = None
) -> BoolArray:
    """Which of the ascending `wanted` keys stand in the ascending `among`."""
    if not among.size:
        return np.zeros(wanted.size, dtype=np.bool_)
    if places is None:
        places = np.searchsorted(among, wanted)
    found: BoolArray = among[np.minimum(places, among.size - 1)] == wanted
    return found


EMPTY: Final = ResourceSet()
