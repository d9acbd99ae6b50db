"""Read scenario files: TOML to a `Scenario`, with errors that name file, line and key.

A shape describes every table of a file. Its readers check types only (`toml_shapes`). Afterwards
`scenario_checks` checks the values of the whole scenario. Both report the path of an error in the
file, and `toml_lines` finds the line of each path.
"""

from __future__ import annotations

import json
import re
import reprlib
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn

from attrs import evolve, frozen

from coopgroup.assignors.weighted import WeightedAssignor
from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.simulator.scenario import (
    Choice,
    Cost,
    Group,
    Identity,
    MemberSet,
    Network,
    Scenario,
    Shares,
)
from coopgroup.simulator.scenario_checks import scenario_problems
from coopgroup.simulator.scenario_events import read_event
from coopgroup.simulator.scenario_problem import Path, dotted
from coopgroup.simulator.scenario_times import partition_counts
from coopgroup.simulator.scenario_topics import read_shared, shared_kind
from coopgroup.simulator.toml_lines import key_lines
from coopgroup.simulator.toml_shapes import (
    NOTHING,
    Reader,
    Refusal,
    Row,
    Shape,
    integer,
    integers,
    list_of,
    number,
    read_keys,
    span,
    string,
    strings,
    table,
    word,
)

__all__ = ["parse_scenario", "read_scenario"]


@frozen(kw_only=True)
class _Shown:
    """A value as in messages: short, with constants as the file writes them."""

    value: object

    def __repr__(self) -> str:
        if self.value is NOTHING:
            return "nothing"
        if isinstance(self.value, bool):
            return json.dumps(self.value)
        if isinstance(self.value, float) and self.value.is_integer():
            return repr(self.value).removesuffix(".0")
        try:
            return reprlib.repr(self.value)
        except ValueError:  # a long hexadecimal integer exceeds Python's limit for decimal output
            return "an integer of thousands of digits"


def read_scenario(path: str | FilePath) -> Scenario:
    """Read a scenario file.

    Args:
        path: path of the file; its name without `.toml` is the name of the scenario.

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
        text: content of the file.
        file: its path, for messages; its name without `.toml` is the name of the scenario.

    Raises:
        ConfigurationError: the text does not describe a scenario; the message names file, line
            and key.
    """
    try:
        row = tomllib.loads(text)
        key_lines(text)  # this is recursive too, so fail here and not in a later error message
    except tomllib.TOMLDecodeError as error:
        _refuse_syntax(text, file, error)
    except RecursionError:
        raise ConfigurationError("scenario file", file, "TOML that is nested less deep") from None
    except ValueError:  # `tomllib` raises it for an integer of thousands of digits
        raise ConfigurationError("scenario file", file, "TOML with shorter integers") from None
    try:
        scenario = _checked(_scenario(row, FilePath(file).stem))
    except Refusal as refusal:
        place = f"{file}:{_line(text, refusal.path)}: {refusal.key or _key(refusal.path)}"
        raise ConfigurationError(place, _Shown(value=refusal.value), refusal.expected) from None
    return evolve(scenario, events=tuple(sorted(scenario.events, key=lambda event: event.at_ms)))


def _checked(scenario: Scenario) -> Scenario:
    for problem in scenario_problems(scenario):
        raise Refusal(problem.path, problem.value, problem.expected, problem.key)
    return scenario


def _refuse_syntax(text: str, file: str, error: tomllib.TOMLDecodeError) -> NoReturn:
    found = re.search(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    reason, line = (found[1], found[2]) if found else (str(error), None)
    number = int(line) if line else max(1, len(text.splitlines()))
    shown = text.splitlines()[number - 1].strip() if text.strip() else ""
    expected = f"TOML ({reason[:1].lower()}{reason[1:]})"
    raise ConfigurationError(f"{file}:{number}", _Shown(value=shown), expected) from None


def _line(text: str, path: Path) -> int:
    """Return the line of a path, or of the nearest parent with a line."""
    lines = key_lines(text)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _key(path: Path) -> str:
    """Return a path for messages, without list indices, because the line shows the item."""
    return dotted(tuple(part for part in path if isinstance(part, str)))


# --- the parts of a scenario --------------------------------------------------------------------


def _choice(path: Path, value: Any) -> Choice:  # noqa: ANN401
    """Read a name, or a table of name and options."""
    if isinstance(value, str):
        return Choice(name=value)
    if not isinstance(value, dict):
        raise Refusal(path, value, "a name, or a table of name and options")
    choice: Choice = Shape(Choice, {"name": string, "options": table})(path, value)
    return choice


def _resources(path: Path, value: Any) -> ResourceSet:  # noqa: ANN401
    row = table(path, value)
    try:
        return ResourceSet({name: integers((*path, name), row[name]) for name in row})
    except ConfigurationError as error:  # beyond int32
        raise Refusal(path, error.value, error.expected) from None


_GROUP: Final = Shape(
    Group,
    {
        "policy": _choice,
        "assignor": _choice,
        "session_timeout_ms": integer,
        "rebalance_timeout_ms": integer,
        "heartbeat_interval_ms": integer,
        "window_heartbeat_interval_ms": integer,
        "commit_interval_ms": integer,
    },
)

_MEMBERS: Final = {
    "name": string,
    "count": integer,
    "topics": strings,
    "identity": word(Identity),
    "capacity_per_s": number,
    "start_ms": integer,
    "start_every_ms": integer,
    "clock_skew_ppm": span,
}

_NAMED: Final = (Shares.CONNECTORS, Shares.RESOURCES)
# Keys that only make sense for resources with records.
_RECORDS: Final = ("topics", "capacity_per_s")

_COST: Final = Shape(
    Cost,
    {"resources": _resources, "stop_ms": span, "commit_ms": span, "restore_ms": span},
)

_NETWORK: Final = Shape(Network, {"delay_ms": span, "loss": number})


# --- the whole ----------------------------------------------------------------------------------


def _policies(path: Path, value: Any) -> tuple[Choice, ...]:  # noqa: ANN401
    rows = table(path, value)
    return tuple(Choice(name=name, options=table((*path, name), row)) for name, row in rows.items())


def _scenario(row: Row, name: str) -> Scenario:
    shares = shared_kind(row)
    readers: Mapping[str, Reader] = {
        "description": string,
        "duration_ms": integer,
        "settle_ms": integer,
        "group": _GROUP,
        **{kind.value: read_shared(kind) for kind in (shares, *_NAMED)},
        "members": list_of(_members(shares, row)),
        "costs": list_of(_COST),
        "network": _NETWORK,
        "events": list_of(read_event(shares)),
        "policies": _policies,
    }
    keywords = read_keys((), row, readers, Scenario)
    topics = keywords.pop(shares.value)
    scenario = Scenario(name=name, shares=shares, topics=topics, **keywords)
    if shares in _NAMED:
        scenario = _of_named_resources(scenario, row)
    policy = scenario.group.policy
    if policy.options:
        return scenario
    return evolve(scenario, group=evolve(scenario.group, policy=scenario.policy_named(policy.name)))


def _members(shares: Shares, row: Row) -> Reader:
    """Return a reader of members; their default is all topics that exist at the start."""
    topics = list(table((shares.value,), row.get(shares.value, {})))
    named = shares in _NAMED
    readers = {key: reader for key, reader in _MEMBERS.items() if not (named and key in _RECORDS)}

    def read(path: Path, value: Any) -> MemberSet:  # noqa: ANN401
        given = table(path, value)
        if named:
            return MemberSet(topics=tuple(topics), **read_keys(path, given, readers, MemberSet))
        return MemberSet(**read_keys(path, {"topics": topics} | given, readers, MemberSet))

    return read


def _of_named_resources(scenario: Scenario, row: Row) -> Scenario:
    """Apply the defaults for named resources: weighted, and all members take all names."""
    everything = tuple(sorted(partition_counts(scenario)))
    members = tuple(evolve(one, topics=everything) for one in scenario.members)
    group = scenario.group
    if "assignor" not in row.get("group", {}):
        group = evolve(group, assignor=Choice(name=WeightedAssignor.name))
    return evolve(scenario, members=members, group=group)
