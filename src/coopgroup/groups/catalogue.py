"""`Catalogue`: the resources that a group shares, as one process sees them at one moment.

The one rule of this file: only the leader's catalogue counts in a round. The version tells which of
two catalogues is newer. Without it, a leader with an outdated catalogue could assign resources that
no longer exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final, Self, SupportsIndex, TypeAlias

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
_OF_A_RESOURCE: Final = "the definition of a resource in the list"


Weights: TypeAlias = tuple[tuple[Resource, int], ...]
Mark: TypeAlias = tuple[bytes | str | None, int]
"""A definition as bytes or JSON text, and its life: another number after a deletion."""
UNDEFINED: Final[Mark] = (None, 0)


class GroupResource(Resource):
    """A resource, as callbacks get it; equal to the `Resource`.

    Attributes:
        definition: its definition in the catalogue, bytes or a JSON value; None without one. A
            callback that ends work gets the definition with which the work was started.
        reason: why work ends: "moved", "deleted", "changed", "closing" or "lost"; "" otherwise.
    """

    definition: Any = None
    reason: str = ""

    def __new__(cls, name: str, index: int, definition: object = None, reason: str = "") -> Self:
        """Make a resource for a callback."""
        made = super().__new__(cls, name, index)
        made.definition = definition
        made.reason = reason
        return made

    @classmethod
    def marked(cls, resource: Resource, mark: Mark, reason: str = "") -> Self:
        """Make a resource with a copy of its definition, which the callback may change."""
        given = mark[0]
        definition = json.loads(given) if isinstance(given, str) else given
        return cls(resource.name, resource.index, definition, reason)


@frozen(kw_only=True)
class Catalogue:
    """Resources with their weights and definitions, and the version of the list.

    Made by `Catalogue.of` or `Catalogue.of_connectors`.

    Attributes:
        weights: (resource, weight) ascending by resource.
        version: a whole number from 0 up that grows with each change; None without versions.
        marks: definitions by resource; a resource without one is missing.
    """

    weights: Weights
    resources: ResourceSet = field(eq=False)
    version: int | None = None
    marks: Mapping[Resource, Mark] = field(factory=dict, eq=False, repr=False)

    @classmethod
    def of(
        cls,
        resources: Mapping[tuple[str, int], int] | Iterable[tuple[str, int]],
        *,
        version: int | None = None,
        definitions: Mapping[tuple[str, int], object] | Mapping[Resource, object] | None = None,
    ) -> Self:
        """Make a catalogue.

        Args:
            resources: (name, index) pairs, or a mapping of these pairs to weights. A weight is a
                whole number from 0 up; the default is 1.
            version: version of the list; see `Catalogue`.
            definitions: bytes or JSON values for some of the resources; `start` gets them.

        Raises:
            ConfigurationError: a pair, a weight, a definition or the version is invalid.
        """
        given: object = resources
        if not isinstance(given, Iterable) or isinstance(given, str | bytes):
            raise ConfigurationError("resources of the catalogue", given, "(name, index) pairs")
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
            marks=_marks(weight_of, _mapping(definitions, "(name, index) pairs")),
        )

    @classmethod
    def of_connectors(
        cls,
        tasks: Mapping[str, int | Iterable[int]],
        *,
        version: int | None = None,
        definitions: Mapping[str, object] | None = None,
    ) -> Self:
        """List connectors with their tasks: the connector itself is (name, -1), of weight 1.

        Args:
            tasks: number of tasks of each connector, or the weight of each task.
            version: version of the list; see `Catalogue`.
            definitions: definitions by name of the connector, which its tasks share.

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
        told = _mapping(definitions, "names")
        for unknown in told.keys() - tasks.keys():
            raise ConfigurationError("definition", unknown, _OF_A_RESOURCE)
        shared = {pair: told[pair[0]] for pair in weights if pair[0] in told}
        return cls.of(weights, version=version, definitions=shared)

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

    def mark(self, resource: Resource) -> Mark:
        """Return the definition of a resource, for a comparison with an earlier one."""
        return self.marks.get(resource, UNDEFINED)

    def is_behind(self, version: int | None) -> bool:
        """Return whether a version is newer than this catalogue."""
        return version is not None and (self.version is None or self.version < version)


def _mapping(given: Mapping[Any, object] | None, keys: str) -> Mapping[Any, object]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError("definitions", given, f"a mapping of {keys} to definitions")
    return given or {}


def _marks(
    weights: Mapping[Resource, int],
    definitions: Mapping[tuple[str, int], object] | Mapping[Resource, object],
) -> dict[Resource, Mark]:
    """Keep definitions as text: the application may change its own objects in place."""
    marks: dict[Resource, Mark] = {}
    texts: dict[int, tuple[object, bytes | str]] = {}  # tasks of a connector share one object
    for pair, given in definitions.items():
        resource = _resource(pair)
        if resource not in weights:
            raise ConfigurationError("definition", pair, _OF_A_RESOURCE)
        if id(given) not in texts:
            texts[id(given)] = given, definition_text(pair, given)
        marks[resource] = texts[id(given)][1], 0
    return marks


def definition_text(pair: object, given: object) -> bytes | str:
    """Return a definition in a form that does not change: bytes, or JSON with sorted keys.

    Raises:
        ConfigurationError: neither bytes nor a JSON value.
    """
    if isinstance(given, bytes):
        return given
    try:
        return json.dumps(given, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ConfigurationError(f"definition of {pair!r}", given, "bytes or JSON") from None


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
