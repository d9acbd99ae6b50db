"""`Catalogue`: what a group shares, as one process sees it at one moment.

The one rule of this file: only the leader's catalogue counts in a round. Its version says which of
two is newer, so that a leader that is behind another member does not decide on what is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

from attrs import field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.model import Resource, ResourceSet

__all__ = ["EVERYTHING", "INDEX_MIN", "TASKS_MAX", "Catalogue"]

EVERYTHING: Final = "*"
"""What members of a group subscribe to: whatever the leader's catalogue has. No resource's name."""
INDEX_MIN: Final = -1
"""The index of a connector itself; its tasks count from 0."""
TASKS_MAX: Final = 1_000_000
"""So many tasks may be given by their count: far more than any group can share."""
_INDEX_MAX: Final = 2**31 - 1
_NAME_BYTES_MAX: Final = 2**15 - 1
_INT64_MAX: Final = 2**63 - 1


@frozen(kw_only=True)
class Catalogue:
    """Resources with their weights, and the version of the list.

    Made by `Catalogue.of` or `Catalogue.of_connectors`.

    Attributes:
        weights: (resource, weight) ascending by resource.
        resources: the resources alone.
        version: grows with each change, from 0 up; None where nobody counts.
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
        """Read a catalogue.

        Args:
            resources: (name, index) pairs, or a mapping of them to weights; a weight is a whole
                number from 0 up, and that of a resource without one is 1.
            version: of the list; see `Catalogue`.

        Raises:
            ConfigurationError: a pair, a weight or the version is none.
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

        Args:
            tasks: by the connector's name, how many tasks it has, or the weight of each.
            version: of the list; see `Catalogue`.

        Raises:
            ConfigurationError: as `of`.
        """
        if not isinstance(tasks, Mapping):
            raise ConfigurationError("tasks of connectors", tasks, "a mapping of names to tasks")
        weights: dict[tuple[str, int], int] = {}
        for name, given in tasks.items():
            weights[name, INDEX_MIN] = 1
            each = _weights_of(name, given)
            weights.update({(name, index): weight for index, weight in enumerate(each)})
        return cls.of(weights, version=version)

    @classmethod
    def read(cls, given: object) -> Self:
        """Take what an application returned for a catalogue: one, or what `of` takes.

        Raises:
            ConfigurationError: it is neither.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Iterable) and not isinstance(given, str | bytes):
            return cls.of(given)
        raise ConfigurationError("catalogue", given, "a Catalogue, or (name, index) pairs")

    def is_behind(self, version: int | None) -> bool:
        """Whether somebody has seen a newer one."""
        return version is not None and (self.version is None or self.version < version)


def _resource(pair: object) -> Resource:
    match pair:
        case (str() as name, int() as index) if _is_name(name) and INDEX_MIN <= index <= _INDEX_MAX:
            return Resource(name, index)
        case _:
            expected = (
                "a (name, index) pair: a name of 1 to 32767 bytes that is not '*', "
                "an index from -1 up"
            )
            raise ConfigurationError("resource", pair, expected)


def _is_name(name: str) -> bool:
    try:
        return name != EVERYTHING and 0 < len(name.encode()) <= _NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _natural(field_name: str, given: object) -> int:
    if type(given) is int and 0 <= given <= _INT64_MAX:
        return given
    raise ConfigurationError(field_name, given, "a whole number from 0 up")


def _weights_of(name: str, given: object) -> Iterable[int]:
    """The weight of each task of a connector."""
    if type(given) is int and 0 <= given <= TASKS_MAX:
        return [1] * given
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return given
    expected = f"a count from 0 to {TASKS_MAX}, or the weight of each"
    raise ConfigurationError(f"tasks of {name!r}", given, expected)
