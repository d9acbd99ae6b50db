"""Read scenario files: TOML to a `Scenario`, with errors that name file, key path and value.

`coopgroup.reading` turns tables into values and checks types and bounds. Afterwards `checks` checks
the scenario as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from coopgroup.core.assignors.weighted import WeightedAssignor
from coopgroup.reading import (
    NOTHING,
    Row,
    StrictConverter,
    choice_hook,
    in_file,
    located,
    parse_toml,
    read_text,
    structure,
    table_hook,
    wrong,
)
from coopgroup.simulator.scenario import (
    Bell,
    Choice,
    Cost,
    Event,
    Group,
    MemberSet,
    Network,
    Scenario,
    Shares,
    Span,
)
from coopgroup.simulator.scenario.checks import check_scenario
from coopgroup.simulator.scenario.tables import (
    ConnectorTable,
    ResourcesTable,
    TopicTable,
    add_event_hooks,
    named_topic,
)
from coopgroup.simulator.scenario.times import partition_counts

__all__ = ["parse_scenario", "read_scenario"]

_FILE: Final = "scenario file"


@frozen(kw_only=True)
class _File:
    """A scenario file. `topics`, `connectors` and `resources` exclude each other."""

    description: str = ""
    duration_ms: int
    settle_ms: int = 60_000
    group: Group = field(factory=Group)
    topics: dict[str, TopicTable] = field(factory=dict)
    connectors: dict[str, ConnectorTable] = field(factory=dict)
    resources: dict[str, ResourcesTable] = field(factory=dict)
    members: tuple[MemberSet, ...] = ()
    costs: tuple[Cost, ...] = ()
    network: Network = field(factory=Network)
    bell: Bell | None = None
    events: tuple[Event, ...] = ()
    policies: dict[str, Mapping[str, object]] = field(factory=dict)


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigurationError: the file cannot be read, or does not describe a scenario; the message
            names file and key path.
    """
    return parse_scenario(read_text(Path(path), _FILE), file=str(path))


def parse_scenario(text: str, *, file: str) -> Scenario:
    """Read the text of a scenario file.

    Raises:
        ConfigurationError: the text does not describe a scenario; the message names file and key
            path.
    """
    row = parse_toml(text, file, _FILE)
    with in_file(file):
        scenario = _scenario(row, Path(file).stem)
        check_scenario(scenario)
    return evolve(scenario, events=tuple(sorted(scenario.events, key=lambda event: event.at_ms)))


def _scenario(row: Row, name: str) -> Scenario:
    _check_lists(row)
    shares = _shared_kind(row)
    converter = _OF_TOPICS if shares is Shares.TOPICS else _OF_NAMED_RESOURCES
    tables = _with_subscriptions(row) if shares is Shares.TOPICS else row
    read = structure(converter, tables, _File)
    if "members" not in row:
        raise wrong("members", NOTHING, "[[members]], a table for each set of processes")
    with located(shares):
        topics = tuple(named_topic(name, one) for name, one in getattr(read, shares).items())
    scenario = Scenario(
        name=name,
        description=read.description,
        duration_ms=read.duration_ms,
        settle_ms=read.settle_ms,
        group=read.group,
        shares=shares,
        topics=topics,
        members=read.members,
        costs=read.costs,
        network=read.network,
        bell=read.bell,
        events=read.events,
        policies=tuple(Choice(name=name, options=one) for name, one in read.policies.items()),
    )
    if shares is not Shares.TOPICS:
        scenario = _of_named_resources(scenario, row)
    policy = scenario.group.policy
    if policy.options:
        return scenario
    return evolve(scenario, group=evolve(scenario.group, policy=scenario.policy_named(policy.name)))


def _check_lists(row: Row) -> None:
    """Name the brackets of TOML if a list of tables is a single table."""
    for key in ("members", "costs", "events"):
        if isinstance(row.get(key), dict):
            raise wrong(key, row[key], f"[[{key}]] with double brackets, a list of tables")


def _shared_kind(row: Row) -> Shares:
    kinds = [kind for kind in Shares if kind in row] or [Shares.TOPICS]
    if len(kinds) > 1:
        expected = f"nothing beside {kinds[0]}: a group shares one kind"
        raise wrong(kinds[1], row[kinds[1]], expected)
    return kinds[0]


def _with_subscriptions(row: Row) -> Row:
    """Return the tables with the default of `members.topics`: all topics of the start."""
    topics, members = row.get("topics"), row.get("members")
    if not isinstance(members, list):
        return row
    default = {"topics": list(topics) if isinstance(topics, dict) else []}
    return row | {"members": [default | one if isinstance(one, dict) else one for one in members]}


def _of_named_resources(scenario: Scenario, row: Row) -> Scenario:
    """Apply the defaults for named resources: weighted, and all members take all names."""
    everything = tuple(sorted(partition_counts(scenario)))
    members = tuple(evolve(one, topics=everything) for one in scenario.members)
    group = scenario.group
    if "assignor" not in row.get("group", {}):
        group = evolve(group, assignor=Choice(name=WeightedAssignor.name))
    return evolve(scenario, members=members, group=group)


# --- hooks --------------------------------------------------------------------------------------


def _span(value: Any, _: Any) -> Span:  # noqa: ANN401 - whatever the file has
    limits = value if isinstance(value, list) else [value, value]
    if len(limits) != 2 or not {type(one) for one in limits} <= {int}:
        raise wrong("", value, "an integer or [min, max]")
    return Span(*limits)


def _converter(*, has_topics: bool) -> StrictConverter:
    converter = StrictConverter()
    converter.register_structure_hook(Span, _span)
    converter.register_structure_hook(Choice, choice_hook(Choice, converter))
    add_event_hooks(converter, has_topics=has_topics)
    if not has_topics:
        # Only records have topics, a capacity and a broker that assigns them; members take all
        # named resources.
        hidden = {"topics": [], "capacity_per_s": math.inf, "client": "coopgroup"}
        converter.register_structure_hook(MemberSet, table_hook(MemberSet, converter, hidden))
    return converter


_OF_TOPICS: Final = _converter(has_topics=True)
_OF_NAMED_RESOURCES: Final = _converter(has_topics=False)
