"""`ResourceSet`: an immutable set of resources, stored in arrays.

A resource is a (name, index) pair: a topic partition, a connector's task (index -1 is the connector
itself), or a leadership (index 0). A group shares up to a million resources, so a set has three
flat parts and not a million tuples:

    names    ('orders', 'payments')        ascending, each with an index
    starts   [0, 3, 5]                      indices of names[i] are indices[starts[i]:starts[i+1]]
    indices  [0, 1, 4, 0, 2]                ascending within a name, int32

Theory of operation: an operation on two sets numbers the names of both together. It turns each
resource into an int64 key with the name's number in the upper half and the index in the lower half.
Both key arrays are ascending, so union, difference and intersection are merges. Their cost does not
depend on how resources are spread over names. With a single name the indices are the keys. Sets are
usually small and often equal on both sides. These cases are handled before any merge, because there
the calls cost more than the work: a few indices of one name are compared as Python's integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from coopgroup.errors import ConfigurationError

FEW: Final = 64
"""Up to this number of integers, Python's own sets and lists are faster than calls of NumPy."""

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
KeyArray: TypeAlias = Int32Array | Int64Array
BoolArray: TypeAlias = npt.NDArray[np.bool_]

_INDEX_BITS: Final = 32
_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1


class Resource(NamedTuple):
    """A resource that a group shares.

    Attributes:
        index: partition or task number; -1 for a connector itself.
    """

    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a pair


class ResourceSet:
    """An immutable set of resources with exact set algebra and a deterministic order.

    The order is by name (code points), then by index. Equal sets have equal hashes.

    Args:
        indices_by_name: indices of each name in any order. Repeats count once; names without an
            index are dropped.

    Raises:
        ConfigurationError: an index is not an integer that fits into int32.
    """

    __slots__ = ("_hash", "_indices", "_names", "_starts")

    _hash: int | None
    _indices: Int32Array
    _names: tuple[str, ...]
    _starts: Int64Array

    def __init__(self, indices_by_name: Mapping[str, Iterable[int]] | None = None) -> None:
        packed = [
            (name, distinct)
            for name, indices in sorted((indices_by_name or {}).items())
            if (distinct := _ascending_indices(name, indices)).size
        ]
        if len(packed) == 1:
            indices = packed[0][1]
            starts = _starts_of_one(indices.size)
        else:
            parts = [np.empty(0, dtype=np.int32), *(indices for _, indices in packed)]
            starts = np.cumsum([part.size for part in parts], dtype=np.int64)
            indices = np.concatenate(parts)
        self._fill(tuple([name for name, _ in packed]), starts, indices)

    def _fill(self, names: tuple[str, ...], starts: Int64Array, indices: Int32Array) -> None:
        starts.setflags(write=False)
        indices.setflags(write=False)
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_indices", indices)
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        message = f"ResourceSet is immutable, cannot set {name}"
        raise AttributeError(message)

    @classmethod
    def from_flat(
        cls, names: tuple[str, ...], starts: Int64Array, indices: Int32Array
    ) -> ResourceSet:
        """Wrap flat arrays in the layout described at the top of this module, without checks.

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
        if not indices_by_name:
            return EMPTY
        return cls(indices_by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that have at least one index, ascending."""
        return self._names

    @property
    def starts(self) -> Int64Array:
        """Start of each name in `flat_indices`: int64, shape (len(names) + 1,)."""
        return self._starts

    @property
    def flat_indices(self) -> Int32Array:
        """Indices of all names one after the other: int32, shape (len(self),)."""
        return self._indices

    @property
    def name_numbers(self) -> Int64Array:
        """Position in `names` of each resource: int64, shape (len(self),)."""
        return np.arange(len(self._names), dtype=np.int64).repeat(self._counts)

    @property
    def _counts(self) -> Int64Array:
        """Return the number of indices of each name: int64, shape (len(names),)."""
        return self._starts[1:] - self._starts[:-1]

    def indices(self, name: str) -> Int32Array:
        """Return the ascending int32 indices of a name; empty if the set lacks the name."""
        try:
            number = self._names.index(name)
        except ValueError:
            return np.empty(0, dtype=np.int32)
        return self._indices[self._starts[number] : self._starts[number + 1]]

    def items(self) -> Iterator[tuple[str, Int32Array]]:
        """Yield each name with its ascending int32 indices, in the order of names."""
        bounds = self._starts.tolist()
        for number, name in enumerate(self._names):
            yield name, self._indices[bounds[number] : bounds[number + 1]]

    def to_dict(self) -> dict[str, list[int]]:
        """Return plain ascending lists by name, for JSON."""
        flat, bounds = self._indices.tolist(), self._starts.tolist()
        return {
            name: flat[low:high]
            for name, low, high in zip(self._names, bounds[:-1], bounds[1:], strict=True)
        }

    def __len__(self) -> int:
        return int(self._indices.size)

    def __bool__(self) -> bool:
        """Return whether the set has any resource; called far more often than `len`."""
        return self._names != ()

    def __iter__(self) -> Iterator[Resource]:
        if len(self._names) == 1:
            return map(Resource._make, zip(repeat(self._names[0]), self._indices.tolist()))
        return chain.from_iterable(
            map(Resource._make, zip(repeat(name), indices.tolist()))
            for name, indices in self.items()
        )

    def __contains__(self, pair: object) -> bool:
        if not (isinstance(pair, tuple) and len(pair) == len(Resource._fields)):
            return False
        name, index = pair
        if not isinstance(name, str) or not isinstance(index, (int, np.integer)):
            return False
        indices = self.indices(name)
        position = int(indices.searchsorted(index))
        return position < indices.size and bool(indices[position] == index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResourceSet):
            return NotImplemented
        return self is other or (
            self._names == other._names
            and self._indices.size == other._indices.size
            and self._starts.tobytes() == other._starts.tobytes()
            and self._indices.tobytes() == other._indices.tobytes()
        )

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = hash((self._names, self._starts.tobytes(), self._indices.tobytes()))
            object.__setattr__(self, "_hash", found)
        return found

    def __repr__(self) -> str:
        """Show the content in the form that the constructor takes."""
        return f"ResourceSet({self.to_dict()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the flat parts: Spark and process pools transfer sets."""
        return ResourceSet.from_flat, (self._names, self._starts, self._indices)

    def __or__(self, other: ResourceSet) -> ResourceSet:
        if not other or self == other:
            return self
        if not self:
            return other
        few = _few_of(self, other)
        if few is not None:
            return self._with_few(sorted({*few[0], *few[1]}))
        names, mine, theirs = _common_keys(self, other)
        return _from_keys(names, _merged(mine, theirs))

    def __and__(self, other: ResourceSet) -> ResourceSet:
        if not self or self == other:
            return self
        if not other:
            return other
        few = _few_of(self, other)
        if few is not None:
            among = set(few[1])
            return self._with_few([index for index in few[0] if index in among])
        names, mine, theirs = _common_keys(self, other)
        return _from_keys(names, mine[_membership(mine, theirs)])

    def __sub__(self, other: ResourceSet) -> ResourceSet:
        if not other or not self:
            return self
        if self == other:
            return EMPTY
        few = _few_of(self, other)
        if few is not None:
            among = set(few[1])
            return self._with_few([index for index in few[0] if index not in among])
        names, mine, theirs = _common_keys(self, other)
        return _from_keys(names, mine[~_membership(mine, theirs)])

    def _with_few(self, indices: list[int]) -> ResourceSet:
        """Return a subset or a superset of this set, which has one name."""
        if len(indices) == self._indices.size:
            return self
        if not indices:
            return EMPTY
        starts = _starts_of_one(len(indices))
        return ResourceSet.from_flat(self._names, starts, np.array(indices, dtype=np.int32))

    def __le__(self, other: ResourceSet) -> bool:
        if not self or self == other:
            return True
        _, mine, theirs = _common_keys(self, other)
        return bool(np.count_nonzero(_membership(mine, theirs)) == len(self))

    def isdisjoint(self, other: ResourceSet) -> bool:
        """Return whether the sets have no resource in common."""
        if not self or not other:
            return True
        _, mine, theirs = _common_keys(self, other)
        return not np.count_nonzero(_membership(mine, theirs))

    def restrict_names(self, names: Iterable[str]) -> ResourceSet:
        """Return the resources with one of the given names."""
        wanted = set(names)
        if wanted.issuperset(self._names):
            return self
        keep = np.array([name in wanted for name in self._names], dtype=np.bool_)
        return self.take(keep.repeat(self._counts))

    def take(self, mask: BoolArray) -> ResourceSet:
        """Return the resources that a mask of bool (len(self),) selects."""
        indices = self._indices[mask]
        if not indices.size:
            return EMPTY
        if indices.size == self._indices.size:
            return self
        if len(self._names) == 1:
            return _of_one_name(self._names, indices)
        return _of_counts(
            self._names, np.add.reduceat(mask, self._starts[:-1], dtype=np.int64), indices
        )

    def positions(self, subset: ResourceSet) -> Int64Array:
        """Return int64 positions in this set of another set's resources, -1 if absent."""
        if not subset:
            return np.empty(0, dtype=np.int64)
        if subset == self:
            return np.arange(len(self), dtype=np.int64)
        _, mine, theirs = _common_keys(self, subset)
        positions = mine.searchsorted(theirs)
        found = _membership(theirs, mine, positions)
        return np.where(found, positions, -1)

    def positions_all(self, subsets: Sequence[ResourceSet]) -> Int64Array:
        """Return `positions` of many subsets, one after the other, in one look-up."""
        number_of = {name: number for number, name in enumerate(self._names)}
        wanted = [_keys(one, number_of) for one in subsets if one]
        if not wanted:
            return np.empty(0, dtype=np.int64)
        positions = _keys(self, number_of).searchsorted(np.concatenate(wanted))
        return positions.astype(np.int64, copy=False)

    @staticmethod
    def union_all(sets: Iterable[ResourceSet]) -> ResourceSet:
        """Return the union of any number of sets, in one sort instead of one merge per set."""
        parts = [one for one in sets if one]
        if len(parts) <= 1:
            return parts[0] if parts else EMPTY
        names = tuple(sorted({name for one in parts for name in one.names}))
        number_of = {name: number for number, name in enumerate(names)}
        keys = np.concatenate([_keys(one, number_of) for one in parts])
        keys.sort(kind="stable")
        return _from_keys(names, distinct(keys))


# --- building blocks: ascending arrays of distinct integers -------------------------------------


def _ascending_indices(name: str, indices: Iterable[int]) -> Int32Array:
    """Return the integers in ascending order without repeats.

    Raises:
        ConfigurationError: a value is not an integer that fits into int32.
    """
    if type(indices) is list and len(indices) <= FEW and set(map(type, indices)) == {int}:
        few = sorted(set(indices))
        if few[0] >= _INT32_MIN and few[-1] <= _INT32_MAX:
            return np.array(few, dtype=np.int32)
    values = np.asarray(
        indices if isinstance(indices, (np.ndarray, range)) else list(indices)  # any iterable
    )
    if not values.size:
        return np.empty(0, dtype=np.int32)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ConfigurationError(f"indices of {name}", values.tolist(), "integers")
    ascending = values if (values[1:] > values[:-1]).all() else np.unique(values)
    if ascending[0] < _INT32_MIN or ascending[-1] > _INT32_MAX:
        outside = values[(values < _INT32_MIN) | (values > _INT32_MAX)][0]
        raise ConfigurationError(f"indices of {name}", int(outside), "an index within int32")
    return ascending.astype(np.int32)


def _merged(left: KeyArray, right: KeyArray) -> KeyArray:
    """Return the union of two ascending arrays."""
    keys: KeyArray = np.concatenate([left, right])
    keys.sort(kind="stable")  # a stable sort of two ascending runs is one linear merge
    return distinct(keys)


def numbers_in(numbers: Int32Array) -> Int64Array:
    """Return the distinct numbers from 0 up in an array, ascending; -1 means no number.

    The numbers are those of members or losses, so they can be counted in one pass. A sort, as in
    `np.unique`, takes several passes, and many calls for a small group.
    """
    counts = np.bincount(numbers + 1)
    return counts[1:].nonzero()[0]


def distinct(keys: KeyArray) -> KeyArray:
    """Return sorted keys without repeats."""
    fresh = np.ones(keys.size, dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return keys[fresh]


def _membership(
    wanted: KeyArray, among: KeyArray, positions: npt.NDArray[np.intp] | None = None
) -> BoolArray:
    """Return which of the ascending `wanted` keys are in the ascending `among`."""
    if not among.size:
        return np.zeros(wanted.size, dtype=np.bool_)
    if positions is None:
        positions = among.searchsorted(wanted)
    found: BoolArray = among[np.minimum(positions, among.size - 1)] == wanted
    return found


def _few_of(left: ResourceSet, right: ResourceSet) -> tuple[list[int], list[int]] | None:
    """Return the indices of two sets with few indices of one name, the same; else None."""
    mine, theirs, names = left.flat_indices, right.flat_indices, left.names
    if mine.size + theirs.size > FEW or len(names) != 1 or names != right.names:
        return None
    return mine.tolist(), theirs.tolist()


def _keys(one: ResourceSet, number_of: Mapping[str, int]) -> KeyArray:
    """Return the ascending key of each resource, by the numbers of names."""
    if len(number_of) <= 1:
        return one.flat_indices
    numbers = np.array([number_of[name] for name in one.names], dtype=np.int64)
    bases = (numbers << _INDEX_BITS) - _INT32_MIN
    starts = one.starts
    made: Int64Array = bases.repeat(starts[1:] - starts[:-1])
    made += one.flat_indices
    return made


def _common_keys(
    left: ResourceSet, right: ResourceSet
) -> tuple[tuple[str, ...], KeyArray, KeyArray]:
    """Return the names of two sets together, ascending, and the keys of both."""
    names = left.names if left.names == right.names else tuple(sorted({*left.names, *right.names}))
    if len(names) <= 1:
        return names, left.flat_indices, right.flat_indices
    number_of = {name: number for number, name in enumerate(names)}
    return names, _keys(left, number_of), _keys(right, number_of)


@lru_cache(maxsize=1_024)
def _starts_of_one(size: int) -> Int64Array:
    """Return the starts that all sets with one name and this size share."""
    return np.array([0, size], dtype=np.int64)


def _from_keys(names: tuple[str, ...], keys: KeyArray) -> ResourceSet:
    if len(names) <= 1:
        return _of_one_name(names, keys.astype(np.int32, copy=False))
    bounds = keys.searchsorted(np.arange(len(names) + 1, dtype=np.int64) << _INDEX_BITS)
    indices = ((keys & ((1 << _INDEX_BITS) - 1)) + _INT32_MIN).astype(np.int32)
    return _of_counts(names, bounds[1:] - bounds[:-1], indices)


def _of_one_name(names: tuple[str, ...], indices: Int32Array) -> ResourceSet:
    if not indices.size:
        return EMPTY
    return ResourceSet.from_flat(names, _starts_of_one(indices.size), indices)


def _of_counts(names: tuple[str, ...], counts: Int64Array, indices: Int32Array) -> ResourceSet:
    if not indices.size:
        return EMPTY
    if np.count_nonzero(counts) < counts.size:
        kept = counts.nonzero()[0]
        names, counts = tuple(names[number] for number in kept.tolist()), counts[kept]
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    counts.cumsum(out=starts[1:])
    return ResourceSet.from_flat(names, starts, indices)


EMPTY: Final = ResourceSet()
