"""A sweep: scenarios and a grid of parameters; every combination with every seed is a cell.

`read_sweep` reads a file (docs: sweeps), and `cells_of` returns its cells. A cell is a line of
text, the JSON of all its parameters, so that any machine and any table can hold it. The name of a
cell is a digest of that line. So a changed sweep finds its earlier results again, and a changed
scenario never reuses the results of the old one.

Options that a policy lacks are left out for that policy, and equal cells are made once. So a grid
of time-outs costs `simple`, which has no time-out, one cell per seed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sized
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from attrs import Attribute, evolve, field, frozen

from coopgroup import __version__
from coopgroup.core.policies.built_in import create_policy
from coopgroup.errors import ConfigurationError
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
from coopgroup.simulator.scenario import (
    AddPartitions,
    Choice,
    CreateTopic,
    Group,
    RollingRestart,
    Scale,
    Scenario,
    Topic,
)
from coopgroup.simulator.scenario.checks import check_choice, check_scenario
from coopgroup.simulator.scenario.file import parse_scenario

if TYPE_CHECKING:
    from coopgroup.simulator.scenario import Event, MemberSet

__all__ = [
    "CELLS_MAX",
    "GROUP_AXES",
    "OPTION_AXES",
    "Cell",
    "Grid",
    "Sweep",
    "SweptScenario",
    "cells_of",
    "parse_sweep",
    "read_sweep",
    "resized",
    "scenario_of",
]

CELLS_MAX: Final = 1_000_000
"""Limit of cells in a sweep: the driver keeps a line of text for each."""

OPTION_AXES: Final = (
    "scheduled_rebalance_timeout_ms",
    "max_moves_per_round",
    "move_interval_ms",
    "initial_delay_ms",
)
"""Options of policies that a grid may vary."""

GROUP_AXES: Final = tuple(
    one.name for one in attrs.fields(Group) if one.name not in {"policy", "assignor"}
)
"""Settings of the group that a grid may vary: sessions, heartbeats and commits."""

_FILE: Final = "sweep file"
_SIZE_MAX: Final = 10_000
_SEED_MAX: Final = 2**53
_DIGEST_LETTERS: Final = 24


# --- values -------------------------------------------------------------------------------------


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
class Grid:
    """`[grid]` of a sweep file; a key that is None keeps the value of the scenario.

    Attributes:
        policies: the policies. A policy without options takes the options of the scenario.
        assignors: the assignors.
        sizes: factors of the scenario's size, see `resized`.
    """

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

    @property
    def varied(self) -> dict[str, tuple[Any, ...]]:
        """The keys with values."""
        every = {one.name: getattr(self, one.name) for one in attrs.fields(Grid)}
        return {name: values for name, values in every.items() if values is not None}

    def combined(self, names: tuple[str, ...]) -> tuple[dict[str, int], ...]:
        """Return every combination of the values of some keys."""
        axes = {name: values for name, values in self.varied.items() if name in names}
        return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


@frozen(kw_only=True)
class SweptScenario:
    """A scenario and the text of its file.

    Attributes:
        scenario: the scenario; its name is unique within a sweep.
        digest: digest of the file's text; another text is another scenario.
    """

    scenario: Scenario
    digest: str


@frozen(kw_only=True)
class Sweep:
    """A grid of simulated runs.

    Attributes:
        name: short name; for a file its name.
        description: purpose of the sweep, for readers.
        scenarios: the scenarios.
        seeds: seeds of the random generator.
        grid: values of the parameters.
    """

    name: str
    description: str = ""
    scenarios: tuple[SweptScenario, ...]
    seeds: tuple[int, ...]
    grid: Grid = Grid()

    @property
    def bases(self) -> dict[str, Scenario]:
        """Scenarios by name, at their own size."""
        return {one.scenario.name: one.scenario for one in self.scenarios}


@frozen(kw_only=True)
class Cell:
    """One run.

    Attributes:
        key: digest of the parameters.
        parameters: JSON of everything that the run depends on, keys in order.
    """

    key: str
    parameters: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Cell:
        """Return the cell with these parameters."""
        text = json.dumps(row, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LETTERS]
        return cls(key=digest, parameters=text)


# --- the file -----------------------------------------------------------------------------------


@frozen(kw_only=True)
class _File:
    """The keys of a sweep file."""

    description: str = ""
    scenarios: OneOrMore[str] = field(validator=_distinct)
    seeds: int | tuple[int, ...] = 1
    grid: Grid = Grid()

    def __attrs_post_init__(self) -> None:
        """Check the number of seeds, or each seed."""
        is_list = isinstance(self.seeds, tuple)
        check = between(0, _SEED_MAX) if is_list else between(1, CELLS_MAX)
        for validate in (check, _distinct):
            validate(self, attrs.fields(_File).seeds, self.seeds)


def _seeds(value: Any, _: Any) -> int | tuple[int, ...]:  # noqa: ANN401 - whatever the file has
    kind: Any = tuple[int, ...] if isinstance(value, list) else int
    seeds: int | tuple[int, ...] = _CONVERTER.structure(value, kind)
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
    """Read the text of a sweep file; else as `read_sweep`."""
    row = parse_toml(text, file, _FILE)
    with in_file(file):
        read = structure(_CONVERTER, row, _File)
        texts = _scenario_texts(read.scenarios, Path(file).parent)
    scenarios = tuple(
        SweptScenario(
            scenario=parse_scenario(one, file=str(path)),
            digest=hashlib.sha256(one.encode()).hexdigest(),
        )
        for path, one in texts.items()
    )
    sweep = Sweep(
        name=Path(file).stem,
        description=read.description,
        scenarios=scenarios,
        seeds=read.seeds if isinstance(read.seeds, tuple) else tuple(range(1, read.seeds + 1)),
        grid=read.grid,
    )
    with in_file(file):
        _check_cells(sweep)
    return sweep


def _scenario_texts(names: tuple[str, ...], folder: Path) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    for place, name in enumerate(names):
        path = folder / name
        key = _item("scenarios", place, names)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            expected = f"the path of a scenario file, from {folder}"
            raise ConfigurationError(key, name, expected) from None
        if path.stem in {one.stem for one in texts}:
            raise ConfigurationError(key, name, "scenario files with different names")
        texts[path] = text
    return texts


def _check_cells(sweep: Sweep) -> None:
    """Refuse a sweep that is too large, or has an unplayable cell, before any run.

    Some errors show only in combination: an option that a policy lacks beside it, a time-out that
    is longer than a session allows. The message names the responsible key.
    """
    count = prod(map(len, (sweep.scenarios, sweep.seeds, *sweep.grid.varied.values())))
    if count > CELLS_MAX:
        raise ConfigurationError("grid", count, f"at most {CELLS_MAX} cells")
    error = _objection(sweep)
    if error is not None:
        raise ConfigurationError(_culprit(sweep, error), error.value, error.expected)


def _objection(sweep: Sweep) -> ConfigurationError | None:
    """Return the error of the first unplayable cell."""
    bases = sweep.bases
    try:
        for row in _rows(evolve(sweep, seeds=sweep.seeds[:1])):
            check_scenario(scenario_of(row, bases[row["scenario"]]))
    except ConfigurationError as error:
        return error
    return None


def _culprit(sweep: Sweep, error: ConfigurationError) -> str:
    """Return the key that causes the error: the sweep is valid without it."""
    names = [one for one in (*OPTION_AXES, *GROUP_AXES, "sizes") if one in sweep.grid.varied]
    for name in names:
        if _objection(evolve(sweep, grid=evolve(sweep.grid, **{name: None}))) is None:
            return f"grid.{name}"
    named = [name for name in names if name in error.field]
    return f"grid.{named[0]}" if named else f"grid: {error.field}"


# --- cells --------------------------------------------------------------------------------------


def cells_of(sweep: Sweep) -> tuple[Cell, ...]:
    """Return every cell of a sweep once: seeds vary fastest, then settings, policies, scenarios."""
    return tuple({cell.key: cell for cell in map(Cell.of, _rows(sweep))}.values())


def scenario_of(row: Mapping[str, Any], base: Scenario) -> Scenario:
    """Return the scenario of a cell.

    Args:
        row: parameters of the cell.
        base: scenario of that name.
    """
    group = Group(
        policy=Choice(**row["policy"]), assignor=Choice(**row["assignor"]), **row["group"]
    )
    return evolve(resized(base, row["size"]), group=group)


def resized(scenario: Scenario, factor: int) -> Scenario:
    """Return a scenario with `factor` times as many processes and partitions.

    The factor multiplies sets with a count, their scaling targets, batches of restarts and the
    partitions of topics, and repeats the rates of these partitions. Staggered starts take as much
    time as before. Events that name single processes or partitions keep these names.

    Args:
        scenario: the scenario at its own size.
        factor: at least 1.
    """
    if factor == 1:
        return scenario
    return evolve(
        scenario,
        topics=tuple(_more_partitions(topic, factor) for topic in scenario.topics),
        members=tuple(_more_processes(members, factor) for members in scenario.members),
        events=tuple(_larger(event, factor) for event in scenario.events),
    )


def _rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the parameters of every combination, possibly with repetitions."""
    grid = sweep.grid
    for swept in sweep.scenarios:
        group = swept.scenario.group
        plain = {name: getattr(group, name) for name in GROUP_AXES}
        for policy, assignor, settings, options, size, seed in product(
            [_named(swept.scenario, one) for one in grid.policies or ()] or [group.policy],
            grid.assignors or (group.assignor,),
            grid.combined(GROUP_AXES),
            grid.combined(OPTION_AXES),
            grid.sizes or (1,),
            sweep.seeds,
        ):
            known = _options_of(policy.name)
            taken = {name: value for name, value in options.items() if name in known}
            yield {
                "version": __version__,
                "scenario": swept.scenario.name,
                "digest": swept.digest,
                "policy": {"name": policy.name, "options": {**policy.options, **taken}},
                "assignor": {"name": assignor.name, "options": dict(assignor.options)},
                "group": plain | settings,
                "size": size,
                "seed": seed,
            }


def _named(scenario: Scenario, choice: Choice) -> Choice:
    return choice if choice.options else scenario.policy_named(choice.name)


@cache
def _options_of(policy: str) -> frozenset[str]:
    """Return the options of a policy, from the parameters of its class."""
    return frozenset(inspect.signature(type(create_policy(policy, {}))).parameters)


# --- sizes --------------------------------------------------------------------------------------


def _more_partitions(topic: Topic, factor: int) -> Topic:
    return evolve(
        topic,
        partitions=topic.partitions * factor,
        rate_per_s=topic.rate_per_s * factor,
        weights=topic.weights * factor,
    )


def _more_processes(members: MemberSet, factor: int) -> MemberSet:
    if members.count is None:
        return members
    return evolve(
        members, count=members.count * factor, start_every_ms=members.start_every_ms // factor
    )


def _larger(event: Event, factor: int) -> Event:
    match event:
        case Scale():
            return evolve(event, to=event.to * factor, every_ms=event.every_ms // factor)
        case RollingRestart():
            return evolve(event, batch=event.batch * factor)
        case CreateTopic():
            return evolve(event, topic=_more_partitions(event.topic, factor))
        case AddPartitions():
            return evolve(
                event, rate_per_s=event.rate_per_s * factor, weights=event.weights * factor
            )
        case _:
            return event
