"""Read TOML and JSON into attrs classes, strictly.

The attrs class describes a table: its fields are the keys, a field without a default is a required
key, and its validators are the bounds. cattrs builds the value. This module makes cattrs strict:
it refuses unknown keys, `true` for 1, and text for a number. Bounds also hold for values that are
made in Python, because attrs checks them.

Hooks and validators raise `ConfigurationError` with a path from the value that they know:
`at_ms`. `structure` completes the path: `events[3].at_ms`. `in_file` puts the file before it.
"""

from __future__ import annotations

import difflib
import json
import reprlib
import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar, get_args, get_origin

import attrs
import numpy as np
from cattrs import Converter
from cattrs.cols import homogenous_tuple_structure_factory, mapping_structure_factory
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ClassValidationError,
    IterableValidationError,
)
from cattrs.gen import make_dict_structure_fn, override

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.resource_set import Int32Array
from coopgroup.core.model.traits import checked_traits
from coopgroup.errors import ConfigurationError

__all__ = [
    "INT32_MAX",
    "NOTHING",
    "Hook",
    "OneOrMore",
    "Row",
    "StrictConverter",
    "are_traits",
    "between",
    "choice_hook",
    "in_file",
    "int32_list",
    "is_number",
    "joined",
    "located",
    "parse_json",
    "parse_toml",
    "read_text",
    "structure",
    "table_hook",
    "wrong",
]

Row: TypeAlias = dict[str, Any]
Hook: TypeAlias = Callable[[Any, Any], Any]
_T = TypeVar("_T")

_ONE_OR_MORE: Final = "one value, or a list of them"
OneOrMore: TypeAlias = Annotated[tuple[_T, ...], _ONE_OR_MORE]
"""A tuple; a file may also contain a single value."""

INT32_MAX: Final = 2**31 - 1
_INTEGER_MAX: Final = 10**12  # as ms more than thirty years; small sums fit into an int64


_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = 60


class _Shown:
    """A value in messages: short, with constants as in TOML and JSON."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        if self.value is None or isinstance(self.value, bool):
            return json.dumps(self.value)
        try:
            return _SHORT.repr(self.value)
        except ValueError:  # a long hexadecimal integer exceeds Python's limit for decimal output
            return "an integer of thousands of digits"


def _shown(value: object) -> _Shown:
    return value if isinstance(value, _Shown) else _Shown(value)


class _Nothing(_Shown):
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing(None)
"""The value of a missing key."""


# --- errors -------------------------------------------------------------------------------------


def joined(*parts: str | int) -> str:
    """Return a key path in the form of messages: `events[2].at_ms`."""
    path = ""
    for part in parts:
        step = f"[{part}]" if isinstance(part, int) else part
        path += step if not path or not step or step.startswith("[") else f".{step}"
    return path


def structure(converter: StrictConverter, value: object, kind: type[_T]) -> _T:
    """Return the value of an attrs class for a parsed table.

    Raises:
        ConfigurationError: the table is no such value; the error names the path of the first
            wrong key, its value and what is allowed.
    """
    try:
        return converter.structure(value, kind)
    except (ConfigurationError, BaseValidationError) as error:
        raise _first(error) from None


def _first(error: Exception) -> ConfigurationError:
    """Return the first cause of an error, with its path. Any other exception is a bug."""
    if isinstance(error, ConfigurationError):
        return wrong(error.field, error.value, error.expected)
    if not isinstance(error, ClassValidationError | IterableValidationError):
        raise error
    noted, others = error.group_exceptions()
    if not noted:
        return _first(others[0])
    cause, note = noted[0]
    found = _first(cause)
    key = note.name if isinstance(note, AttributeValidationNote) else note.index
    return ConfigurationError(joined(key, found.field), found.value, found.expected)


@contextmanager
def located(*path: str | int) -> Iterator[None]:
    """Complete the path of an error."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(joined(*path, error.field), error.value, error.expected) from None


@contextmanager
def in_file(file: str) -> Iterator[None]:
    """Add the name of the file to an error of its content."""
    try:
        yield
    except ConfigurationError as error:
        found = _first(error)
        raise ConfigurationError(f"{file}: {found.field}", found.value, found.expected) from None


def wrong(path: str, value: object, expected: str) -> ConfigurationError:
    """Return the error for a value in a file, which may be too long to print."""
    return ConfigurationError(path, _shown(value), expected)


def _refuse(value: object, expected: str) -> NoReturn:
    raise wrong("", value, expected)


# --- bounds -------------------------------------------------------------------------------------


@attrs.frozen
class _Between:
    """An attrs validator, see `between`."""

    low: int
    high: int

    @property
    def expected(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def __call__(self, _: object, attribute: attrs.Attribute[Any], value: Any) -> None:  # noqa: ANN401
        if isinstance(value, tuple):
            for place, item in enumerate(value):
                if not self.low <= item <= self.high:
                    raise wrong(joined(attribute.name, place), item, self.expected)
        elif value is not None and not self.low <= value <= self.high:
            raise wrong(attribute.name, value, self.expected)


def between(low: int, high: int = _INTEGER_MAX) -> _Between:
    """Return an attrs validator for an integer, a tuple of integers, or None."""
    return _Between(low, high)


def are_traits(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate the traits of a member."""
    try:
        checked_traits(value)
    except ValueError as error:
        raise wrong(attribute.name, value, str(error)) from None


def is_number(value: object) -> bool:
    """Return whether a value is an integer or a float; `true` is neither."""
    return type(value) in (int, float)


# --- hooks --------------------------------------------------------------------------------------


class StrictConverter(Converter):
    """A converter for the types that files have; readers add hooks of their own.

    Args:
        table: the format's word for a mapping, with its article.
    """

    def __init__(self, table: str = "a table") -> None:
        super().__init__(detailed_validation=True)
        self.table = table
        self.register_structure_hook_factory(attrs.has, lambda kind: table_hook(kind, self))
        self.register_structure_hook_factory(_is_tuple, lambda kind: _tuple_hook(kind, self))
        self.register_structure_hook_factory(
            _is_one_or_more, lambda kind: _one_or_more_hook(kind, self)
        )
        self.register_structure_hook_factory(_is_mapping, lambda kind: _mapping_hook(kind, self))
        self.register_structure_hook_func(_is_object, lambda value, _: value)
        self.register_structure_hook(ResourceSet, self._resources)
        for kind, hook in _PLAIN.items():
            self.register_structure_hook(kind, hook)

    def _resources(self, value: Any, _: Any) -> ResourceSet:  # noqa: ANN401 - whatever files have
        if not isinstance(value, dict):
            _refuse(value, f"{self.table} of lists of integers")
        return _resource_set(value)


def table_hook(kind: type, converter: StrictConverter, hidden: Row | None = None) -> Hook:
    """Return a hook for the tables of an attrs class.

    Args:
        kind: the attrs class.
        converter: hooks for the types of its fields.
        hidden: values of fields that no file may have.
    """
    attrs.resolve_types(kind)
    numbers: Any = {
        one.name: override(
            struct_hook=_integer_hook(one.validator, may_be_null=one.type is not int)
        )
        for one in attrs.fields(kind)
        if isinstance(one.validator, _Between) and one.type in (int, int | None)
    }
    build: Hook = make_dict_structure_fn(kind, converter, **numbers)
    fields = [one for one in attrs.fields(kind) if one.name not in (hidden or {})]
    known = tuple(one.name for one in fields)
    required = tuple(one.name for one in fields if one.default is attrs.NOTHING)

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            _refuse(value, f"{converter.table} with the keys {', '.join(known)}")
        for key in value:
            if key not in known:
                raise wrong(key, value[key], _no_such_key(key, known))
        for key in required:
            if key not in value:
                raise ConfigurationError(key, NOTHING, "a value, as this key is required")
        return build(value | hidden if hidden else value, kind)

    return read


def _integer_hook(bounds: _Between, *, may_be_null: bool) -> Hook:
    """Return a hook for an integer whose error names the bounds."""

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if type(value) is not int and not (value is None and may_be_null):
            _refuse(value, bounds.expected)
        return value

    return read


def _no_such_key(key: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"no such key{meant}; there are {', '.join(known)}"


def choice_hook(kind: type, converter: StrictConverter) -> Hook:
    """Return a hook for a name alone, or a table with the name and options."""
    read_table = table_hook(kind, converter)

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return kind(name=value)
        if not isinstance(value, dict):
            _refuse(value, f"a name, or {converter.table} of name and options")
        return read_table(value, kind)

    return read


def _is_object(kind: Any) -> bool:  # noqa: ANN401 - any annotation
    return kind is object


def _is_tuple(kind: Any) -> bool:  # noqa: ANN401
    return get_origin(kind) is tuple


_OF: Final[Mapping[Any, str]] = {str: " of strings", int: " of integers", float: " of numbers"}


def _tuple_hook(kind: Any, converter: StrictConverter) -> Hook:  # noqa: ANN401
    build = homogenous_tuple_structure_factory(kind, converter)
    item = get_args(kind)[0]

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, list):
            _refuse(value, f"a list{_OF.get(item, '')}")
        # One check instead of one call for each item: a plan's line may have a million names.
        if item is object or (item in (int, str) and set(map(type, value)) <= {item}):
            return tuple(value)
        return build(value, kind)

    return read


def _is_one_or_more(kind: Any) -> bool:  # noqa: ANN401
    return get_origin(kind) is Annotated and _ONE_OR_MORE in kind.__metadata__


def _one_or_more_hook(kind: Any, converter: StrictConverter) -> Hook:  # noqa: ANN401
    several = converter.get_structure_hook(kind.__origin__)
    item = get_args(kind.__origin__)[0]
    one = converter.get_structure_hook(item)

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        return several(value, kind) if isinstance(value, list) else (one(value, item),)

    return read


def _is_mapping(kind: Any) -> bool:  # noqa: ANN401
    return get_origin(kind) in (dict, Mapping)


def _mapping_hook(kind: Any, converter: StrictConverter) -> Hook:  # noqa: ANN401
    build = mapping_structure_factory(kind, converter)

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            _refuse(value, converter.table)
        return build(value, kind)

    return read


def _word(value: Any, kind: type[StrEnum]) -> StrEnum:  # noqa: ANN401
    if not isinstance(value, str) or value not in list(kind):
        _refuse(value, f"one of {', '.join(kind)}")
    return kind(value)


def _exactly(kind: type, expected: str) -> Hook:
    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if type(value) is not kind:  # True is an int in Python, and not in a file
            _refuse(value, expected)
        return value

    return read


def _float(value: Any, _: Any) -> float:  # noqa: ANN401
    if not is_number(value):
        _refuse(value, "a number")
    try:
        return float(value)
    except OverflowError:  # hundreds of digits
        _refuse(value, "a number that a float can hold")


def int32_list(value: Any, path: str = "") -> Int32Array:  # noqa: ANN401
    """Return a list of partition numbers as int32, in the given order."""
    if not isinstance(value, list):
        raise wrong(path, value, "a list of integers")
    if _is_int32(value):
        return np.array(value, dtype=np.int32)
    place, item = next((place, item) for place, item in enumerate(value) if not _is_int32([item]))
    expected = f"an integer from {-INT32_MAX - 1} to {INT32_MAX}"
    raise wrong(joined(path, place), item, expected)


def _is_int32(items: list[Any]) -> bool:
    if not set(map(type, items)) <= {int}:
        return False
    return not items or (min(items) >= -INT32_MAX - 1 and max(items) <= INT32_MAX)


def _resource_set(value: Row) -> ResourceSet:
    """Return one set of all names; a set per name would cost more than the JSON."""
    lists = list(value.values())
    if not set(map(type, lists)) <= {list} or not _is_int32(list(chain.from_iterable(lists))):
        return ResourceSet({name: int32_list(indices, name) for name, indices in value.items()})
    names = sorted(name for name, indices in value.items() if indices)
    ascending = [sorted(set(value[name])) for name in names]
    starts = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(indices) for indices in ascending], out=starts[1:])
    flat = np.array(list(chain.from_iterable(ascending)), dtype=np.int32)
    return ResourceSet.from_flat(tuple(names), starts, flat)


_PLAIN: Final[Mapping[Any, Hook]] = {
    bool: _exactly(bool, "true or false"),
    int: _exactly(int, "an integer"),
    float: _float,
    str: _exactly(str, "a string"),
    StrEnum: _word,
}


# --- text ---------------------------------------------------------------------------------------


def read_text(path: Path, what: str) -> str:
    """Return the text of a file; `what` names the kind of file in messages.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")  # editors of Windows write a mark first
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise ConfigurationError(what, str(path), f"a file to read ({reason})") from None
    except UnicodeDecodeError:
        raise ConfigurationError(what, str(path), "a text file in UTF-8") from None


def parse_toml(text: str, file: str, what: str) -> Row:
    """Return the tables of a TOML document; `what` names the kind of file in messages.

    Raises:
        ConfigurationError: the text is not TOML; the message has the line where the parser knows.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        expected = f"TOML ({error})"
    except RecursionError:
        expected = "TOML that is nested less deep"
    except ValueError:  # `tomllib` raises it for an integer of thousands of digits
        expected = "TOML with shorter integers"
    raise ConfigurationError(what, file, expected)


def parse_json(raw: bytes, what: str) -> tuple[Row, ConfigurationError | None]:
    """Return the object of a text in strict JSON.

    Args:
        raw: the text, with or without its line end.
        what: name of the text in messages.

    Returns:
        The object, and an error of the whole text: a repeated key, `NaN` or an infinity. The object
        is returned in either case, so that an answer can repeat its id.

    Raises:
        ConfigurationError: the text is not one JSON object in UTF-8.
    """
    problems: list[ConfigurationError] = []

    def once_each(pairs: list[tuple[str, Any]]) -> Row:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            problems.append(ConfigurationError(what, twice, "every key once in an object"))
        return row

    def no_number(constant: str) -> None:
        problems.append(ConfigurationError(what, constant, "numbers that JSON has"))

    raw = raw.removeprefix(BOM_UTF8)
    shown: object = _Shown(raw[:80].decode(errors="replace").strip())
    try:
        row = json.loads(raw.decode(), object_pairs_hook=once_each, parse_constant=no_number)
    except UnicodeDecodeError as error:
        shown, expected = raw[error.start : error.start + 1], f"UTF-8 (byte {error.start})"
    except json.JSONDecodeError as error:
        expected = f"one JSON object ({error.msg}, column {error.colno})"
    except RecursionError:
        expected = "one JSON object, not so deeply nested"
    except ValueError:  # Python refuses integers of more than 4300 digits
        expected = "numbers of reasonable length"
    else:
        if isinstance(row, dict):
            return row, problems[0] if problems else None
        shown, expected = _Shown(row), "one JSON object"
    raise ConfigurationError(what, shown, expected)
