"""A sweep: scenarios and varied parameters; every combination with every seed is a cell.

Rules of this file: values and pure functions only. A cell is a line of text, the JSON of all its
parameters, so that any machine and any table can hold it. The name of a cell is a digest of that
line. So a changed sweep finds its earlier results again, and a changed scenario never reuses the
results of the old one.

Options that a policy lacks are left out for that policy, and equal cells are made once. So a grid
of time-outs costs `simple`, which has no time-out, one cell per seed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import evolve, field, frozen

from coopgroup import __version__
from coopgroup.policies.registry import create_policy
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
from coopgroup.simulator.scenario.checks import check_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.simulator.scenario import Event, MemberSet

__all__ = [
    "CELLS_MAX",
    "GROUP_AXES",
    "OPTION_AXES",
    "Cell",
    "Sweep",
    "SweptScenario",
    "cells_of",
    "check_cells",
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

_DIGEST_LETTERS: Final = 24


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
        policies: the policies. A policy without options takes the options of the scenario. If
            empty, each scenario's own policy is used.
        assignors: likewise.
        options: values of options of policies, by the names of `OPTION_AXES`.
        settings: values of settings of the group, by the names of `GROUP_AXES`.
        sizes: factors of the scenario's size, see `resized`.
        seeds: seeds of the random generator.
    """

    name: str
    description: str = ""
    scenarios: tuple[SweptScenario, ...]
    policies: tuple[Choice, ...] = ()
    assignors: tuple[Choice, ...] = ()
    options: Mapping[str, tuple[int, ...]] = field(factory=dict, hash=False)
    settings: Mapping[str, tuple[int, ...]] = field(factory=dict, hash=False)
    sizes: tuple[int, ...] = (1,)
    seeds: tuple[int, ...]

    @property
    def cells_max(self) -> int:
        """Maximum number of cells, before equal ones are joined."""
        axes = (*self.options.values(), *self.settings.values(), self.sizes, self.seeds)
        count = len(self.scenarios) * max(1, len(self.policies)) * max(1, len(self.assignors))
        for axis in axes:
            count *= len(axis)
        return count


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


def cells_of(sweep: Sweep) -> tuple[Cell, ...]:
    """Return every cell of a sweep once: seeds vary fastest, then settings, policies, scenarios."""
    found: dict[str, Cell] = {}
    for row in _rows(sweep):
        cell = Cell.of(row)
        found.setdefault(cell.key, cell)
    return tuple(found.values())


def check_cells(sweep: Sweep) -> None:
    """Refuse a sweep with an unplayable scenario before any run.

    Raises:
        ConfigurationError: a policy or an assignor does not exist, or has a wrong option, or the
            settings contradict each other.
    """
    bases = {one.scenario.name: one.scenario for one in sweep.scenarios}
    for row in _rows(evolve(sweep, seeds=sweep.seeds[:1])):
        check_scenario(scenario_of(row, bases[row["scenario"]]))


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
    for swept in sweep.scenarios:
        group = swept.scenario.group
        policies = [_named(swept.scenario, one) for one in sweep.policies] or [group.policy]
        assignors = sweep.assignors or (group.assignor,)
        plain = {name: getattr(group, name) for name in GROUP_AXES}
        for policy, assignor, settings, options, size, seed in product(
            policies,
            assignors,
            _combined(sweep.settings),
            _combined(sweep.options),
            sweep.sizes,
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


def _combined(axes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


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
