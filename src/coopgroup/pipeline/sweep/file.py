"""Sweep files: TOML to a `Sweep`, with errors that name file, key path and value (docs: sweeps).

Some errors show only in combination (an unknown policy, a time-out that is longer than a session
allows). The cells find these errors afterwards, and the message names the responsible key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
from attrs import Attribute, evolve, field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.sweep.grid import (
    CELLS_MAX,
    GROUP_AXES,
    OPTION_AXES,
    Sweep,
    SweptScenario,
    check_cells,
)
from coopgroup.reading import (
    INT32_MAX,
    OneOrMore,
    StrictConverter,
    between,
    choice_hook,
    in_file,
    joined,
    parse_toml,
    read_text,
    structure,
    wrong,
)
from coopgroup.simulator.scenario import Choice
from coopgroup.simulator.scenario.checks import check_choice
from coopgroup.simulator.scenario.file import parse_scenario

__all__ = ["parse_sweep", "read_sweep"]

_FILE: Final = "sweep file"
_SIZE_MAX: Final = 10_000
_SEED_MAX: Final = 2**53


def _distinct(_: object, attribute: Attribute[Any], values: Any) -> None:  # noqa: ANN401
    """Validate a list of different values."""
    if isinstance(values, tuple):
        if not values:
            raise wrong(attribute.name, [], "at least one value")
        for place, value in enumerate(values):
            if value in values[:place]:
                raise wrong(joined(attribute.name, place), value, "each value once")


def _choices(_: object, attribute: Attribute[Any], values: tuple[Choice, ...] | None) -> None:
    for place, choice in enumerate(values or ()):
        check_choice(_item(attribute.name, place, values), choice)


def _item(key: str, place: int, values: Sized | None) -> str:
    """Return the path of an item; a single value may stand alone in the file, without a list."""
    return joined(key, place) if values and len(values) > 1 else key


_Numbers: TypeAlias = OneOrMore[int] | None
_CHOICES: Final[list[Any]] = [_distinct, _choices]
_FROM_0: Final[list[Any]] = [between(0, INT32_MAX), _distinct]
_FROM_1: Final[list[Any]] = [between(1, INT32_MAX), _distinct]


@frozen(kw_only=True)
class _Grid:
    """`[grid]`; a key that is None does not vary."""

    policies: OneOrMore[Choice] | None = field(default=None, validator=_CHOICES)
    assignors: OneOrMore[Choice] | None = field(default=None, validator=_CHOICES)
    sizes: _Numbers = field(default=None, validator=[between(1, _SIZE_MAX), _distinct])
    scheduled_rebalance_timeout_ms: _Numbers = field(default=None, validator=_FROM_0)
    max_moves_per_round: _Numbers = field(default=None, validator=_FROM_1)
    move_interval_ms: _Numbers = field(default=None, validator=_FROM_0)
    initial_delay_ms: _Numbers = field(default=None, validator=_FROM_0)
    session_timeout_ms: _Numbers = field(default=None, validator=_FROM_0)
    rebalance_timeout_ms: _Numbers = field(default=None, validator=_FROM_0)
    heartbeat_interval_ms: _Numbers = field(default=None, validator=_FROM_0)
    window_heartbeat_interval_ms: _Numbers = field(default=None, validator=_FROM_0)
    commit_interval_ms: _Numbers = field(default=None, validator=_FROM_0)

    def axes(self, names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        """Return the values of the named keys that vary."""
        found = {name: getattr(self, name) for name in names}
        return {name: values for name, values in found.items() if values is not None}


@frozen(kw_only=True)
class _File:
    """A sweep file."""

    description: str = ""
    scenarios: OneOrMore[str] = field(validator=_distinct)
    seeds: int | tuple[int, ...] = 1
    grid: _Grid = _Grid()

    def __attrs_post_init__(self) -> None:
        """Check the number of seeds, or each seed."""
        is_list = isinstance(self.seeds, tuple)
        check = between(0, _SEED_MAX) if is_list else between(1, CELLS_MAX)
        for validate in (check, _distinct):
            validate(self, attrs.fields(_File).seeds, self.seeds)


def _seeds(value: Any, _: Any) -> int | tuple[int, ...]:  # noqa: ANN401 - whatever the file has
    seeds: int | tuple[int, ...]
    if isinstance(value, list):
        seeds = _CONVERTER.structure(value, tuple[int, ...])
    else:
        seeds = _CONVERTER.structure(value, int)
    return seeds


_CONVERTER: Final = StrictConverter()
_CONVERTER.register_structure_hook(Choice, choice_hook(Choice, _CONVERTER))
_CONVERTER.register_structure_hook(int | tuple[int, ...], _seeds)


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep file and its scenario files.

    Args:
        path: path of the file. Its name without `.toml` is the name of the sweep. Paths of
            scenarios are relative to its folder.

    Raises:
        ConfigurationError: a file is unreadable or wrong; the message names file and key path.
    """
    return parse_sweep(read_text(Path(path), _FILE), file=str(path))


def parse_sweep(text: str, *, file: str) -> Sweep:
    """Read the text of a sweep file.

    Args:
        text: text of the file.
        file: its path, for messages and the name of the sweep. Paths of scenarios are relative
            to its folder.

    Raises:
        ConfigurationError: the text, or the file of a scenario, is wrong.
    """
    row = parse_toml(text, file, _FILE)
    with in_file(file):
        read = structure(_CONVERTER, row, _File)
        texts = _scenario_texts(read.scenarios, Path(file).parent)
    scenarios = {path: parse_scenario(one, file=str(path)) for path, one in texts.items()}
    with in_file(file):
        return _sweep(read, Path(file).stem, scenarios, texts)


def _scenario_texts(names: tuple[str, ...], folder: Path) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    for place, name in enumerate(names):
        path = folder / name
        key = _item("scenarios", place, names)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            expected = f"the path of a scenario file, from {folder}"
            raise ConfigurationError(key, name, expected) from None
        if path.stem in {one.stem for one in texts}:
            raise ConfigurationError(key, name, "scenario files with different names")
        texts[path] = text
    return texts


def _sweep(
    read: _File, name: str, scenarios: Mapping[Path, Any], texts: Mapping[Path, str]
) -> Sweep:
    grid, seeds = read.grid, read.seeds
    sweep = Sweep(
        name=name,
        description=read.description,
        scenarios=tuple(
            SweptScenario(
                scenario=scenario, digest=hashlib.sha256(texts[path].encode()).hexdigest()
            )
            for path, scenario in scenarios.items()
        ),
        policies=grid.policies or (),
        assignors=grid.assignors or (),
        options=grid.axes(OPTION_AXES),
        settings=grid.axes(GROUP_AXES),
        sizes=grid.sizes or (1,),
        seeds=seeds if isinstance(seeds, tuple) else tuple(range(1, seeds + 1)),
    )
    if sweep.cells_max > CELLS_MAX:
        raise ConfigurationError("grid", sweep.cells_max, f"at most {CELLS_MAX} cells")
    try:
        check_cells(sweep)
    except ConfigurationError as error:
        raise ConfigurationError(_culprit(sweep, error), error.value, error.expected) from None
    return sweep


def _culprit(sweep: Sweep, error: ConfigurationError) -> str:
    """Return the key that causes the error: the sweep is valid without it or with one value."""
    for name in (*sweep.options, *sweep.settings):
        plain = evolve(
            sweep,
            options={key: axis for key, axis in sweep.options.items() if key != name},
            settings={key: axis for key, axis in sweep.settings.items() if key != name},
        )
        if _is_playable(plain):
            return f"grid.{name}"
    if sweep.sizes != (1,) and _is_playable(evolve(sweep, sizes=(1,))):
        return "grid.sizes"
    named = [name for name in (*sweep.options, *sweep.settings) if name in error.field]
    return f"grid.{named[0]}" if named else f"grid: {error.field}"


def _is_playable(sweep: Sweep) -> bool:
    try:
        check_cells(sweep)
    except ConfigurationError:
        return False
    return True
