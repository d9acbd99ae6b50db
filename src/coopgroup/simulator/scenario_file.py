"""Scenario files: TOML to a `Scenario`, with errors that name file, line and key.

Theory of operation: every table of a file is described by a *shape*, a reader for each of its keys.
What keys are required follows from the value that a shape makes: those without a default. A reader
asks for types only; what values can be is asked of the whole scenario afterwards
(`scenario_checks`). Both say where in the file something is wrong by its path, and `toml_lines`
knows the line of each path. Nothing is guessed: unknown keys are refused, and `true` is no number.
"""

from __future__ import annotations

import difflib
import json
import re
import reprlib
import tomllib
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn, TypeAlias

import attrs
from attrs import evolve, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.simulator import scenario as values
from coopgroup.simulator.scenario import (
    AddPartitions,
    Choice,
    CreateTopic,
    Event,
    Group,
    How,
    Identity,
    MemberSet,
    Network,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario_checks import RESOURCES_MAX, Path, dotted, scenario_problems
from coopgroup.simulator.toml_lines import key_lines

__all__ = ["EVENT_KINDS", "parse_scenario", "read_scenario"]

_Reader: TypeAlias = Callable[[Path, Any], Any]
_Row: TypeAlias = dict[str, Any]


class _Refusal(Exception):  # noqa: N818 - never leaves this file
    """Something in the file is wrong.

    Args:
        path: where.
        value: what stands there; `_NOTHING` for a missing key.
        expected: what would be right, as the end of the sentence "expected …".
        key: what to call it; "" for the path.
    """

    def __init__(self, path: Path, value: object, expected: str, key: str = "") -> None:
        super().__init__(path)
        self.path = path
        self.value = value
        self.expected = expected
        self.key = key


@frozen(kw_only=True)
class _Shown:
    """A value as messages show it: short, and with the file's words for constants."""

    value: object

    def __repr__(self) -> str:
        if self.value is _NOTHING:
            return "nothing"
        if isinstance(self.value, bool):
            return json.dumps(self.value)
        if isinstance(self.value, float) and self.value.is_integer():
            return repr(self.value).removesuffix(".0")
        return reprlib.repr(self.value)


_NOTHING: Final = object()
_INTEGER_MAX: Final = 10**12  # as ms it is more than thirty years; sums of a few stay in an int64


def read_scenario(path: str | FilePath) -> Scenario:
    """Read a scenario file.

    Args:
        path: of the file; its name without `.toml` names the scenario.

    Raises:
        ConfigurationError: the file cannot be read, or does not describe a scenario; the message
            names file, line and key.
    """
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise ConfigurationError("scenario file", str(path), f"a file to read ({reason})") from None
    except UnicodeDecodeError:
        raise ConfigurationError("scenario file", str(path), "a text file in UTF-8") from None
    return parse_scenario(text, file=str(path))


def parse_scenario(text: str, *, file: str) -> Scenario:
    """Read the text of a scenario file.

    Args:
        text: of the file.
        file: its path, for messages; its name without `.toml` names the scenario.

    Raises:
        ConfigurationError: the text does not describe a scenario; the message names file, line
            and key.
    """
    try:
        row = tomllib.loads(text)
        key_lines(text)  # reads by recursion, too: a later complaint must find its line
    except tomllib.TOMLDecodeError as error:
        _refuse_syntax(text, file, error)
    except RecursionError:
        raise ConfigurationError("scenario file", file, "TOML that is nested less deep") from None
    try:
        scenario = _checked(_scenario(row, FilePath(file).stem))
    except _Refusal as refusal:
        place = f"{file}:{_line(text, refusal.path)}: {refusal.key or _key(refusal.path)}"
        raise ConfigurationError(place, _Shown(value=refusal.value), refusal.expected) from None
    return evolve(scenario, events=tuple(sorted(scenario.events, key=lambda event: event.at_ms)))


def _checked(scenario: Scenario) -> Scenario:
    for problem in scenario_problems(scenario):
        raise _Refusal(problem.path, problem.value, problem.expected, problem.key)
    return scenario


def _refuse_syntax(text: str, file: str, error: tomllib.TOMLDecodeError) -> NoReturn:
    found = re.search(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    reason, line = (found[1], found[2]) if found else (str(error), None)
    number = int(line) if line else max(1, len(text.splitlines()))
    shown = text.splitlines()[number - 1].strip() if text.strip() else ""
    expected = f"TOML ({reason[:1].lower()}{reason[1:]})"
    raise ConfigurationError(f"{file}:{number}", _Shown(value=shown), expected) from None


def _line(text: str, path: Path) -> int:
    """Line of a path, or of the nearest thing around it that has one."""
    lines = key_lines(text)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _key(path: Path) -> str:
    """A path as people write it: the line already tells which item of a list it is."""
    return dotted(tuple(part for part in path if isinstance(part, str)))


# --- plain values -------------------------------------------------------------------------------


def _integer(path: Path, value: Any) -> int:  # noqa: ANN401 - whatever stands in the file
    if type(value) is not int:  # True is no number here
        raise _Refusal(path, value, "an integer")
    if abs(value) > _INTEGER_MAX:
        raise _Refusal(path, value, f"an integer of at most {_INTEGER_MAX}")
    return value


def _number(path: Path, value: Any) -> float:  # noqa: ANN401
    if type(value) not in (int, float):
        raise _Refusal(path, value, "a number")
    return float(value)


def _string(path: Path, value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, str):
        raise _Refusal(path, value, "a string")
    return value


def _list_of(reader: _Reader) -> _Reader:
    def read(path: Path, value: Any) -> tuple[Any, ...]:  # noqa: ANN401
        if not isinstance(value, list):
            raise _Refusal(path, value, "a list")
        return tuple(reader((*path, place), item) for place, item in enumerate(value))

    return read


def _names(path: Path, value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """One name, or a list of names."""
    names: tuple[str, ...] = _strings(path, [value] if isinstance(value, str) else value)
    return names


def _word(words: type[StrEnum]) -> _Reader:
    def read(path: Path, value: Any) -> StrEnum:  # noqa: ANN401
        if value not in list(words):
            raise _Refusal(path, value, f"one of {', '.join(words)}")
        return words(value)

    return read


def _span(path: Path, value: Any) -> Span:  # noqa: ANN401
    """One integer, or `[min, max]`."""
    if isinstance(value, list):
        if len(value) != 2:
            raise _Refusal(path, value, "an integer or [min, max]")
        return Span(_integer((*path, 0), value[0]), _integer((*path, 1), value[1]))
    if type(value) is not int:
        raise _Refusal(path, value, "an integer or [min, max]")
    number = _integer(path, value)
    return Span(number, number)


_strings = _list_of(_string)
_integers = _list_of(_integer)


def _table(path: Path, value: Any) -> _Row:  # noqa: ANN401
    if not isinstance(value, dict):
        raise _Refusal(path, value, "a table")
    return value


# --- tables by shape ----------------------------------------------------------------------------


def _keywords(path: Path, row: _Row, readers: Mapping[str, _Reader], made: type) -> _Row:
    """Read the keys of a table.

    Args:
        path: of the table.
        row: the table.
        readers: of the keys that it may have.
        made: attrs class whose fields of the same names say which keys it must have.
    """
    for key in row:
        if key not in readers:
            raise _Refusal((*path, key), row[key], _no_such_key(key, readers))
    for one in attrs.fields(made):
        if one.default is attrs.NOTHING and one.name in readers and one.name not in row:
            raise _Refusal((*path, one.name), _NOTHING, "a value, as this key is required")
    return {key: readers[key]((*path, key), value) for key, value in row.items()}


def _no_such_key(key: str, readers: Mapping[str, _Reader]) -> str:
    close = difflib.get_close_matches(key, readers, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"no such key{meant}; there are {', '.join(readers)}"


@frozen
class _Shape:
    """Reads a table into a value.

    Attributes:
        made: attrs class of the value.
        readers: of the keys that the table may have.
        build: makes the value of the path and of what was read; None for the class itself.
    """

    made: type
    readers: Mapping[str, _Reader]
    build: Callable[[Path, _Row], Any] | None = None

    def __call__(self, path: Path, value: Any) -> Any:  # noqa: ANN401
        """Read a table."""
        keywords = _keywords(path, _table(path, value), self.readers, self.made)
        return self.made(**keywords) if self.build is None else self.build(path, keywords)


# --- the parts of a scenario --------------------------------------------------------------------


def _choice(path: Path, value: Any) -> Choice:  # noqa: ANN401
    """A name, or a table of name and options."""
    if isinstance(value, str):
        return Choice(name=value)
    if not isinstance(value, dict):
        raise _Refusal(path, value, "a name, or a table of name and options")
    choice: Choice = _Shape(Choice, {"name": _string, "options": _table})(path, value)
    return choice


def _topic(path: Path, row: _Row, name: str) -> Topic:
    keywords = _keywords(path, row, {"partitions": _partition_count, "rate_per_s": _rates}, Topic)
    count = keywords["partitions"]
    return Topic(name=name, partitions=count, rate_per_s=_each(keywords["rate_per_s"], count))


def _partition_count(path: Path, value: Any) -> int:  # noqa: ANN401
    count = _integer(path, value)
    if not 1 <= count <= RESOURCES_MAX:  # a slip here must not eat the memory
        raise _Refusal(path, value, f"an integer from 1 to {RESOURCES_MAX}")
    return count


def _rates(path: Path, value: Any) -> float | tuple[float, ...]:  # noqa: ANN401
    """One number for all partitions, or a list of one for each."""
    if isinstance(value, list):
        rates: tuple[float, ...] = _list_of(_number)(path, value)
        return rates
    if type(value) not in (int, float):
        raise _Refusal(path, value, "a number, or a list of one for each partition")
    return float(value)


def _each(rates: float | tuple[float, ...], count: int) -> tuple[float, ...]:
    return rates if isinstance(rates, tuple) else (rates,) * count


def _resources(path: Path, value: Any) -> ResourceSet:  # noqa: ANN401
    row = _table(path, value)
    try:
        return ResourceSet({name: _integers((*path, name), row[name]) for name in row})
    except ConfigurationError as error:  # beyond int32
        raise _Refusal(path, error.value, error.expected) from None


_GROUP: Final = _Shape(
    Group,
    {
        "policy": _choice,
        "assignor": _choice,
        "session_timeout_ms": _integer,
        "rebalance_timeout_ms": _integer,
        "heartbeat_interval_ms": _integer,
        "window_heartbeat_interval_ms": _integer,
        "commit_interval_ms": _integer,
    },
)

_MEMBERS: Final = {
    "name": _string,
    "count": _integer,
    "topics": _strings,
    "identity": _word(Identity),
    "capacity_per_s": _number,
    "start_ms": _integer,
    "start_every_ms": _integer,
    "clock_skew_ppm": _span,
}

_COST: Final = _Shape(
    values.Cost,
    {"resources": _resources, "stop_ms": _span, "commit_ms": _span, "restore_ms": _span},
)

_NETWORK: Final = _Shape(Network, {"delay_ms": _span, "loss": _number})


# --- events -------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _NewTopic:
    """The keys of `create_topic` that have to be there."""

    at_ms: int
    topic: str
    partitions: int
    rate_per_s: float | tuple[float, ...]


@frozen(kw_only=True)
class _MorePartitions:
    """The keys of `add_partitions` that have to be there."""

    at_ms: int
    topic: str
    count: int
    rate_per_s: float | tuple[float, ...]


def _create_topic(_: Path, keywords: _Row) -> CreateTopic:
    count = keywords["partitions"]
    rates = _each(keywords["rate_per_s"], count)
    topic = Topic(name=keywords["topic"], partitions=count, rate_per_s=rates)
    return CreateTopic(at_ms=keywords["at_ms"], topic=topic)


def _add_partitions(path: Path, keywords: _Row) -> AddPartitions:
    count = keywords["count"]
    rates = _each(keywords["rate_per_s"], count)
    if len(rates) != count:
        expected = f"one number for each of {count} new partitions"
        raise _Refusal((*path, "rate_per_s"), list(rates), expected)
    return AddPartitions(at_ms=keywords["at_ms"], topic=keywords["topic"], rate_per_s=rates)


_ENDED: Final = {"at_ms": _integer, "member": _string, "back_after_ms": _integer}

_EVENTS: Final[Mapping[str, _Shape]] = {
    "add_partitions": _Shape(
        _MorePartitions,
        {"at_ms": _integer, "topic": _string, "count": _partition_count, "rate_per_s": _rates},
        _add_partitions,
    ),
    "capacity": _Shape(
        values.Capacity, {"at_ms": _integer, "members": _names, "capacity_per_s": _number}
    ),
    "close": _Shape(values.Close, _ENDED),
    "coordinator_lost": _Shape(values.CoordinatorLost, {"at_ms": _integer, "for_ms": _integer}),
    "coordinator_moved": _Shape(values.CoordinatorMoved, {"at_ms": _integer}),
    "crash": _Shape(values.Crash, _ENDED),
    "create_topic": _Shape(
        _NewTopic,
        {"at_ms": _integer, "topic": _string, "partitions": _partition_count, "rate_per_s": _rates},
        _create_topic,
    ),
    "cut": _Shape(values.Cut, {"at_ms": _integer, "members": _names, "for_ms": _integer}),
    "delete_topic": _Shape(values.DeleteTopic, {"at_ms": _integer, "topic": _string}),
    "flap": _Shape(
        values.Flap,
        {"at_ms": _integer, "member": _string, "up_ms": _integer}
        | {"down_ms": _integer, "times": _integer, "how": _word(How)},
    ),
    "pause": _Shape(values.Pause, {"at_ms": _integer, "member": _string, "for_ms": _integer}),
    "rate": _Shape(
        values.Rate,
        {"at_ms": _integer, "topic": _string, "partitions": _integers, "rate_per_s": _number},
    ),
    "rolling_restart": _Shape(
        values.RollingRestart,
        {"at_ms": _integer, "members": _names, "down_ms": _integer}
        | {"every_ms": _integer, "batch": _integer, "how": _word(How)},
    ),
    "scale": _Shape(
        values.Scale,
        {"at_ms": _integer, "members": _string, "to": _integer}
        | {"every_ms": _integer, "how": _word(How)},
    ),
}

EVENT_KINDS: Final[Mapping[str, tuple[str, ...]]] = types.MappingProxyType(
    {kind: tuple(shape.readers) for kind, shape in _EVENTS.items()}
)
"""Keys of each kind of event, but for `kind` itself."""


def _event(path: Path, value: Any) -> Event:  # noqa: ANN401
    row = dict(_table(path, value))
    kind = row.pop("kind", _NOTHING)
    if not isinstance(kind, str) or kind not in _EVENTS:
        raise _Refusal((*path, "kind"), kind, f"one of {', '.join(_EVENTS)}")
    event: Event = _EVENTS[kind](path, row)
    return event


# --- the whole ----------------------------------------------------------------------------------


def _topics(path: Path, value: Any) -> tuple[Topic, ...]:  # noqa: ANN401
    rows = _table(path, value)
    return tuple(
        _topic((*path, name), _table((*path, name), row), name) for name, row in rows.items()
    )


def _policies(path: Path, value: Any) -> tuple[Choice, ...]:  # noqa: ANN401
    rows = _table(path, value)
    return tuple(
        Choice(name=name, options=_table((*path, name), row)) for name, row in rows.items()
    )


def _scenario(row: _Row, name: str) -> Scenario:
    topics = list(_table(("topics",), row.get("topics", {})))

    def members(path: Path, value: Any) -> MemberSet:  # noqa: ANN401
        keywords = {"topics": topics} | _table(path, value)  # unless it says so: all of the begin
        return MemberSet(**_keywords(path, keywords, _MEMBERS, MemberSet))

    readers: Mapping[str, _Reader] = {
        "description": _string,
        "duration_ms": _integer,
        "settle_ms": _integer,
        "group": _GROUP,
        "topics": _topics,
        "members": _list_of(members),
        "costs": _list_of(_COST),
        "network": _NETWORK,
        "events": _list_of(_event),
        "policies": _policies,
    }
    scenario = Scenario(name=name, **_keywords((), row, readers, Scenario))
    policy = scenario.group.policy
    if policy.options:
        return scenario
    return evolve(scenario, group=evolve(scenario.group, policy=scenario.policy_named(policy.name)))
