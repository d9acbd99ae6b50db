"""Sweep files: TOML to a `Sweep`, with errors that name file, line and key (docs: sweeps).

Theory of operation: each key has a reader that checks its type and returns its part of the sweep.
An error names the path of keys, and `toml_lines` knows the line of each path. Some errors show only
in combination (an unknown policy, a time-out that is longer than a session allows). The cells
find these errors afterwards, and the message names the responsible key.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from attrs import evolve, frozen

from coopgroup.assignors.registry import create_assignor
from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.sweep_grid import (
    CELLS_MAX,
    GROUP_AXES,
    OPTION_AXES,
    Sweep,
    SweptScenario,
    check_cells,
)
from coopgroup.policies.registry import create_policy
from coopgroup.simulator.scenario import Choice
from coopgroup.simulator.scenario_file import parse_scenario
from coopgroup.simulator.toml_lines import key_lines

__all__ = ["parse_sweep", "read_sweep"]

_Path: TypeAlias = tuple[str | int, ...]
_Reader: TypeAlias = Callable[[_Path, Any], Any]

_OPTION_MAX: Final = 2**31 - 1
_SIZE_MAX: Final = 10_000
_SEED_MAX: Final = 2**53


class _Wrong(Exception):  # noqa: N818 - never leaves this file
    """An error in the file.

    Args:
        path: place of the error, as keys and positions in lists.
        value: the wrong value; `_NOTHING` for a missing key.
        expected: the correct form, as the end of the sentence "expected …".
    """

    def __init__(self, path: _Path, value: object, expected: str) -> None:
        super().__init__(path)
        self.path = path
        self.value = value
        self.expected = expected


@frozen
class _Nothing:
    """Value of a missing key."""

    def __repr__(self) -> str:
        return "nothing"


_NOTHING: Final = _Nothing()


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep file and its scenario files.

    Args:
        path: path of the file. Its name without `.toml` is the name of the sweep. Paths of
            scenarios are relative to its folder.

    Raises:
        ConfigurationError: a file is unreadable or wrong; the message names file, line and key.
    """
    return parse_sweep(_read(Path(path), "sweep file"), file=str(path))


def parse_sweep(text: str, *, file: str) -> Sweep:
    """Read the text of a sweep file.

    Args:
        text: text of the file.
        file: its path, for messages and the name of the sweep. Paths of scenarios are relative
            to its folder.

    Raises:
        ConfigurationError: the text, or the file of a scenario, is wrong.
    """
    try:
        row = tomllib.loads(text)
        lines = key_lines(text)
    except tomllib.TOMLDecodeError as error:
        _refuse_syntax(text, file, error)
    except RecursionError:
        raise ConfigurationError("sweep file", file, "TOML that is nested less deep") from None
    try:
        sweep = _sweep(row, Path(file))
        _check_whole(sweep, row)
    except _Wrong as wrong:
        path = wrong.path
        while path and path not in lines:
            path = path[:-1]
        key = ".".join(part for part in wrong.path if isinstance(part, str))
        place = f"{file}:{lines.get(path, 1)}: {key}"
        raise ConfigurationError(place, wrong.value, wrong.expected) from None
    return sweep


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise ConfigurationError(what, str(path), f"a file to read ({reason})") from None
    except UnicodeDecodeError:
        raise ConfigurationError(what, str(path), "a text file in UTF-8") from None


def _refuse_syntax(text: str, file: str, error: tomllib.TOMLDecodeError) -> NoReturn:
    found = re.search(r"line (\d+)", str(error))
    number = int(found[1]) if found else max(1, text.count("\n") + 1)
    shown = (text.splitlines()[number - 1 : number] or [""])[0].strip()
    raise ConfigurationError(f"{file}:{number}", shown, f"TOML ({error})") from None


# --- values -------------------------------------------------------------------------------------


def _integer(low: int, high: int) -> _Reader:
    def read(path: _Path, value: Any) -> int:  # noqa: ANN401 - whatever stands in the file
        # excludes true, which is an int in Python
        if type(value) is not int or not low <= value <= high:
            raise _Wrong(path, value, f"an integer from {low} to {high}")
        return value

    return read


def _text(path: _Path, value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, str):
        raise _Wrong(path, value, "a string")
    return value


def _several(reader: _Reader) -> _Reader:
    """Accept one value, or a list of different values."""

    def read(path: _Path, value: Any) -> tuple[Any, ...]:  # noqa: ANN401
        if not isinstance(value, list):
            return (reader(path, value),)
        if not value:
            raise _Wrong(path, value, "at least one value")
        found: list[Any] = []
        for place, item in enumerate(value):
            one = reader((*path, place), item)
            if one in found:
                raise _Wrong((*path, place), item, "each value once")
            found.append(one)
        return tuple(found)

    return read


def _choice(path: _Path, value: Any) -> Choice:  # noqa: ANN401
    """Read a name, or a table of name and options."""
    if isinstance(value, str):
        return Choice(name=value)
    is_table = isinstance(value, dict) and set(value) <= {"name", "options"}
    if not is_table or not isinstance(value.get("name"), str):
        raise _Wrong(path, value, "a name, or a table of name and options")
    options = value.get("options", {})
    if not isinstance(options, dict):
        raise _Wrong((*path, "options"), options, "a table")
    return Choice(name=value["name"], options=options)


def _policy(path: _Path, value: Any) -> Choice:  # noqa: ANN401
    return _made(create_policy, path, _choice(path, value))


def _assignor(path: _Path, value: Any) -> Choice:  # noqa: ANN401
    return _made(create_assignor, path, _choice(path, value))


def _made(create: Callable[..., object], path: _Path, choice: Choice) -> Choice:
    try:
        create(choice.name, choice.options)
    except ConfigurationError as error:
        raise _Wrong(path, error.value, error.expected) from None
    return choice


def _seeds(path: _Path, value: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Read the number of seeds, or a list of seeds."""
    if isinstance(value, list):
        seeds: tuple[int, ...] = _several(_integer(0, _SEED_MAX))(path, value)
        return seeds
    return tuple(range(1, _integer(1, CELLS_MAX)(path, value) + 1))


_GRID: Final[Mapping[str, _Reader]] = {
    "policies": _several(_policy),
    "assignors": _several(_assignor),
    "sizes": _several(_integer(1, _SIZE_MAX)),
    **{
        name: _several(_integer(int(name == "max_moves_per_round"), _OPTION_MAX))
        for name in OPTION_AXES
    },
    **{name: _several(_integer(0, _OPTION_MAX)) for name in GROUP_AXES},
}


# --- the whole ----------------------------------------------------------------------------------


def _sweep(row: Mapping[str, Any], file: Path) -> Sweep:
    readers: Mapping[str, _Reader] = {
        "description": _text,
        "scenarios": _several(_text),
        "seeds": _seeds,
        "grid": _grid,
    }
    found = {"seeds": (1,), "grid": {}, "description": "", **_read_table((), row, readers)}
    if "scenarios" not in found:
        raise _Wrong(("scenarios",), _NOTHING, "a value, as this key is required")
    grid = found["grid"]
    return Sweep(
        name=file.stem,
        description=found["description"],
        scenarios=_scenarios(found["scenarios"], file.parent),
        policies=grid.get("policies", ()),
        assignors=grid.get("assignors", ()),
        options={name: grid[name] for name in OPTION_AXES if name in grid},
        settings={name: grid[name] for name in GROUP_AXES if name in grid},
        sizes=grid.get("sizes", (1,)),
        seeds=found["seeds"],
    )


def _grid(path: _Path, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise _Wrong(path, value, "a table")
    return _read_table(path, value, _GRID)


def _read_table(
    path: _Path, row: Mapping[str, Any], readers: Mapping[str, _Reader]
) -> dict[str, Any]:
    for key in row:
        if key not in readers:
            close = difflib.get_close_matches(key, readers, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            expected = f"no such key{meant}; there are {', '.join(readers)}"
            raise _Wrong((*path, key), row[key], expected)
    return {key: readers[key]((*path, key), value) for key, value in row.items()}


def _scenarios(names: tuple[str, ...], folder: Path) -> tuple[SweptScenario, ...]:
    found: list[SweptScenario] = []
    for place, name in enumerate(names):
        path = folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise _Wrong(
                ("scenarios", place), name, f"the path of a scenario file, from {folder}"
            ) from None
        scenario = parse_scenario(text, file=str(path))
        if scenario.name in {one.scenario.name for one in found}:
            raise _Wrong(("scenarios", place), name, "scenario files with different names")
        digest = hashlib.sha256(text.encode()).hexdigest()
        found.append(SweptScenario(scenario=scenario, digest=digest))
    return tuple(found)


def _check_whole(sweep: Sweep, row: Mapping[str, Any]) -> None:
    """Check the parts in combination."""
    if sweep.cells_max > CELLS_MAX:
        raise _Wrong(("grid",), sweep.cells_max, f"at most {CELLS_MAX} cells")
    try:
        check_cells(sweep)
    except ConfigurationError as error:
        raise _Wrong(_culprit(sweep, row, error), error.value, error.expected) from None


def _culprit(sweep: Sweep, row: Mapping[str, Any], error: ConfigurationError) -> _Path:
    """Return the key that causes the error: the sweep is valid without it or with one value."""
    grid = row.get("grid", {})
    for name in (*sweep.options, *sweep.settings):
        plain = evolve(
            sweep,
            options={key: axis for key, axis in sweep.options.items() if key != name},
            settings={key: axis for key, axis in sweep.settings.items() if key != name},
        )
        if _is_playable(plain):
            return ("grid", name)
    if sweep.sizes != (1,) and _is_playable(evolve(sweep, sizes=(1,))):
        return ("grid", "sizes")
    named = error.field.split(" of ")[0]
    return ("grid", named) if named in grid else ("grid",)


def _is_playable(sweep: Sweep) -> bool:
    try:
        check_cells(sweep)
    except ConfigurationError:
        return False
    return True
