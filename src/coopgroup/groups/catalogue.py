"""`Catalogue`: the resources that a group shares, as one process sees them at one moment.

The one rule of this file: only the leader's catalogue counts in a round. The version tells which of
two catalogues is newer. Without it, a leader with an outdated catalogue could assign resources that
no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Final, Self, SupportsIndex

from attrs import field, frozen

from coopgroup.core.model import Resource, ResourceSet
from coopgroup.errors import ConfigurationError

EVERYTHING: Final = "*"
"""Members of a group subscribe to this name, for all resources in the leader's catalogue."""
INDEX_MIN: Final = -1
"""The index of a connector itself; its tasks count from 0."""
TASKS_MAX: Final = 1_000_000
"""Limit of tasks that are given by their count; far more than any group can share."""
_INDEX_MAX: Final = 2**31 - 1
_NAME_BYTES_MAX: Final = 2**15 - 1
_INT64_MAX: Final = 2**63 - 1


@frozen(kw_only=True)
class Catalogue:
    """Resources with their weights, and the version of the list.

    Made by `Catalogue.of` or `Catalogue.of_connectors`.

    Attributes:
        weights: (resource, weight) ascending by resource.
        version: a whole number from 0 up that grows with each change; None without versions.
    """

    weights: tuple[tuple[Resource, int], ...]
    resources: ResourceSet = field(eq=False)
    version: int | None = None

    @classmethod
    def of(
        cls,
        resources: Mapping[tuple[str, int], int] | Iterable[tuple[str, int]],
        *,
        version: int | None = None,
    ) -> Self:
        """Make a catalogue.

        Args:
            resources: (name, index) pairs, or a mapping of these pairs to weights. A weight is a
                whole number from 0 up; the default is 1.
            version: version of the list; see `Catalogue`.

        Raises:
            ConfigurationError: a pair, a weight or the version is invalid.
        """
        weight_of: dict[Resource, int] = {}
        for pair in resources:
            weight = resources[pair] if isinstance(resources, Mapping) else 1
            weight_of[_resource(pair)] = _natural(f"weight of {pair!r}", weight)
        if version is not None:
            _natural("version of the catalogue", version)
        return cls(
            weights=tuple(sorted(weight_of.items())),
            resources=ResourceSet.from_pairs(weight_of),
            version=version,
        )

    @classmethod
    def of_connectors(
        cls, tasks: Mapping[str, int | Iterable[int]], *, version: int | None = None
    ) -> Self:
        """List connectors with their tasks: the connector itself is (name, -1), of weight 1.

        Raises:
            ConfigurationError: as `of`.
        """
        if not isinstance(tasks, Mapping):
            raise ConfigurationError("tasks of connectors", tasks, "a mapping of names to tasks")
        weights: dict[tuple[str, int], int] = {}
        for name, given in tasks.items():
            weights[name, INDEX_MIN] = 1
            each = _weights_of(name, given)
            weights.update({(name, task): weight for task, weight in enumerate(each)})
        return cls.of(weights, version=version)

    @classmethod
    def read(cls, given: object) -> Self:
        """Return a catalogue: the given one itself, or made by `of` from its argument.

        Raises:
            ConfigurationError: neither of the two.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Iterable) and not isinstance(given, str | bytes):
            return cls.of(given)
        raise ConfigurationError("catalogue", given, "a Catalogue, or (name, index) pairs")

    def is_behind(self, version: int | None) -> bool:
        """Return whether a version is newer than this catalogue."""
        return version is not None and (self.version is None or self.version < version)


def _resource(pair: object) -> Resource:
    match pair:
        case (str() as name, given) if _is_name(name):
            number = _whole(given)
            if number is not None and INDEX_MIN <= number <= _INDEX_MAX:
                return Resource(name, number)
    expected = (
        "a (name, index) pair: a name of 1 to 32767 bytes that is not '*', an index from -1 up"
    )
    raise ConfigurationError("resource", pair, expected)


def _is_name(name: str) -> bool:
    try:
        return name != EVERYTHING and 0 < len(name.encode()) <= _NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _whole(given: object) -> int | None:
    """Return a whole number, also one of NumPy; None for anything else, such as `True`."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        return None
    try:
        return index(given)
    except TypeError:  # such as an array of several numbers, or a boolean of NumPy
        return None


def _natural(field_name: str, given: object) -> int:
    number = _whole(given)
    if number is None or not 0 <= number <= _INT64_MAX:
        raise ConfigurationError(field_name, given, "a whole number from 0 up")
    return number


def _weights_of(name: str, given: object) -> Iterable[int]:
    count = _whole(given)
    if count is not None and 0 <= count <= TASKS_MAX:
        return [1] * count
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return given
    expected = f"a count from 0 to {TASKS_MAX}, or the weight of each"
    raise ConfigurationError(f"tasks of {name!r}", given, expected)
