"""Tables of a TOML file to values: a *shape* has a reader for each key of a table.

A key is required if the field of the resulting value has no default. Readers check types only. They
refuse unknown keys, and `true` is not a number.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import attrs
from attrs import frozen

from coopgroup.simulator.scenario import Span
from coopgroup.simulator.scenario_problem import Path

__all__ = [
    "NOTHING",
    "Reader",
    "Refusal",
    "Row",
    "Shape",
    "integer",
    "integers",
    "list_of",
    "names",
    "number",
    "read_keys",
    "span",
    "string",
    "strings",
    "table",
    "word",
]

Reader: TypeAlias = Callable[[Path, Any], Any]
Row: TypeAlias = dict[str, Any]

NOTHING: Final = object()
"""What stands where a key is missing."""
_INTEGER_MAX: Final = 10**12  # as ms more than thirty years; small sums fit into an int64


class Refusal(Exception):  # noqa: N818 - never leaves `scenario_file`
    """An error in the file.

    Args:
        path: position of the error.
        value: the wrong value; `NOTHING` for a missing key.
        expected: description of right values, as the end of the sentence "expected …".
        key: name in the message; "" for the path.
    """

    def __init__(self, path: Path, value: object, expected: str, key: str = "") -> None:
        super().__init__(path)
        self.path = path
        self.value = value
        self.expected = expected
        self.key = key


# --- plain values -------------------------------------------------------------------------------


def integer(path: Path, value: Any) -> int:  # noqa: ANN401 - whatever stands in the file
    """Read an integer that is not a boolean and not absurdly large."""
    if type(value) is not int:  # True is not a number here
        raise Refusal(path, value, "an integer")
    if abs(value) > _INTEGER_MAX:
        raise Refusal(path, value, f"an integer of at most {_INTEGER_MAX}")
    return value


def number(path: Path, value: Any) -> float:  # noqa: ANN401
    """Read an integer or a float."""
    if type(value) not in (int, float):
        raise Refusal(path, value, "a number")
    try:
        return float(value)
    except OverflowError:  # hundreds of digits
        raise Refusal(path, value, "a number that a float can hold") from None


def string(path: Path, value: Any) -> str:  # noqa: ANN401
    """Read a string."""
    if not isinstance(value, str):
        raise Refusal(path, value, "a string")
    return value


def list_of(reader: Reader) -> Reader:
    """Return a reader of lists that reads each item with `reader`."""

    def read(path: Path, value: Any) -> tuple[Any, ...]:  # noqa: ANN401
        if not isinstance(value, list):
            raise Refusal(path, value, "a list")
        return tuple(reader((*path, place), item) for place, item in enumerate(value))

    return read


def names(path: Path, value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Read one name, or a list of names."""
    names: tuple[str, ...] = strings(path, [value] if isinstance(value, str) else value)
    return names


def word(words: type[StrEnum]) -> Reader:
    """Return a reader that accepts one of the words."""

    def read(path: Path, value: Any) -> StrEnum:  # noqa: ANN401
        if value not in list(words):
            raise Refusal(path, value, f"one of {', '.join(words)}")
        return words(value)

    return read


def span(path: Path, value: Any) -> Span:  # noqa: ANN401
    """Read one integer, or `[min, max]`."""
    if isinstance(value, list):
        if len(value) != 2:
            raise Refusal(path, value, "an integer or [min, max]")
        return Span(integer((*path, 0), value[0]), integer((*path, 1), value[1]))
    if type(value) is not int:
        raise Refusal(path, value, "an integer or [min, max]")
    number = integer(path, value)
    return Span(number, number)


strings = list_of(string)
integers = list_of(integer)


def table(path: Path, value: Any) -> Row:  # noqa: ANN401
    """Read a table unchanged."""
    if not isinstance(value, dict):
        raise Refusal(path, value, "a table")
    return value


# --- tables -------------------------------------------------------------------------------------


def read_keys(path: Path, row: Row, readers: Mapping[str, Reader], made: type) -> Row:
    """Read the keys of a table.

    Args:
        path: of the table.
        row: the table.
        readers: readers of the permitted keys.
        made: attrs class; its fields without defaults are the required keys.
    """
    for key in row:
        if key not in readers:
            raise Refusal((*path, key), row[key], _no_such_key(key, readers))
    for one in attrs.fields(made):
        if one.default is attrs.NOTHING and one.name in readers and one.name not in row:
            raise Refusal((*path, one.name), NOTHING, "a value, as this key is required")
    return {key: readers[key]((*path, key), value) for key, value in row.items()}


def _no_such_key(key: str, readers: Mapping[str, Reader]) -> str:
    close = difflib.get_close_matches(key, readers, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"no such key{meant}; there are {', '.join(readers)}"


@frozen
class Shape:
    """Reads a table into a value.

    Attributes:
        made: attrs class of the value.
        readers: readers of the permitted keys.
        build: makes the value from the path and the keys; None for the class itself.
    """

    made: type
    readers: Mapping[str, Reader]
    build: Callable[[Path, Row], Any] | None = None

    def __call__(self, path: Path, value: Any) -> Any:  # noqa: ANN401
        """Read a table."""
        keywords = read_keys(path, table(path, value), self.readers, self.made)
        return self.made(**keywords) if self.build is None else self.build(path, keywords)
